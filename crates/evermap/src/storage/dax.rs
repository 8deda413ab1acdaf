//! Files whose pages are storage themselves (DAX): the processor writes them, not the kernel.
//!
//! A [`DaxFile`] is a [`DiskFile`] whose writes are non-temporal stores through a mapping of the
//! file made with `MAP_SYNC`. Such a mapping guarantees that the metadata of every writable page is
//! durable, so bytes are durable once the processor's write buffers are drained: a store fence is
//! the whole flush. **Every write is durable when it returns**, and makes no system call except one
//! for the file's length, unless its pages are written for the first time.
//!
//! Changes that bypass this mapping have to be flushed by the kernel, through `sync_data`: lengths,
//! reservations, and the stores into fresh memory that the address layer maps shared. Those are
//! ordinary stores to a mapping without `MAP_SYNC`: their cache lines may not be written back and
//! their blocks may exist only in the journal's memory. The file system knows which pages were
//! mapped for that; `fdatasync` writes their lines back and commits the metadata. Writing lines
//! back here (`clwb`) would only do the first half.
//!
//! A store must never hit a page without a block: on a full disk it raises a signal, where a write
//! returns an error. So pages are touched by `MADV_POPULATE_WRITE`, which reports errors, before
//! their first store, and their blocks are never shared with a clone.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::mm::{self, Advice, MapFlags, MremapFlags, ProtFlags};
use tracing::{debug, trace};

use super::file::DiskFile;
use super::{File, FileIdentity, FileState, LockKind};
use crate::at_fork;
use crate::error::{Error, Result};
use crate::format::PAGE_BYTES;

/// Minimum size of a window's address range. Files grow, and addresses cost nothing.
const WINDOW_BYTES_MIN: u64 = 64 << 20;

/// A file on a DAX file system.
#[derive(Debug)]
pub(super) struct DaxFile {
    plain: DiskFile,
    window: Mutex<Window>,
    /// True if something that only the kernel can flush was done since the last flush. Initially
    /// true, because changes through other handles are not known.
    unflushed: AtomicBool,
    /// The descriptor was lent, so other code may store through its own mappings at any time.
    lent: AtomicBool,
}

/// Mapping of a file through which its writes go. Created at the first write.
#[derive(Debug, Default)]
struct Window {
    address: usize,
    /// Bytes mapped from the start of the file. May reach past the end of the file.
    length: u64,
    /// Pages known to have blocks and durable metadata: one bit each, in groups of 64 pages.
    ready: BTreeMap<u64, u64>,
    /// The file cannot be written through a mapping, so the kernel writes it.
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

    /// Writes through the window. Returns false if no window is available.
    fn store(&self, bytes: &[u8], offset: u64) -> Result<bool> {
        let mut window = self.window();
        if window.refused || !cfg!(target_arch = "x86_64") {
            return Ok(false);
        }
        if bytes.is_empty() {
            return Ok(true);
        }
        let end = offset + bytes.len() as u64;
        // Queried every time: a store past the end of the file raises a signal.
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
        // SAFETY: the window is mapped writable up to `end`, which the file reaches and where it
        // has blocks. The lock is held, so no thread unmaps the window. No reference into it
        // exists.
        unsafe { stores::copy((window.address as u64 + offset) as *mut u8, bytes) };
        Ok(true)
    }

    /// Gives a run of pages durable blocks. Returns false on kernels that cannot do so without a
    /// signal.
    fn make_ready(&self, window: &mut Window, run: Range<u64>) -> Result<bool> {
        let (offset, length) = (run.start * PAGE_BYTES, (run.end - run.start) * PAGE_BYTES);
        let populated = window.populate(offset, length).or_else(|_| {
            // Most likely the disk is full; a reservation reports that by name. It must stay inside
            // the file, whose end it would move.
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
            // A kernel before 5.14 does not support the advice.
            Err(Error::Io { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {
                window.refused = true;
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }
}

impl Window {
    /// Maps at least the first `end` bytes of the file. Returns false if the kernel refuses
    /// `MAP_SYNC`: the file is not on DAX after all, or the device is flushed by a request to a
    /// host.
    fn reach(&mut self, file: BorrowedFd<'_>, end: u64) -> bool {
        if end <= self.length {
            return true;
        }
        let length = end.next_power_of_two().max(WINDOW_BYTES_MIN);
        let mapped = if self.length == 0 {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
            // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
            unsafe { mm::mmap(std::ptr::null_mut(), length as usize, protection, flags, file, 0) }
        } else {
            let old = self.address as *mut c_void;
            // SAFETY: the range is this window's own mapping; pointers into it live only while the
            // window is locked, and it is locked during this call.
            unsafe { mm::mremap(old, self.length as usize, length as usize, MremapFlags::MAYMOVE) }
        };
        match mapped {
            Ok(address) => {
                // Without this, the mapping would keep the file and its locks open in a child.
                // SAFETY: the range was mapped just above; the advice changes no contents.
                let _ = unsafe { mm::madvise(address, length as usize, Advice::LinuxDontFork) };
                (self.address, self.length) = (address as usize, length);
                true
            }
            Err(error) => {
                debug!(%error, "no synchronous mapping, so writes use system calls");
                self.refused = true;
                false
            }
        }
    }

    /// Touches a range for writing, so that a full disk is an error here and not a signal later.
    fn populate(&self, offset: u64, length: u64) -> rustix::io::Result<()> {
        let at = (self.address as u64 + offset) as *mut c_void;
        // SAFETY: the range lies in this window's mapping; populating pages changes no contents.
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
        // A child does not inherit the mapping; other memory may be at its address.
        if self.length > 0 && !at_fork::is_child() {
            // SAFETY: the mapping is this window's own, and no pointer into it is left.
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
        // Pages whose blocks are released and allocated again are not ready any more.
        self.window().ready.clear();
        self.plain.punch_hole(offset, length)
    }

    fn set_length(&self, length: u64) -> Result<()> {
        self.unflushed.store(true, Ordering::Relaxed);
        // Pages that are cut off and added again have no blocks.
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
        // Stores through the window need no flush: each write ended with a fence.
        let pending = self.unflushed.swap(false, Ordering::Relaxed);
        if pending || self.lent.load(Ordering::Relaxed) {
            self.plain
                .sync_data()
                .inspect_err(|_| self.unflushed.store(true, Ordering::Relaxed))?;
        }
        Ok(())
    }

    fn advise_random(&self) -> Result<()> {
        // A DAX file has no page cache to advise.
        Ok(())
    }

    fn try_lock(&self, kind: LockKind, offset: u64, length: u64) -> Result<bool> {
        let locked = self.plain.try_lock(kind, offset, length)?;
        if locked && kind == LockKind::Exclusive {
            // The previous holder of the lock may have truncated the file and extended it again.
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

    fn length_after_open(&self) -> Result<u64> {
        self.plain.length_after_open()
    }

    fn identity(&self) -> Result<FileIdentity> {
        self.plain.identity()
    }

    fn state(&self) -> Result<FileState> {
        self.plain.state()
    }

    fn copy_from(&self, _source: &dyn File, _length: u64) -> Result<bool> {
        // If two files share a block, the next store to either needs a new one, and raises a signal
        // on a full disk. And the kernel would have to flush what it copied.
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

/// Stores that bypass the caches.
#[cfg(target_arch = "x86_64")]
mod stores {
    use std::arch::x86_64::{__m128i, _mm_clflush, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    const LANE: usize = size_of::<__m128i>();

    /// Copies `bytes` to `to`. Returns when they have left the processor's caches and write
    /// buffers, so they are in persistent memory.
    ///
    /// # Safety
    /// `to` is mapped and writable for `bytes.len()` bytes, and no reference to them exists.
    pub(super) unsafe fn copy(to: *mut u8, bytes: &[u8]) {
        let head = to.align_offset(LANE).min(bytes.len());
        let (head, rest) = bytes.split_at(head);
        let (lanes, tail) = rest.as_chunks::<LANE>();
        // SAFETY: the caller guarantees the range; the head up to the first aligned lane, the
        // aligned lanes and the tail all lie in it. The fence completes the streaming stores before
        // other threads learn of them, as the memory model requires.
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

    /// Copies less than a lane by ordinary stores and writes its cache lines back (it may cross
    /// into a second one).
    ///
    /// # Safety
    /// `to` is mapped and writable for `bytes.len()` bytes, and no reference to them exists.
    unsafe fn through_the_cache(to: *mut u8, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        // SAFETY: the caller guarantees the range; flushing a line changes no contents.
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
    /// Must not be called: [`super::DaxFile::store`] uses the kernel on other processors.
    pub(super) unsafe fn copy(_to: *mut u8, _bytes: &[u8]) {
        unreachable!("files are stored to on x86-64 only");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Disk, OpenMode, Storage};

    /// Creates a file on a DAX file system. Returns `None` if the temporary directory is not on
    /// one.
    fn direct_file(directory: &tempfile::TempDir) -> Option<Arc<dyn File>> {
        let file = Disk::default().open(&directory.path().join("f"), OpenMode::CreateNew).unwrap();
        if !file.is_direct() {
            eprintln!("SKIPPED: the temporary directory is not on a DAX file system");
            return None;
        }
        Some(file)
    }

    /// Writes many sizes at many offsets and truncates in between. Returns the expected contents.
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
    fn stores_of_any_size_and_offset_are_read_back_by_system_calls() {
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
        let file = DaxFile::new(DiskFile::new(descriptor, &path, None));
        file.write_at(&[7; 5000], 100).unwrap();
        let window = file.window();
        assert!(!window.refused && window.length >= WINDOW_BYTES_MIN);
        assert!(window.is_ready(0) && window.is_ready(1) && !window.is_ready(2));
    }

    #[test]
    fn a_full_dax_disk_is_an_error_and_not_a_signal() {
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
        let file = DaxFile::new(DiskFile::new(descriptor, &path, None));
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
                // SAFETY: `offset + length` is less than 300, the length of `target`.
                unsafe { stores::copy(target.as_mut_ptr().add(offset), &source[..length]) };
                assert_eq!(target[offset..offset + length], source[..length]);
                assert!(
                    target[..offset].iter().chain(&target[offset + length..]).all(|b| *b == 0xee)
                );
            }
        }
    }
}
