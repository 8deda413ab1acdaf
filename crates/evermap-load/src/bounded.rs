//! Bounded reads of files named by the user. A device or a pipe may have no end.

use std::fs::File;
use std::io::{Error, Read, Result};
use std::path::Path;

/// Reads a whole file of at most `bytes_max` bytes.
///
/// # Errors
/// Errors of opening and reading, and an error that names the limit.
pub(crate) fn read_bounded(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(Error::other(format!(
            "the file is longer than {bytes_max} bytes, the maximum"
        )));
    }
    Ok(bytes)
}
