//! Files that move to a persistent tier and leave a symbolic link.

mod back;
mod copy;
mod journal;
mod placing;
mod recover;
mod site;
#[cfg(test)]
mod tests;
mod verify;

use std::path::{Path, PathBuf};

use rustix::io::Errno;

pub use back::Keep;
pub(super) use back::{back, commit};
pub use journal::Journal;
pub(super) use placing::place;
pub use recover::{Recovered, recover};
pub(super) use verify::verify;

use super::copying::Source;
use super::error::{Error, Result};
use super::openers::Openers;
use super::slot::parent;
use super::watch::Watch;
use crate::sys::lease::LeaseKind;

/// Maximum number of links to follow, as in the kernel.
const LINKS_MAX: u32 = 40;

/// Takes a lease. If another process has the file open, returns [`Error::InUse`] with the
/// processes.
fn lease_or_in_use(source: &mut Source, kind: LeaseKind) -> Result<()> {
    match source.lease(kind) {
        Ok(()) => Ok(()),
        Err(Errno::AGAIN) => {
            let path = source.path.clone();
            let found = rustix::fs::fstat(&source.file).map_err(Error::io("inspect", &path))?;
            let file = (found.st_dev, found.st_ino);
            Err(Error::InUse { path, by: Openers::scan(&[file]).of(file).to_vec() })
        }
        Err(errno) => Err(Error::io("take a lease on", &source.path)(errno)),
    }
}

/// Returns the path under which a journal knows a file. Follows symbolic links, except for the one
/// that replaced the file.
pub(super) fn known_path(journal: &Journal, path: &Path, watch: &Watch) -> Result<Option<PathBuf>> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        let Some(name) = path.file_name() else { return Ok(None) };
        let Ok(directory) = std::fs::canonicalize(parent(&path)) else { return Ok(None) };
        let known = directory.join(name);
        if journal.find_record(&known, watch)?.is_some() {
            return Ok(Some(known));
        }
        match std::fs::read_link(&known) {
            Ok(target) => path = directory.join(target),
            Err(_) => return Ok(None),
        }
    }
    Ok(None)
}
