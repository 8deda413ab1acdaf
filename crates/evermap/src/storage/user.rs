//! The directory in which a user's programs keep state between runs: `$XDG_STATE_HOME`, or else
//! `~/.local/state` (XDG Base Directory Specification 0.8).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs;

/// Returns this user's state directory, which may not exist yet.
///
/// Returns `None` if the process runs as another user than the owner of that directory (`sudo` with
/// the caller's `HOME`, a set-user-id program): the owner could not use files that it creates
/// there. Costs a `stat`.
pub(super) fn state_directory() -> Option<PathBuf> {
    let path = named_by(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"))?;
    let user = rustix::process::geteuid().as_raw();
    (owner_of_nearest(&path)? == user).then_some(path)
}

/// The specification declares relative paths invalid; they are ignored.
fn named_by(state_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let state = state_home.and_then(absolute);
    state.or_else(|| Some(home.and_then(absolute)?.join(".local/state")))
}

/// Returns the owner of the path, or of its nearest existing parent directory.
fn owner_of_nearest(path: &Path) -> Option<u32> {
    path.ancestors().find_map(|path| fs::stat(path).ok()).map(|found| found.st_uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_directory_is_the_one_the_specification_names() {
        let named = |state: &str, home: &str| named_by(Some(state.into()), Some(home.into()));
        assert_eq!(named("/state", "/home/me"), Some("/state".into()));
        assert_eq!(named("", "/home/me"), Some("/home/me/.local/state".into()));
        assert_eq!(named("relative", "/home/me"), Some("/home/me/.local/state".into()));
        assert_eq!(named_by(None, Some("/home/me".into())), Some("/home/me/.local/state".into()));
        assert_eq!((named("", ""), named_by(None, None)), (None, None));
    }

    #[test]
    fn a_missing_path_belongs_to_the_owner_of_its_nearest_parent() {
        let directory = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        assert_eq!(owner_of_nearest(&directory.path().join("not/there")), Some(user));
        assert_eq!(owner_of_nearest(Path::new("/not/there")), Some(0));
    }
}
