//! What follows a kill or a power cut: the log's commits are applied to the object file.
//!
//! Idempotent at every step: a crash in here is followed by the same recovery again.

use tracing::info;

use super::diff::Page;
use super::log::Log;
use super::record::{Commit, for_each_run};
use crate::error::Result;
use crate::format::PAGE_BYTES;
use crate::storage::File;

/// Applies `commits` (all that `log` holds) to the object file, makes it durable and empties the
/// log. Page 0 is written last, so that its sequence number never runs ahead of the pages.
pub(crate) fn recover(object: &dyn File, log: &mut Log, commits: &[Commit]) -> Result<()> {
    let Some(last) = commits.last() else {
        return Ok(());
    };
    info!(
        path = %object.path().display(),
        commits = commits.len(),
        sequence = last.sequence,
        "recovering"
    );
    if object.length()? < last.file_length {
        object.allocate(0, last.file_length)?;
    }
    for commit in commits {
        apply(object, commit, |page| page != 0)?;
    }
    for commit in commits {
        apply(object, commit, |page| page == 0)?;
    }
    object.sync_data()?;
    log.reset()
}

fn apply(object: &dyn File, commit: &Commit, wanted: impl Fn(u64) -> bool) -> Result<()> {
    for (page, mask, lines) in commit.pages().filter(|(page, ..)| wanted(*page)) {
        let mut result = Ok(());
        for_each_run(mask, lines, |at, bytes| {
            if result.is_ok() {
                result = object.write_at(bytes, page * PAGE_BYTES + at as u64);
            }
        });
        result?;
    }
    Ok(())
}

/// Applies the commits' lines for one page to a copy of it.
pub(crate) fn patch_page(commits: &[Commit], number: u64, page: &mut Page) {
    for commit in commits {
        for (_, mask, lines) in commit.pages().filter(|(page, ..)| *page == number) {
            for_each_run(mask, lines, |at, bytes| {
                page[at..at + bytes.len()].copy_from_slice(bytes)
            });
        }
    }
}
