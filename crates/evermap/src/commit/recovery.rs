//! Recovery after a kill or a power failure: applies the log's commits to the object file.
//!
//! Every step is idempotent: after a crash during recovery, the same recovery runs again. The
//! object file must be flushed before the log is reset.

use std::path::Path;

use tracing::info;

use super::log::Log;
use super::overlay::Overlay;
use crate::error::Result;
use crate::format::{LOG_REQUIRED, LOG_REQUIRED_OFFSET, LOG_REQUIRED_OLD, PAGE_BYTES};
use crate::mutate::{Mutant, mutated};
use crate::storage::{File, Storage};

/// Applies the log's commits to the object file, makes the file durable and empties the log. The
/// log was flushed when it was opened, if it had commits that the file lacks. A log of an earlier
/// build gets this build's format.
pub(crate) fn recover(
    object: &dyn File,
    log: &mut Log,
    overlay: &Overlay,
    file_length: u64,
) -> Result<()> {
    if overlay.is_empty() && !log.is_old() {
        return Ok(());
    }
    info!(path = %object.path().display(), sequence = log.sequence(), "recovering");
    if object.length()? < file_length {
        object.allocate(0, file_length)?;
    }
    write_page_overlay(overlay, object)?;
    if !mutated(Mutant::ObjectNotFlushedInRecovery) {
        object.sync_data()?;
    }
    renew_code(object, log)?;
    log.reset()
}

/// Replaces an earlier build's code for "required" by this build's, durably, before that build's
/// log is emptied and gets this build's format. Later commits belong to an object for which the old
/// code is damage, and may reach page 0 in part.
pub(super) fn renew_code(object: &dyn File, log: &Log) -> Result<()> {
    match log.is_old() && !mutated(Mutant::OldCodeKept) {
        true => set_log_required(object, true),
        false => Ok(()),
    }
}

/// Writes an overlay to the object file. Pages of which only some lines are known are read from the
/// same file first.
pub(super) fn write_page_overlay(overlay: &Overlay, object: &dyn File) -> Result<()> {
    overlay.write_to(object, |number, page| {
        let got = object.read_at(page, number * PAGE_BYTES)?;
        page[got..].fill(0);
        Ok(())
    })
}

/// Sets or clears the flag that the object needs its log, durably.
pub(crate) fn set_log_required(object: &dyn File, required: bool) -> Result<()> {
    let missing =
        if required { Mutant::LogRequiredNotFlushed } else { Mutant::LogRequiredClearedUnflushed };
    let flag = code_of(required);
    match mutated(missing) {
        true => object.write_at(&flag, LOG_REQUIRED_OFFSET),
        false => object.write_at_durable(&flag, LOG_REQUIRED_OFFSET),
    }
}

/// Sets the flag that the object needs its log. Durable with the file's next flush.
pub(super) fn announce_log(object: &dyn File) -> Result<()> {
    object.write_at(&code_of(true), LOG_REQUIRED_OFFSET)
}

fn code_of(required: bool) -> [u8; 4] {
    let code = if mutated(Mutant::EarlierFormat) { LOG_REQUIRED_OLD } else { LOG_REQUIRED };
    if required { code.to_le_bytes() } else { [0; 4] }
}

/// Releases a log with which the object file has caught up durably: readers do not open it from now
/// on. Removes it unless `keep` is set. The removal need not be durable: once the flag is cleared,
/// a remaining log is ignored.
pub(crate) fn release_log(
    storage: &dyn Storage,
    object: &dyn File,
    log_path: &Path,
    keep: bool,
) -> Result<()> {
    let early = mutated(Mutant::LogRequiredClearedLate);
    if early && !keep {
        storage.remove(log_path)?;
    }
    set_log_required(object, false)?;
    if early || keep { Ok(()) } else { storage.remove(log_path) }
}

/// Returns true if page 0 of the file has these newest lines of a log. Ignores the flag for the
/// log.
pub(super) fn has_page_zero_of(object: &dyn File, overlay: &Overlay) -> Result<bool> {
    let mut stored = [0; PAGE_BYTES as usize];
    object.read_at(&mut stored, 0)?;
    let mut page = stored;
    overlay.patch(0, &mut page);
    let flag = LOG_REQUIRED_OFFSET as usize..LOG_REQUIRED_OFFSET as usize + size_of::<u32>();
    page[flag.clone()].copy_from_slice(&stored[flag]);
    Ok(page == stored)
}
