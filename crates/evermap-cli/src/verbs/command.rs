//! The commands that verbs start: found in `PATH`, run, and their exit codes passed on.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use crate::failure::Failure;

/// Argument of verbs that start a command.
#[derive(Debug, clap::Args)]
pub struct CommandLine {
    /// Command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = clap::ValueHint::AnyPath)]
    pub words: Vec<OsString>,
}

/// A command whose file was found.
pub struct Found<'a> {
    pub file: PathBuf,
    pub name: &'a OsString,
    pub arguments: &'a [OsString],
}

impl CommandLine {
    /// Finds the command's file.
    pub fn find(&self) -> Result<Found<'_>, Failure> {
        let Some((name, arguments)) = self.words.split_first() else {
            return Err(Failure::Usage("no command".to_string()));
        };
        match find(name) {
            Some(file) => Ok(Found { file, name, arguments }),
            None => Err(Failure::NoCommand { name: name.clone() }),
        }
    }
}

impl Found<'_> {
    /// Returns the command, to be started.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.arg0(self.name).args(self.arguments);
        command
    }
}

/// Passes on the exit code of a command, or 128 plus the signal that ended it.
pub fn pass_on(status: ExitStatus) -> Result<(), Failure> {
    match status.code() {
        Some(0) => Ok(()),
        code => {
            let code = code.or(status.signal().map(|signal| 128 + signal));
            Err(Failure::CommandEnded { code: code.map_or(125, |code| code as u8) })
        }
    }
}

/// Returns the file of a command: a name with a slash is a path, others are looked up in `PATH`. An
/// executable file is preferred.
fn find(name: &OsStr) -> Option<PathBuf> {
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
