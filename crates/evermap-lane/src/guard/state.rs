//! State directory of lanes. Only its user may write there, and no one else may have made it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::with_remedy;
use crate::{Error, Result};

/// Directory that the lanes of a user share: `cores/N` are the claims, `lanes/ID.json` the
/// journals. There is one for root and one for each user. Lanes with different directories do not
/// see each other's claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDirectory {
    path: PathBuf,
}

impl StateDirectory {
    /// Opens the directory of the current user, and makes it if necessary: `/run/evermap-lane` for
    /// root, else `$XDG_RUNTIME_DIR/evermap-lane`, else `/tmp/evermap-lane-UID`. A restart usually
    /// removes all of them, with the changes that they describe. If `/tmp` persists, the boot id
    /// identifies old journals.
    pub fn of_user() -> Result<Self> {
        Self::at(Self::path_of_user())
    }

    /// Path that [`of_user`](Self::of_user) opens. Makes nothing.
    pub fn path_of_user() -> PathBuf {
        let user = rustix::process::geteuid();
        let of_session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        match of_session.filter(|path| path.is_absolute() && path.is_dir()) {
            _ if user.is_root() => PathBuf::from("/run/evermap-lane"),
            Some(path) => path.join("evermap-lane"),
            None => PathBuf::from(format!("/tmp/evermap-lane-{}", user.as_raw())),
        }
    }

    /// Opens a directory at `path`, for lanes that are separate from others. Makes it if necessary;
    /// its parent must exist.
    ///
    /// # Errors
    /// [`Error::State`] for a link, a file that is not a directory, a directory of another user,
    /// and one that others may use.
    pub fn at(path: impl Into<PathBuf>) -> Result<Self> {
        let path = std::path::absolute(path.into()).map_err(|source| Error::Io {
            operation: "find the path of the state directory",
            path: PathBuf::new(),
            source,
        })?;
        for folder in [path.clone(), path.join("cores"), path.join("lanes")] {
            make(&folder)?;
            verify(&folder)?;
        }
        Ok(Self { path })
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// File whose lock is the claim of a core.
    pub(crate) fn core(&self, core: u32) -> PathBuf {
        self.path.join("cores").join(core.to_string())
    }

    /// Directory of the journals.
    pub(crate) fn lanes(&self) -> PathBuf {
        self.path.join("lanes")
    }
}

fn make(folder: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Error::Io {
            operation: "make the state directory",
            path: folder.into(),
            source: with_remedy(error, "its parent directory must exist and be writable"),
        }),
        _ => Ok(()),
    }
}

/// Checks the owner and the mode, since any user could have made the directory in `/tmp`.
fn verify(folder: &Path) -> Result<()> {
    let facts = fs::symlink_metadata(folder).map_err(|source| Error::Io {
        operation: "stat the state directory",
        path: folder.into(),
        source,
    })?;
    let user = rustix::process::geteuid().as_raw();
    let why = match facts.mode() & 0o777 {
        _ if facts.is_symlink() => "it is a symbolic link".to_owned(),
        _ if !facts.is_dir() => "it is not a directory".to_owned(),
        _ if facts.uid() != user => {
            format!("user {} owns it, and you are user {user}", facts.uid())
        }
        mode if mode & 0o077 != 0 => {
            format!("other users have access to it (its mode is {mode:03o})")
        }
        _ => return Ok(()),
    };
    Err(Error::State { path: folder.into(), why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn the_directory_is_made_for_its_user_alone_and_found_again() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        let state = StateDirectory::at(&path).unwrap();
        assert_eq!(fs::metadata(state.path()).unwrap().mode() & 0o777, 0o700);
        assert_eq!(StateDirectory::at(&path).unwrap(), state);
    }

    #[test]
    fn a_directory_that_another_user_could_have_made_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let (real, link, file, open) = (
            place.path().join("real"),
            place.path().join("link"),
            place.path().join("file"),
            place.path().join("open"),
        );
        StateDirectory::at(&real).unwrap();
        symlink(&real, &link).unwrap();
        fs::write(&file, "").unwrap();
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
        for (path, why) in
            [(link, "symbolic link"), (file, "not a directory"), (open, "other users")]
        {
            let error = StateDirectory::at(&path).unwrap_err();
            assert!(matches!(error, Error::State { .. }), "{error}");
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn a_missing_parent_is_an_error_with_a_remedy() {
        let error = StateDirectory::at("/nowhere/state").unwrap_err().to_string();
        assert!(error.contains("/nowhere/state") && error.contains("must exist"), "{error}");
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can change the owner of a directory");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        StateDirectory::at(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        assert!(StateDirectory::at(&path).unwrap_err().to_string().contains("user 65534 owns it"));
    }
}
