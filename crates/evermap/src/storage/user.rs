//! Where a user's programs keep what they know from one run to the next: `$XDG_STATE_HOME`, or else
//! `~/.local/state` (XDG Base Directory Specification 0.8).

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs;

/// The directory of this user, whether it exists already or not.
///
/// A program that runs as another user than the owner of that place (`sudo` with the caller's
/// `HOME`, a set-user-id program) has none: what it made there its owner could not use any more.
/// Costs a `stat`.
pub(super) fn state_directory() -> Option<PathBuf> {
    let path = named_by(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"))?;
    let user = rustix::process::geteuid().as_raw();
    (owner_of_nearest(&path)? == user).then_some(path)
}

/// Relative paths are not valid there, and are passed over.
fn named_by(state_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let state = state_home.and_then(absolute);
    state.or_else(|| Some(home.and_then(absolute)?.join(".local/state")))
}

/// Whose the path is, or else the directory in which it would be made.
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
    fn a_place_that_does_not_exist_belongs_to_whoever_has_the_one_above_it() {
        let directory = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        assert_eq!(owner_of_nearest(&directory.path().join("not/there")), Some(user));
        assert_eq!(owner_of_nearest(Path::new("/not/there")), Some(0));
    }
}
