//! Ensures that a tool which reads a store's files sees one store only.
//!
//! `restore --force`, a rebase and `mv` put another directory at the store's path. A tool opens the
//! directory once and looks up every name in it. If another process removes that store, files are
//! missing; then the tool starts again with the directory that is now at the path.

use std::path::Path;

use super::check::CheckOptions;
use crate::api::was_replaced;
use crate::error::Result;

/// Attempts of a tool. Each further attempt means that another process replaced the store.
const ATTEMPTS_MAX: usize = 100;

/// Runs a tool with options whose storage is bound to one directory. Runs it again if it fails or
/// `is_good` rejects its result, and the path leads to another directory by then.
pub(super) fn in_one_store<R>(
    directory: &Path,
    options: &CheckOptions,
    is_good: impl Fn(&R) -> bool,
    mut run: impl FnMut(&CheckOptions) -> Result<R>,
) -> Result<R> {
    for _ in 1..ATTEMPTS_MAX {
        // If the directory cannot be opened, the tool reports the cause.
        let Ok(Some(entered)) = options.storage.enter(directory) else { break };
        let inside = CheckOptions { storage: entered.clone(), ..options.clone() };
        let result = run(&inside);
        let is_done = result.as_ref().is_ok_and(&is_good);
        if is_done || !was_replaced(&*options.storage, Some(&*entered), directory) {
            return result;
        }
    }
    run(options)
}
