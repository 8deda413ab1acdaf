//! What the device can do: `child rate FILE` reads the file past the page cache, 16 reads of 2 MiB under way at once, into memory
//! that it uses again and again, and prints bytes a second. Nothing is touched, and no memory is new after the first round of reads.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

use common::Outcome;
use io_uring::{IoUring, opcode, types};

const DEPTH: usize = 16;
const READ_BYTES: usize = 2 << 20;

pub fn print(path: &Path) -> Outcome {
    println!("{}", measure(path)?);
    Ok(())
}

/// Bytes a second.
pub fn measure(path: &Path) -> Outcome<f64> {
    let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(path)?;
    let bytes = file.metadata()?.len();
    let memory = Buffers::new()?;
    let mut ring = IoUring::new(DEPTH as u32)?;
    let (mut asked, mut read) = (0, 0);
    let mut free: Vec<usize> = (0..DEPTH).collect();
    let start = Instant::now();
    while read < bytes {
        while asked < bytes
            && let Some(slot) = free.pop()
        {
            let part = READ_BYTES.min(usize::try_from(bytes - asked)?);
            let entry =
                opcode::Read::new(types::Fd(file.as_raw_fd()), memory.slot(slot), part as u32);
            let entry = entry.offset(asked).build().user_data(slot as u64);
            // SAFETY: the slot is nobody else's until its read is done, and never freed; the file is open until the ring is gone.
            unsafe { ring.submission().push(&entry) }?;
            asked += part as u64;
        }
        ring.submit_and_wait(1)?;
        for done in ring.completion() {
            match u64::try_from(done.result()) {
                Ok(count) if count > 0 => read += count,
                Ok(_) => return Err("the file is shorter than it was".into()),
                Err(_) => return Err(std::io::Error::from_raw_os_error(-done.result()).into()),
            }
            free.push(done.user_data() as usize);
        }
    }
    Ok(bytes as f64 / start.elapsed().as_secs_f64())
}

/// Memory for all reads that are under way. It stays until the process ends: whatever goes wrong, the kernel may still write to it.
struct Buffers {
    start: *mut u8,
}

impl Buffers {
    fn new() -> Outcome<Buffers> {
        let layout = std::alloc::Layout::from_size_align(DEPTH * READ_BYTES, READ_BYTES)?;
        // SAFETY: the layout has a size.
        let start = unsafe { std::alloc::alloc(layout) };
        if start.is_null() {
            return Err("no memory to read into".into());
        }
        // Whole pieces for the device, as an image's. Where there are no huge pages it is small ones.
        // SAFETY: advice about all of the memory that was just got.
        unsafe { libc::madvise(start.cast(), DEPTH * READ_BYTES, libc::MADV_HUGEPAGE) };
        // Each page is there before the first read.
        // SAFETY: all of the memory that was just got.
        unsafe { start.write_bytes(1, DEPTH * READ_BYTES) };
        Ok(Buffers { start })
    }

    fn slot(&self, slot: usize) -> *mut u8 {
        self.start.wrapping_add(slot * READ_BYTES)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_file_has_a_rate_and_one_that_is_not_there_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1; 40 << 20]).unwrap();
        match measure(&path) {
            Ok(rate) => assert!(rate > 0.0 && rate.is_finite()),
            Err(error) => eprintln!("skipped: no direct reads here: {error}"),
        }
        assert!(measure(&folder.path().join("other")).is_err());
    }
}
