//! Finds damage of a stored document before it is used.

use evermap::{Error, Snapshot};
use evermap_dom::Document;

/// Largest document that each use compares with its checksums. With its page faults the comparison
/// costs some 1 us per page of 4 KiB: up to 0.3 ms, and 15 to 20 ms for a document of 64 MB.
const VERIFIED_BYTES_MAX: u64 = 1 << 20;

/// Compares a document of up to 1 MiB with its checksums.
///
/// # Errors
/// `Damaged`.
pub fn check(document: &Snapshot<Document>) -> Result<(), Error> {
    match document.block_bytes() <= VERIFIED_BYTES_MAX {
        true => check_all(document),
        false => Ok(()),
    }
}

/// Compares a document of any size with its checksums.
///
/// # Errors
/// `Damaged`.
pub fn check_all(document: &Snapshot<Document>) -> Result<(), Error> {
    document.verify_root()?;
    document.verify_bytes(document.block()).map(drop)
}
