//! Tools that read a store by its files see one store.
//!
//! `restore --force`, a rebase and `mv` put another directory at the store's path. A tool enters the
//! directory that is there when it begins and looks every name up in it. If the store was removed
//! meanwhile, files are missing: then the tool begins again, in the directory that is there now.

use std::path::Path;

use super::check::CheckOptions;
use crate::api::was_replaced;
use crate::error::Result;

/// How often a tool begins. Each further time needs another process that replaced the store.
const ATTEMPTS_MAX: usize = 100;

/// Runs a tool with options that lead to the files of one directory. Runs it again if `is_good` refuses
/// its result, or it fails, and the path leads to another directory by then.
pub(super) fn in_one_store<R>(
    directory: &Path,
    options: &CheckOptions,
    is_good: impl Fn(&R) -> bool,
    mut run: impl FnMut(&CheckOptions) -> Result<R>,
) -> Result<R> {
    for _ in 1..ATTEMPTS_MAX {
        // The tool says what is wrong with a directory that cannot be entered.
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
