//! Bounded reads of files named by the user. A device or a pipe may have no end.

use std::fs::File;
use std::io::{Error, Read, Result};
use std::path::Path;

/// Reads a whole file of at most `bytes_max` bytes.
///
/// # Errors
/// Errors of opening and reading, and an error that names the limit.
pub(crate) fn read_bounded(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let too_long =
        || Error::other(format!("it is longer than {bytes_max} bytes, the most allowed"));
    let file = File::open(path)?;
    if file.metadata()?.len() > bytes_max {
        return Err(too_long());
    }
    // Counted again: a device or a pipe has no length, and a file may grow.
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(too_long());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_file_is_read_to_its_end_or_to_the_bound() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "seven b").unwrap();
        assert_eq!(read_bounded(&path, 7).unwrap(), b"seven b");
        for (path, bytes_max) in [(&*path, 6), (Path::new("/dev/zero"), 6)] {
            let error = read_bounded(path, bytes_max).unwrap_err().to_string();
            assert_eq!(error, "it is longer than 6 bytes, the most allowed");
        }
    }
}
