//! The directory where lanes write what they change: nobody else may write there, or could have put something in its place.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::with_remedy;
use crate::{Error, Result};

/// Where the lanes of a user keep what they know of each other: `cores/N`, the claims; `lanes/ID.json`, the journals. Lanes
/// with different ones don't see each other's claims: there is one for root, and one for each user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDirectory {
    path: PathBuf,
}

impl StateDirectory {
    /// Of the user that runs this: `/run/evermap-lane` for root, else `$XDG_RUNTIME_DIR/evermap-lane`, else
    /// `/tmp/evermap-lane-UID`. It is made if it is not there. All of them are gone after a reboot, as what is noted there is; where `/tmp`
    /// lasts, a journal of another boot is known by its boot id.
    pub fn of_user() -> Result<Self> {
        Self::at(Self::path_of_user())
    }

    /// Where [`of_user`](Self::of_user) has it; nothing is made.
    pub fn path_of_user() -> PathBuf {
        let user = rustix::process::geteuid();
        let of_session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        match of_session.filter(|path| path.is_absolute() && path.is_dir()) {
            _ if user.is_root() => PathBuf::from("/run/evermap-lane"),
            Some(path) => path.join("evermap-lane"),
            None => PathBuf::from(format!("/tmp/evermap-lane-{}", user.as_raw())),
        }
    }

    /// This one, for whoever wants lanes that keep to themselves. It is made if it is not there; its parent has to be.
    ///
    /// # Errors
    /// [`Error::State`] for a link, for what is no directory, for one of another user's, and for one that others may write to.
    pub fn at(path: impl Into<PathBuf>) -> Result<Self> {
        let path = std::path::absolute(path.into()).map_err(|source| Error::Io {
            operation: "tell the path of the state directory",
            path: PathBuf::new(),
            source,
        })?;
        for folder in [path.clone(), path.join("cores"), path.join("lanes")] {
            make(&folder)?;
            verify(&folder)?;
        }
        Ok(Self { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file whose lock is the claim of a core.
    pub(crate) fn core(&self, core: u32) -> PathBuf {
        self.path.join("cores").join(core.to_string())
    }

    /// Where the journals are.
    pub(crate) fn lanes(&self) -> PathBuf {
        self.path.join("lanes")
    }
}

fn make(folder: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Error::Io {
            operation: "make the state directory",
            path: folder.into(),
            source: with_remedy(
                error,
                "what it is to be in has to be there, and yours to write to",
            ),
        }),
        _ => Ok(()),
    }
}

/// In `/tmp` anybody could have made it first.
fn verify(folder: &Path) -> Result<()> {
    let facts = fs::symlink_metadata(folder).map_err(|source| Error::Io {
        operation: "look at the state directory",
        path: folder.into(),
        source,
    })?;
    let user = rustix::process::geteuid().as_raw();
    let why = match facts.mode() & 0o777 {
        _ if facts.is_symlink() => "it is a symbolic link".to_owned(),
        _ if !facts.is_dir() => "it is no directory".to_owned(),
        _ if facts.uid() != user => format!("it is user {}'s, and you are {user}", facts.uid()),
        mode if mode & 0o077 != 0 => format!("others may use it, too (its mode is {mode:03o})"),
        _ => return Ok(()),
    };
    Err(Error::State { path: folder.into(), why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn it_is_made_for_its_user_alone_and_found_again() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        let state = StateDirectory::at(&path).unwrap();
        assert_eq!(fs::metadata(state.path()).unwrap().mode() & 0o777, 0o700);
        assert_eq!(StateDirectory::at(&path).unwrap(), state);
    }

    #[test]
    fn what_another_could_have_put_there_is_refused() {
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
        for (path, why) in [(link, "symbolic link"), (file, "no directory"), (open, "others may")] {
            let error = StateDirectory::at(&path).unwrap_err();
            assert!(matches!(error, Error::State { .. }), "{error}");
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn one_in_a_folder_that_is_not_there_is_refused_and_says_what_to_do() {
        let error = StateDirectory::at("/nowhere/state").unwrap_err().to_string();
        assert!(error.contains("/nowhere/state") && error.contains("has to be there"), "{error}");
    }

    #[test]
    fn another_users_is_refused() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can make a directory another user's");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("state");
        StateDirectory::at(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        assert!(StateDirectory::at(&path).unwrap_err().to_string().contains("user 65534's"));
    }
}
