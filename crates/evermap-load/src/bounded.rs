//! Reading files that a user names: with a bound, as a device or a pipe has no end.

use std::fs::File;
use std::io::{Error, Read, Result};
use std::path::Path;

/// Reads a whole file of at most `bytes_max` bytes.
///
/// # Errors
/// Those of opening and reading, and one that names the bound.
pub(crate) fn read_bounded(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(Error::other(format!("it is longer than {bytes_max} bytes, the most allowed")));
    }
    Ok(bytes)
}
