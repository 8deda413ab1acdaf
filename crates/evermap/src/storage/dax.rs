//! Files whose pages are storage themselves (DAX): the processor writes them, the kernel does not.
//!
//! A [`DaxFile`] is a [`DiskFile`] whose writes are non-temporal stores through a mapping of the
//! file made with `MAP_SYNC`. Such a mapping promises that the metadata of a page that can be
//! stored to is durable already, so bytes are durable once the processor's write buffers are
//! drained: a store fence is the whole flush. **Every write is durable when it returns**, and a
//! commit costs no system call but the length of the file.
//!
//! What does not go through this mapping is the kernel's to flush, and `sync_data` asks it:
//! lengths, reservations, and the stores into fresh memory that the address layer maps shared.
//! Those are ordinary stores to a mapping without `MAP_SYNC`: their lines may be in a cache and
//! their blocks only in the journal's memory. The file system knows which pages were mapped for
//! that; `fdatasync` writes their lines back and commits the metadata. Writing lines back from here
//! (`clwb`) would do the first half only.
//!
//! A store must never meet a page without a block: with a full disk that is a signal, where a write
//! is an error. So pages are touched by `MADV_POPULATE_WRITE`, which reports, before their first
//! store, and their blocks are never shared with a clone.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::mm::{self, Advice, MapFlags, MremapFlags, ProtFlags};
use tracing::{debug, trace};

use super::real::DiskFile;
use super::{File, FileIdentity, FileState, LockKind};
use crate::at_fork;
use crate::error::{Error, Result};
use crate::format::PAGE_BYTES;

/// Addresses a window has at least: files grow, and addresses cost nothing.
const WINDOW_BYTES_MIN: u64 = 64 << 20;

/// A file on a DAX file system.
#[derive(Debug)]
pub(super) struct DaxFile {
    plain: DiskFile,
    window: Mutex<Window>,
    /// Something that only the kernel can flush was done since it was last asked to. True at
    /// first: what was done through other handles is not known.
    unflushed: AtomicBool,
    /// The descriptor was lent, so others may store through mappings of their own at any time.
    lent: AtomicBool,
}

/// The mapping of a file that its writes go through, made at the first of them.
#[derive(Debug, Default)]
struct Window {
    address: usize,
    /// Bytes mapped, from the file's first; may reach past the file's end.
    length: u64,
    /// Pages known to have blocks and durable metadata: a bit each, by groups of 64 pages.
    ready: BTreeMap<u64, u64>,
    /// This file cannot be written so: the kernel writes it.
    refused: bool,
}

impl DaxFile {
    pub(super) fn new(plain: DiskFile) -> DaxFile {
        DaxFile {
            plain,
            window: Mutex::default(),
            unflushed: AtomicBool::new(true),
            lent: AtomicBool::new(false),
        }
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes through the window; false where there is none to be had.
    fn store(&self, bytes: &[u8], offset: u64) -> Result<bool> {
        let mut window = self.window();
        if window.refused || !cfg!(target_arch = "x86_64") {
            return Ok(false);
        }
        if bytes.is_empty() {
            return Ok(true);
        }
        let end = offset + bytes.len() as u64;
        // Asked each time: behind the file's end a store is a signal.
        if self.plain.length()? < end {
            self.unflushed.store(true, Ordering::Relaxed);
            self.plain.allocate(offset, bytes.len() as u64)?;
        }
        if !window.reach(self.plain.descriptor(), end) {
            return Ok(false);
        }
        let pages = offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
        for run in window.unready_runs(pages) {
            if !self.make_ready(&mut window, run)? {
                return Ok(false);
            }
        }
        trace!(path = %self.path().display(), offset, bytes = bytes.len(), "store");
        // SAFETY: the window is mapped for storing up to `end`, which the file reaches, and has
        // blocks there; the lock is held, so nobody unmaps it. No reference into it exists.
        unsafe { stores::copy((window.address as u64 + offset) as *mut u8, bytes) };
        Ok(true)
    }

    /// Gives a run of pages blocks, durably; false on kernels that cannot without a signal.
    fn make_ready(&self, window: &mut Window, run: Range<u64>) -> Result<bool> {
        let (offset, length) = (run.start * PAGE_BYTES, (run.end - run.start) * PAGE_BYTES);
        let populated = window.populate(offset, length).or_else(|_| {
            // No room, most likely; a reservation says so by name. It must not reach past the
            // file's end, which it would move.
            let inside = (offset + length).min(self.plain.length()?).saturating_sub(offset);
            self.plain.allocate(offset, inside)?;
            window
                .populate(offset, length)
                .map_err(|e| Error::from_io(e.into(), "write", self.path()))
        });
        match populated {
            Ok(()) => {
                window.mark_ready(run);
                Ok(true)
            }
            // A kernel before 5.14 does not know the advice.
            Err(Error::Io { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {
                window.refused = true;
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }
}

impl Window {
    /// Maps the file's first `end` bytes, at least. False where the kernel does not give its
    /// promise: not a DAX file after all, or a device whose flush is a request to a host.
    fn reach(&mut self, file: BorrowedFd<'_>, end: u64) -> bool {
        if end <= self.length {
            return true;
        }
        let length = end.next_power_of_two().max(WINDOW_BYTES_MIN);
        let mapped = if self.length == 0 {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
            // SAFETY: the kernel chooses the address, so nothing is replaced.
            unsafe { mm::mmap(std::ptr::null_mut(), length as usize, protection, flags, file, 0) }
        } else {
            let old = self.address as *mut c_void;
            // SAFETY: the range is this window's own mapping; pointers into it live only while
            // the window is locked, which it is for this call.
            unsafe { mm::mremap(old, self.length as usize, length as usize, MremapFlags::MAYMOVE) }
        };
        match mapped {
            Ok(address) => {
                // A child would keep the open file, and its locks, by the mapping.
                // SAFETY: the range was mapped just above; the advice changes no contents.
                let _ = unsafe { mm::madvise(address, length as usize, Advice::LinuxDontFork) };
                (self.address, self.length) = (address as usize, length);
                true
            }
            Err(error) => {
                debug!(%error, "no synchronous mapping: writing by system calls");
                self.refused = true;
                false
            }
        }
    }

    /// Touches a range for writing, so that a lack of room is an error here and not a signal later.
    fn populate(&self, offset: u64, length: u64) -> rustix::io::Result<()> {
        let at = (self.address as u64 + offset) as *mut c_void;
        // SAFETY: the range lies in this window's mapping; touching changes no contents.
        unsafe { mm::madvise(at, length as usize, Advice::LinuxPopulateWrite) }
    }

    fn is_ready(&self, page: u64) -> bool {
        self.ready.get(&(page / 64)).is_some_and(|bits| bits >> (page % 64) & 1 == 1)
    }

    fn mark_ready(&mut self, pages: Range<u64>) {
        for page in pages {
            *self.ready.entry(page / 64).or_default() |= 1 << (page % 64);
        }
    }

    fn unready_runs(&self, pages: Range<u64>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for page in pages.filter(|page| !self.is_ready(*page)) {
            match runs.last_mut() {
                Some(last) if last.end == page => last.end += 1,
                _ => runs.push(page..page + 1),
            }
        }
        runs
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // A child does not have it: something else may lie there.
        if self.length > 0 && !at_fork::is_child() {
            // SAFETY: the mapping is this window's own, and nobody has a pointer into it.
            let _ = unsafe { mm::munmap(self.address as *mut c_void, self.length as usize) };
        }
    }
}

impl File for DaxFile {
    fn path(&self) -> &Path {
        self.plain.path()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.plain.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        if !self.store(bytes, offset)? {
            self.unflushed.store(true, Ordering::Relaxed);
            self.plain.write_at(bytes, offset)?;
        }
        Ok(())
    }

    fn write_at_durable(&self, bytes: &[u8], offset: u64) -> Result<()> {
        if !self.store(bytes, offset)? {
            self.plain.write_at_durable(bytes, offset)?;
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.unflushed.store(true, Ordering::Relaxed);
        self.plain.allocate(offset, length)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> Result<bool> {
        self.unflushed.store(true, Ordering::Relaxed);
        // Pages whose blocks go and come back are others.
        self.window().ready.clear();
        self.plain.punch_hole(offset, length)
    }

    fn set_length(&self, length: u64) -> Result<()> {
        self.unflushed.store(true, Ordering::Relaxed);
        // Pages that are cut off and come back have no blocks.
        self.window().ready.clear();
        self.plain.set_length(length)
    }

    fn disk_bytes(&self) -> Result<u64> {
        self.plain.disk_bytes()
    }

    fn length(&self) -> Result<u64> {
        self.plain.length()
    }

    fn sync_data(&self) -> Result<()> {
        // Stores through the window need no more: each write ended with a fence.
        let pending = self.unflushed.swap(false, Ordering::Relaxed);
        if pending || self.lent.load(Ordering::Relaxed) {
            self.plain
                .sync_data()
                .inspect_err(|_| self.unflushed.store(true, Ordering::Relaxed))?;
        }
        Ok(())
    }

    fn advise_random(&self) -> Result<()> {
        // There is no page cache to advise.
        Ok(())
    }

    fn try_lock(&self, kind: LockKind, offset: u64, length: u64) -> Result<bool> {
        let locked = self.plain.try_lock(kind, offset, length)?;
        if locked && kind == LockKind::Exclusive {
            // Whoever had the lock before may have cut the file and extended it again.
            self.window().ready.clear();
        }
        Ok(locked)
    }

    fn try_lock_for_good(&self, offset: u64) -> Result<bool> {
        let locked = self.plain.try_lock_for_good(offset)?;
        if locked {
            self.window().ready.clear();
        }
        Ok(locked)
    }

    fn leave_locks_to_children(&self) {
        self.plain.leave_locks_to_children();
    }

    fn again(&self) -> Result<Arc<dyn File>> {
        self.plain.again()
    }

    fn lock_holder(&self, offset: u64, length: u64) -> Result<Option<(u64, u64)>> {
        self.plain.lock_holder(offset, length)
    }

    fn unlock(&self, offset: u64, length: u64) -> Result<()> {
        self.plain.unlock(offset, length)
    }

    fn with_path(&self, path: &Path) -> Result<Arc<dyn File>> {
        Ok(Arc::new(DaxFile::new(self.plain.moved_to(path)?)))
    }

    fn has_a_name(&self) -> Result<bool> {
        self.plain.has_a_name()
    }

    fn identity(&self) -> Result<FileIdentity> {
        self.plain.identity()
    }

    fn state(&self) -> Result<FileState> {
        self.plain.state()
    }

    fn copy_from(&self, _source: &dyn File, _length: u64) -> Result<bool> {
        // Of two files that share a block, the next store to either needs a new one, and where
        // there is none that is a signal. And what the kernel copied would be the kernel's to flush.
        Ok(false)
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        self.plain.next_data(offset)
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.lent.store(true, Ordering::Relaxed);
        self.plain.descriptor()
    }
}

/// Stores that go past the caches.
#[cfg(target_arch = "x86_64")]
mod stores {
    use std::arch::x86_64::{__m128i, _mm_clflush, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    const LANE: usize = size_of::<__m128i>();

    /// Copies `bytes` to `to` and returns when they are out of the processor's caches and
    /// buffers, which is where persistent memory begins.
    ///
    /// # Safety
    /// `to` is mapped and writable for as many bytes, and no reference to them exists.
    pub(super) unsafe fn copy(to: *mut u8, bytes: &[u8]) {
        let head = to.align_offset(LANE).min(bytes.len());
        let (head, rest) = bytes.split_at(head);
        let (lanes, tail) = rest.as_chunks::<LANE>();
        // SAFETY: all of it lies in the range that the caller vouches for: a head up to the first
        // aligned lane, the aligned lanes, a tail. The fence ends what the streaming stores began
        // before anybody else is told of them, which the memory model asks for.
        unsafe {
            through_the_cache(to, head);
            let mut at = to.add(head.len());
            for lane in lanes {
                _mm_stream_si128(at.cast(), _mm_loadu_si128(lane.as_ptr().cast()));
                at = at.add(LANE);
            }
            through_the_cache(at, tail);
            _mm_sfence();
        }
    }

    /// Less than a lane: an ordinary copy, and its line written back (it may cross into a second).
    ///
    /// # Safety
    /// As for [`copy`].
    unsafe fn through_the_cache(to: *mut u8, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        // SAFETY: the caller's range; flushing a line changes no contents.
        unsafe {
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            _mm_clflush(to);
            _mm_clflush(to.add(bytes.len() - 1));
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod stores {
    /// # Safety
    /// Never called: [`super::DaxFile::store`] leaves other processors to the kernel.
    pub(super) unsafe fn copy(_to: *mut u8, _bytes: &[u8]) {
        unreachable!("files are stored to on x86-64 only");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Disk, OpenMode, Storage};

    /// A new file on a DAX file system: the temporary directory has to be on one.
    fn direct_file(directory: &tempfile::TempDir) -> Option<Arc<dyn File>> {
        let file = Disk::default().open(&directory.path().join("f"), OpenMode::CreateNew).unwrap();
        if !file.is_direct() {
            eprintln!("SKIPPED: the temporary directory is not on a DAX file system");
            return None;
        }
        Some(file)
    }

    /// Writes of many sizes at many offsets, cuts in between; gives what the file must hold.
    fn scribble(file: &dyn File) -> Vec<u8> {
        let mut model = Vec::new();
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..2_000u64 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let offset = (seed >> 8) % 40_000;
            let length = (((seed >> 32) % 200) as usize) << (seed % 5);
            let bytes: Vec<u8> = (0..length).map(|i| (i as u64 ^ seed) as u8).collect();
            let end = offset as usize + length;
            if !bytes.is_empty() {
                model.resize(model.len().max(end), 0);
                model[offset as usize..end].copy_from_slice(&bytes);
            }
            match round % 3 {
                0 => file.write_at_durable(&bytes, offset).unwrap(),
                _ => file.write_at(&bytes, offset).unwrap(),
            }
            if round % 101 == 100 {
                file.set_length(offset).unwrap();
                model.resize(offset as usize, 0);
                file.sync_data().unwrap();
            }
        }
        model
    }

    fn contents(file: &dyn File) -> Vec<u8> {
        let mut bytes = vec![0; file.length().unwrap() as usize];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
        bytes
    }

    #[test]
    fn stores_of_any_size_at_any_offset_are_what_is_read_by_system_calls() {
        let directory = tempfile::tempdir().unwrap();
        let Some(file) = direct_file(&directory) else { return };
        let model = scribble(&*file);
        assert!(contents(&*file) == model, "the file differs from what was stored");
        let again = Disk::default().open(file.path(), OpenMode::ReadWrite).unwrap();
        assert!(again.is_direct());
        again.write_at(b"past the window", WINDOW_BYTES_MIN + 5).unwrap();
        file.write_at(b"begin", 0).unwrap();
        let mut bytes = [0; 15];
        assert_eq!(file.read_at(&mut bytes, WINDOW_BYTES_MIN + 5).unwrap(), 15);
        assert_eq!(&bytes, b"past the window");
    }

    #[test]
    fn a_direct_file_is_written_through_its_mapping() {
        let directory = tempfile::tempdir().unwrap();
        if direct_file(&directory).is_none() {
            return;
        }
        let path = directory.path().join("g");
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CREATE;
        let descriptor = rustix::fs::open(&path, flags, 0o600.into()).unwrap();
        let file =
            DaxFile::new(DiskFile::new(descriptor, &path, FileIdentity { device: 0, inode: 0 }));
        file.write_at(&[7; 5000], 100).unwrap();
        let window = file.window();
        assert!(!window.refused && window.length >= WINDOW_BYTES_MIN);
        assert!(window.is_ready(0) && window.is_ready(1) && !window.is_ready(2));
    }

    #[test]
    fn a_full_direct_disk_is_an_error_and_not_a_signal() {
        let directory = tempfile::tempdir().unwrap();
        let Some(file) = direct_file(&directory) else { return };
        file.set_length(8 << 30).unwrap();
        let zeros = vec![1; 1 << 20];
        let failed = (0..8 << 10).find_map(|i| file.write_at(&zeros, i << 20).err());
        assert!(matches!(failed, Some(Error::DiskFull { .. })), "{failed:?}");
    }

    #[test]
    fn a_file_without_synchronous_mappings_is_written_by_the_kernel() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CREATE;
        let descriptor = rustix::fs::open(&path, flags, 0o600.into()).unwrap();
        let file =
            DaxFile::new(DiskFile::new(descriptor, &path, FileIdentity { device: 0, inode: 0 }));
        let model = scribble(&file);
        assert!(contents(&file) == model);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_copy_past_the_caches_copies_exactly_its_bytes_at_any_alignment() {
        let source: Vec<u8> = (0..300u32).map(|i| (i * 7 + 1) as u8).collect();
        for offset in 0..70 {
            for length in (0..70).chain([128, 229]) {
                let mut target = vec![0xee_u8; 300];
                // SAFETY: `offset + length` is less than 300, all of which is ours.
                unsafe { stores::copy(target.as_mut_ptr().add(offset), &source[..length]) };
                assert_eq!(target[offset..offset + length], source[..length]);
                assert!(
                    target[..offset].iter().chain(&target[offset + length..]).all(|b| *b == 0xee)
                );
            }
        }
    }
}
