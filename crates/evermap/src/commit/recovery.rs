//! What follows a kill or a power cut: the log's commits are applied to the object file.
//!
//! Idempotent at every step: a crash in here is followed by the same recovery again.

use std::path::Path;

use tracing::info;

use super::log::Log;
use super::overlay::Overlay;
use crate::error::Result;
use crate::format::{LOG_REQUIRED_OFFSET, PAGE_BYTES};
use crate::mutate::{Mutant, mutated};
use crate::storage::{File, Storage};

/// Applies what `log` holds to the object file, makes it durable and empties the log. The log was
/// flushed when it was opened, if it had anything that the file lacks.
pub(crate) fn recover(
    object: &dyn File,
    log: &mut Log,
    overlay: &Overlay,
    file_length: u64,
) -> Result<()> {
    if overlay.is_empty() {
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
    log.reset()
}

/// Writes an overlay over pages that are read from the same file where only a part of them is
/// known.
pub(super) fn write_page_overlay(overlay: &Overlay, object: &dyn File) -> Result<()> {
    overlay.write_to(object, |number, page| {
        let got = object.read_at(page, number * PAGE_BYTES)?;
        page[got..].fill(0);
        Ok(())
    })
}

/// Switches the flag that says whether the log belongs to the object, durably.
pub(crate) fn set_log_required(object: &dyn File, required: bool) -> Result<()> {
    let missing =
        if required { Mutant::LogRequiredNotFlushed } else { Mutant::LogRequiredClearedUnflushed };
    let flag = u32::from(required).to_le_bytes();
    match mutated(missing) {
        true => object.write_at(&flag, LOG_REQUIRED_OFFSET),
        false => object.write_at_durable(&flag, LOG_REQUIRED_OFFSET),
    }
}

/// Takes a log away that the object file has caught up with durably. The removal itself need not
/// be durable: once the flag is cleared, a log that is still there is stale and is ignored.
pub(crate) fn remove_log(storage: &dyn Storage, object: &dyn File, log_path: &Path) -> Result<()> {
    if mutated(Mutant::LogRequiredClearedLate) {
        storage.remove(log_path)?;
    }
    set_log_required(object, false)?;
    if mutated(Mutant::LogRequiredClearedLate) { Ok(()) } else { storage.remove(log_path) }
}
