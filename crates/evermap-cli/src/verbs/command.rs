//! Finds the commands that verbs start.

use std::ffi::OsStr;
use std::path::PathBuf;

/// Returns the file of a command: a name with a slash is a path, others are looked up in `PATH`. An
/// executable file is preferred.
pub fn find(name: &OsStr) -> Option<PathBuf> {
    let is_file = |path: &PathBuf| path.is_file();
    if name.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(is_file);
    }
    // The default search path of a shell.
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let found: Vec<PathBuf> =
        std::env::split_paths(&path).map(|folder| folder.join(name)).filter(is_file).collect();
    let executable = found.iter().find(|path| {
        let mode = path.metadata().map(|file| std::os::unix::fs::MetadataExt::mode(&file));
        mode.is_ok_and(|mode| mode & 0o111 != 0)
    });
    executable.or(found.first()).cloned()
}
