//! Page cache contents at the start of a step.
//!
//! *Warm*: the source was just read. *Cold*: everything was written, then everything was dropped
//! (`/proc/sys/vm/drop_caches`, which needs root), and then each program was started once on a file
//! of one byte, so that it and its libraries are cached again. The host of a virtual machine may
//! still have the disk's blocks in its own memory.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use memmap2::MmapOptions;
use rustix::fs::{Advice, fadvise};

use crate::Outcome;

const DROP: &str = "/proc/sys/vm/drop_caches";
const BLOCK_BYTES: usize = 1 << 20;

/// Returns true if this process can empty the page cache.
pub fn can_drop() -> bool {
    rustix::process::geteuid().is_root() && File::options().write(true).open(DROP).is_ok()
}

/// Empties the page cache and the caches of directory entries and inodes.
pub fn drop_all() -> Outcome {
    rustix::fs::sync();
    std::fs::write(DROP, "3").map_err(|error| format!("{DROP}: {error}"))?;
    Ok(())
}

/// Drops one file's pages.
pub fn drop_file(path: &Path) -> Outcome {
    let file = File::open(path)?;
    file.sync_all()?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    Ok(())
}

/// Reads a whole file, or all files of a folder, into the page cache. Does not map the file:
/// mapping would fill holes of a file in memory.
pub fn fill(path: &Path) -> Outcome {
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            fill(&entry?.path())?;
        }
        return Ok(());
    }
    let mut file = File::open(path)?;
    let mut block = vec![0; BLOCK_BYTES];
    while file.read(&mut block)? > 0 {}
    Ok(())
}

/// Returns the fraction of a file that is in the page cache.
pub fn resident_part(path: &Path) -> Outcome<f64> {
    let (resident, all) = resident_pages(&File::open(path)?)?;
    Ok(resident as f64 / all.max(1) as f64)
}

/// Returns the pages of a file that are in the page cache, and all its pages.
pub fn resident_pages(file: &File) -> Outcome<(usize, usize)> {
    if file.metadata()?.len() == 0 {
        return Ok((0, 0));
    }
    // Reads with `RWF_NOWAIT` would start read-ahead; `mincore` on a map does not.
    let map = MmapOptions::new().map_raw_read_only(file)?;
    let mut states = vec![0u8; map.len().div_ceil(rustix::param::page_size())];
    // SAFETY: the range is mapped, and `states` has a byte for each of its pages.
    let result = unsafe { libc::mincore(map.as_mut_ptr().cast(), map.len(), states.as_mut_ptr()) };
    if result != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok((states.iter().filter(|state| **state & 1 == 1).count(), states.len()))
}

/// Returns true if two files have the same bytes.
pub fn same_bytes(one: &Path, other: &Path) -> Outcome<bool> {
    let files = [File::open(one)?, File::open(other)?];
    if files[0].metadata()?.len() != files[1].metadata()?.len() {
        return Ok(false);
    }
    let mut blocks = [vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]];
    let mut offset_bytes = 0;
    loop {
        let mut filled = [0; 2];
        for ((file, block), filled) in files.iter().zip(&mut blocks).zip(&mut filled) {
            *filled = read_block(file, block, offset_bytes)?;
        }
        if blocks[0][..filled[0]] != blocks[1][..filled[1]] {
            return Ok(false);
        }
        if filled[0] == 0 {
            return Ok(true);
        }
        offset_bytes += filled[0] as u64;
    }
}

fn read_block(file: &File, block: &mut [u8], offset_bytes: u64) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match file.read_at(&mut block[filled..], offset_bytes + filled as u64)? {
            0 => break,
            more => filled += more,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn same_bytes_detects_one_changed_or_added_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut bytes = vec![7u8; BLOCK_BYTES + 3];
        std::fs::write(path("a"), &bytes).unwrap();
        std::fs::write(path("b"), &bytes).unwrap();
        assert!(same_bytes(&path("a"), &path("b")).unwrap());
        bytes[BLOCK_BYTES + 1] = 8;
        std::fs::write(path("b"), &bytes).unwrap();
        assert!(!same_bytes(&path("a"), &path("b")).unwrap());
        bytes[BLOCK_BYTES + 1] = 7;
        bytes.push(7);
        std::fs::write(path("b"), &bytes).unwrap();
        assert!(!same_bytes(&path("a"), &path("b")).unwrap());
    }

    #[test]
    fn a_file_that_was_read_is_resident() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![1; 1 << 20]).unwrap();
        fill(file.path()).unwrap();
        assert_eq!(resident_part(file.path()).unwrap(), 1.0);
    }
}
