//! Files that move to a tier that lasts, and leave a link.

mod back;
mod copy;
mod going;
mod journal;
mod recover;
mod site;
mod verify;

use std::path::{Path, PathBuf};

use rustix::io::Errno;

pub use back::Keep;
pub(super) use back::{back, commit};
pub(super) use going::go;
pub use journal::Journal;
pub use recover::{Recovered, recover};
pub(super) use verify::verify;

use super::copying::Source;
use super::error::{Error, Result};
use super::openers::Openers;
use super::slot::parent;
use super::watch::Watch;
use crate::sys::lease::Kept;

/// More links in a row than the kernel follows.
const LINKS_MAX: u32 = 40;

/// Takes a lease, or says who has the file open.
fn lease_or_say_who(source: &mut Source, kept: Kept) -> Result<()> {
    match source.lease(kept) {
        Ok(()) => Ok(()),
        Err(Errno::AGAIN) => {
            let path = source.path.clone();
            let found = rustix::fs::fstat(&source.file).map_err(Error::io("look at", &path))?;
            let file = (found.st_dev, found.st_ino);
            Err(Error::InUse { path, by: Openers::look(&[file]).of(file).to_vec() })
        }
        Err(errno) => Err(Error::io("take a lease on", &source.path)(errno)),
    }
}

/// The path that a journal knows a file by: links are followed, but the one that has taken the file's place.
pub(super) fn path_in(journal: &Journal, path: &Path, watch: &Watch) -> Result<Option<PathBuf>> {
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
