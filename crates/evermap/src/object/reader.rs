//! One commit of an object, mapped for reading.
//!
//! A reader never writes to the store: what the log holds beyond the object file is patched into
//! its own private pages. So it works without write permission and on a read-only mount, and costs
//! the same for any size of object.

use std::sync::Arc;
use std::time::Duration;

use super::superblock::{self, Loaded, LogSource};
use super::{CONTENT_BYTE, Environment, Place, lock_byte};
use crate::address::{Mapping, Sharing};
use crate::commit::{Commit, LogPosition, for_each_run};
use crate::error::{Error, Result};
use crate::format::{PAGE_BYTES, Superblock};
use crate::storage::{File, LockKind, OpenMode};

/// A mapped commit. Holds the content lock shared while it lives.
#[derive(Debug)]
pub(crate) struct Reader {
    superblock: Box<Superblock>,
    log_position: LogPosition,
    _mappings: Vec<Mapping>,
    file: Arc<dyn File>,
}

impl Reader {
    /// Maps the last commit.
    pub(crate) fn open(
        environment: &Environment,
        place: &Place,
        patience: Duration,
    ) -> Result<Reader> {
        let file = environment.storage.open(&place.path, OpenMode::Read)?;
        lock_byte(&*file, LockKind::Shared, CONTENT_BYTE, patience, &place.called)?;
        let log = LogSource::Path(&*environment.storage, &place.log_path, OpenMode::Read);
        Reader::from_locked(environment, place, file, log)
    }

    /// The same for a file that is locked already.
    pub(crate) fn from_locked(
        environment: &Environment,
        place: &Place,
        file: Arc<dyn File>,
        log: LogSource<'_>,
    ) -> Result<Reader> {
        let Loaded { superblock, log, commits } = superblock::read(&*file, log, &place.identity)?;
        let mut mappings = Vec::new();
        for region in superblock.regions() {
            let mapping = environment.space.claim(region.base, region.capacity)?;
            let sharing =
                if commits.is_empty() { Sharing::ReadOnly } else { Sharing::PrivateWritable };
            mapping.map(&*file, region.base, region.length, region.file_offset, sharing)?;
            mappings.push(mapping);
        }
        if !commits.is_empty() {
            patch(&superblock, &commits, &file)?;
            for (region, mapping) in superblock.regions().iter().zip(&mappings) {
                mapping.protect_read_only(region.base, region.length)?;
            }
        }
        let log_position = log.as_ref().map(|l| l.position()).unwrap_or_default();
        Ok(Reader { superblock, log_position, _mappings: mappings, file })
    }

    /// The commit's superblock.
    pub(crate) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Where the log stood.
    pub(crate) fn log_position(&self) -> LogPosition {
        self.log_position
    }

    /// The object file.
    pub(crate) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }
}

/// Writes the log's lines over the private pages.
fn patch(superblock: &Superblock, commits: &[Commit], file: &Arc<dyn File>) -> Result<()> {
    for commit in commits {
        for (page, mask, lines) in commit.pages() {
            let offset = page.saturating_mul(PAGE_BYTES);
            let region = superblock.regions().iter().find(|r| {
                offset >= r.file_offset && offset - r.file_offset <= r.length - PAGE_BYTES
            });
            // A page that no region has any more: a later commit gave it up.
            let Some(region) = region else { continue };
            if file.length()? < region.file_offset + region.length {
                return Err(Error::Damaged {
                    path: file.path().to_path_buf(),
                    what: "the file's length",
                    found: "less than its log speaks of".to_string(),
                    expected: format!("{} bytes", region.file_offset + region.length),
                });
            }
            let address = region.base + (offset - region.file_offset);
            for_each_run(mask, lines, |at, bytes| {
                let to = (address + at as u64) as *mut u8;
                // SAFETY: the page lies in the region, which `from_locked` mapped writable and
                // private; no reference into it exists yet. A run ends inside its page.
                unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            });
        }
    }
    Ok(())
}
