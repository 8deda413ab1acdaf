//! Measures the device's rate: `child rate FILE` reads the file with direct I/O, 16 reads of 2 MiB
//! in flight, into buffers that are reused, and prints bytes a second. It touches no data, and
//! allocates no memory after the first round of reads.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

use harness::Outcome;
use io_uring::{IoUring, opcode, types};

const DEPTH: usize = 16;
const READ_BYTES: usize = 2 << 20;

pub fn print(path: &Path) -> Outcome {
    println!("{}", measure(path)?);
    Ok(())
}

/// Returns bytes a second.
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
            // SAFETY: only this read uses the slot until it completes; the slot is
            // never freed, and the file is open as long as the ring lives.
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

/// Buffers of all reads in flight. They stay until the process ends, because the kernel may write
/// to them even after an error.
struct Buffers {
    start: *mut u8,
}

impl Buffers {
    fn new() -> Outcome<Buffers> {
        let layout = std::alloc::Layout::from_size_align(DEPTH * READ_BYTES, READ_BYTES)?;
        // SAFETY: the layout's size is not zero.
        let start = unsafe { std::alloc::alloc(layout) };
        if start.is_null() {
            return Err("out of memory for read buffers".into());
        }
        // Huge pages give the device contiguous memory, as an image has. Otherwise the
        // kernel uses small pages.
        // SAFETY: the advice covers exactly the new allocation.
        unsafe { libc::madvise(start.cast(), DEPTH * READ_BYTES, libc::MADV_HUGEPAGE) };
        // Faults in each page before the first read.
        // SAFETY: the write covers exactly the new allocation.
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
    fn a_file_has_a_rate_and_a_missing_file_is_an_error() {
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
