//! Data extents and holes of a file.

use std::os::fd::BorrowedFd;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::span::Span;

/// Files up to this size are assumed to have no holes if their blocks cover their size. Larger
/// files are always searched, because blocks past the end of the file can hide holes.
const SEARCHED_BYTES_MIN: u64 = 256 << 10;

/// Returns the data extents of a file of `size_bytes`, in ascending order. Returns one extent for
/// the whole file if the file system does not report holes.
///
/// `allocated_bytes` (the blocks counted by `stat`) avoids the search for small files. **Changes
/// the descriptor's position**, so later reads must pass their offsets. Costs two system calls per
/// extent and reads no data.
///
/// ```
/// use std::os::{fd::AsFd, unix::fs::FileExt};
/// use evermap_observe::{Span, extents};
/// let file = tempfile::tempfile()?;
/// file.write_all_at(b"map", 0)?;
/// assert_eq!(extents(file.as_fd(), 3, 4096)?, [Span::new(0, 3)]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn extents(
    file: BorrowedFd<'_>,
    size_bytes: u64,
    allocated_bytes: u64,
) -> Result<Vec<Span>, Errno> {
    let whole = vec![Span::new(0, size_bytes)];
    if size_bytes == 0 {
        return Ok(Vec::new());
    }
    if size_bytes <= SEARCHED_BYTES_MIN && allocated_bytes >= size_bytes {
        return Ok(whole);
    }
    let mut found: Vec<Span> = Vec::new();
    let mut at = 0;
    while at < size_bytes {
        let begin = match seek(file, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            // No data after `at`.
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::SPIPE) => return Ok(whole),
            Err(errno) => return Err(errno),
        };
        let end = match seek(file, SeekFrom::Hole(begin)) {
            Ok(end) => end.min(size_bytes),
            // The file was truncated in the meantime. The caller's reads will notice.
            Err(Errno::NXIO) => size_bytes,
            Err(errno) => return Err(errno),
        };
        if begin >= size_bytes || end <= begin {
            break;
        }
        found.push(Span::new(begin, end));
        at = end;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::{FileExt, MetadataExt};

    fn extents_of(file: &std::fs::File) -> Vec<Span> {
        let metadata = file.metadata().unwrap();
        extents(file.as_fd(), metadata.len(), metadata.blocks() * 512).unwrap()
    }

    #[test]
    fn holes_at_start_middle_and_end_are_not_extents() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 << 20).unwrap();
        assert_eq!(extents_of(&file), []);
        file.write_all_at(&[1; 4096], 1 << 20).unwrap();
        file.write_all_at(&[1; 4096], 2 << 20).unwrap();
        let at = |begin: u64| Span::new(begin, begin + 4096);
        assert_eq!(extents_of(&file), [at(1 << 20), at(2 << 20)]);
    }

    #[test]
    fn a_file_without_holes_is_one_extent() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 5000], 0).unwrap();
        assert_eq!(extents_of(&file), [Span::new(0, 5000)]);
    }
}
