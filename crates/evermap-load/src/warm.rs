//! Warms existing mappings: reads file pages into the page cache and enters them into the process's
//! page tables.

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use evermap_observe::FileSystem;
use rustix::io::Errno;

use crate::sys::HUGE_PAGE_BYTES;
use crate::sys::advice::{SafeAdvice, advise};
use crate::sys::{page_bytes, thread};

/// Number of pieces read ahead of the current one.
const AHEAD: usize = 8;
/// Maximum number of threads. Mapping cached pages is processor work, and more threads contend for
/// locks.
const THREADS_MAX: usize = 4;
/// Number of threads for file systems that decompress in the reading thread.
const THREADS_DECOMPRESSING: usize = 8;

/// Mapped part of a file, shared or private, to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappedPart {
    /// Memory address, a multiple of the page size.
    pub address: usize,
    /// File offset, a multiple of the page size.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub bytes: usize,
}

/// Warms mapped parts of a file, so later reads wait for no disk and take no fault unless memory is
/// reclaimed. Reads missing pages into the page cache, several pieces of 2 MiB ahead, and maps the
/// pages with several threads. Changes no contents. Parts that are not mapped are only read into
/// the cache.
///
/// # Errors
///
/// Fails if the disk fails, or if a part extends beyond the end of the file.
///
/// ```
/// # use std::os::fd::AsFd;
/// use evermap_load::{MappedPart, warm};
///
/// # let file = tempfile::tempfile()?;
/// # file.set_len(1 << 20)?;
/// // Nothing is mapped here: the file is only read into the cache.
/// warm(file.as_fd(), &[MappedPart { address: 0, offset_bytes: 0, bytes: 1 << 20 }])?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn warm(file: BorrowedFd<'_>, parts: &[MappedPart]) -> std::io::Result<()> {
    let pieces: Vec<MappedPart> = parts.iter().flat_map(pieces).collect();
    let warming = Warming {
        file,
        pieces: &pieces,
        next: AtomicUsize::new(0),
        advised: AtomicUsize::new(0),
        failure: OnceLock::new(),
    };
    let decompresses =
        FileSystem::of(file).is_ok_and(|file_system| file_system.is_compressed_read_only());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if decompresses { THREADS_DECOMPRESSING } else { processors.min(THREADS_MAX) };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(pieces.len()) {
            let builder = std::thread::Builder::new().name("evermap-warm".into());
            if thread::without_signals(|| builder.spawn_scoped(scope, || warming.work())).is_err() {
                break;
            }
        }
        warming.work();
    });
    warming.failure.into_inner().map_or(Ok(()), |errno: Errno| Err(errno.into()))
}

fn pieces(part: &MappedPart) -> impl Iterator<Item = MappedPart> + use<> {
    let part = *part;
    (0..part.bytes).step_by(HUGE_PAGE_BYTES).map(move |at| MappedPart {
        address: part.address + at,
        offset_bytes: part.offset_bytes + at as u64,
        bytes: (part.bytes - at).min(HUGE_PAGE_BYTES),
    })
}

struct Warming<'w> {
    file: BorrowedFd<'w>,
    pieces: &'w [MappedPart],
    /// Index of the next piece to map.
    next: AtomicUsize,
    /// Index of the next piece to read ahead.
    advised: AtomicUsize,
    failure: OnceLock<Errno>,
}

impl Warming<'_> {
    fn work(&self) {
        while self.failure.get().is_none() {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(piece) = self.pieces.get(number) else { return };
            self.read_ahead(number + AHEAD);
            if let Err(errno) = self.map(piece) {
                let _ = self.failure.set(errno);
            }
        }
    }

    /// Starts reading the pieces before number `to` that are not cached.
    fn read_ahead(&self, to: usize) {
        while self.advised.load(Ordering::Relaxed) < to {
            let number = self.advised.fetch_add(1, Ordering::Relaxed);
            let Some(piece) = self.pieces.get(number) else { return };
            let bytes = piece.bytes as u64;
            let is_present = evermap_observe::residency_of(self.file, piece.offset_bytes, bytes)
                .is_some_and(|residency| residency.resident_bytes >= bytes);
            if !is_present {
                let will_need = rustix::fs::Advice::WillNeed;
                let bytes = std::num::NonZeroU64::new(bytes);
                // Best effort: mapping reads the pages otherwise.
                let _ = rustix::fs::fadvise(self.file, piece.offset_bytes, bytes, will_need);
            }
        }
    }

    fn map(&self, piece: &MappedPart) -> Result<(), Errno> {
        let bytes = piece.bytes.next_multiple_of(page_bytes());
        match advise(piece.address, bytes, SafeAdvice::PopulateRead) {
            Ok(()) => Ok(()),
            // This thread's protection key forbids the access, nothing is mapped, the kernel is
            // older than 5.14, or the file is unreadable. Only the last is an error. Reading the
            // file finds out.
            Err(_) => self.read(piece),
        }
    }

    fn read(&self, piece: &MappedPart) -> Result<(), Errno> {
        let mut buffer = vec![0; 64 << 10];
        let mut done = 0;
        while done < piece.bytes {
            let wanted = buffer.len().min(piece.bytes - done);
            let offset = piece.offset_bytes + done as u64;
            match rustix::io::pread(self.file, &mut buffer[..wanted], offset) {
                Ok(0) => return Err(Errno::IO),
                Ok(read_bytes) => done += read_bytes,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::region::{Backing, Region};
    use crate::sys::pages::pages;
    use std::os::fd::AsFd;

    #[test]
    fn warm_pages_are_mapped_and_unchanged() {
        let file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..5 << 20).map(|at| (at >> 12) as u8).collect();
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
        let region = Region::of_file(file.as_fd(), 0, bytes.len(), Backing::FileReadOnly).unwrap();
        let address = region.address() as usize;
        let part = MappedPart { address, offset_bytes: 0, bytes: bytes.len() };
        warm(file.as_fd(), &[part]).unwrap();
        let mapped: usize = pages(address, region.bytes()).unwrap().iter().map(|p| p.bytes).sum();
        assert_eq!(mapped, 5 << 20);
        // SAFETY: the mapping lives, and the file does not change.
        assert!(unsafe { std::slice::from_raw_parts(region.address(), bytes.len()) } == bytes);
    }

    #[test]
    fn unreadable_parts_are_an_error_and_unmapped_parts_are_not() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let part = |bytes| MappedPart { address: 0, offset_bytes: 0, bytes };
        warm(file.as_fd(), &[part(1 << 20)]).unwrap();
        let error = warm(file.as_fd(), &[part(3 << 20)]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        warm(file.as_fd(), &[]).unwrap();
    }
}
