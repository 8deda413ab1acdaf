//! Where a file has data, and where holes.

use std::os::fd::BorrowedFd;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::span::Span;

/// Smaller files whose blocks cover their size are not searched. Larger ones may have blocks behind their end that make up
/// for holes.
const SEARCHED_BYTES_MIN: u64 = 256 << 10;

/// The extents of a file of `size_bytes`, ascending, as far as its file system tells; else one, all of it.
///
/// `allocated_bytes` (the blocks that `stat` counts) spares the search in small files. **The descriptor's position is changed**: what
/// reads from it afterwards names its offsets. Costs two system calls an extent, and touches no data.
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
            // No data from here on.
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::SPIPE) => return Ok(whole),
            Err(errno) => return Err(errno),
        };
        let end = match seek(file, SeekFrom::Hole(begin)) {
            Ok(end) => end.min(size_bytes),
            // Cut short since: what is left will be found out when it is read.
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
    fn holes_at_start_middle_and_end_are_no_extents() {
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
