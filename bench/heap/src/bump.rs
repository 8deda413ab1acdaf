//! Limit: a pointer that only advances, into the same kind of memory that an object has.
//!
//! The file is reserved step by step. Each step is mapped shared at its place in a fixed range of
//! addresses, and its first 2 MiB are populated, as an object grows. There are no size classes, no
//! metadata, no freeing and no log. The file's first page has the root's address, so that a new
//! process finds the tree by mapping the file: this is the limit for opening, too. Without a file,
//! the memory is plain anonymous memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::tree::{Allocate, Allocator, Node};
use harness::files::checked;

/// Address of the file in every process: between the ranges where Linux maps programs and
/// libraries, and apart from stores' arenas.
const BASE: usize = 0x1000_0000_0000;
const RANGE_BYTES: usize = 64 << 30;
const PAGE_BYTES: usize = 4096;
const CHUNK_BYTES: usize = 64 << 10;
/// Bounds of a growth step, as for an object.
const STEP_BYTES: (usize, usize) = (CHUNK_BYTES, 64 << 20);
const POPULATED_BYTES_MAX: usize = 2 << 20;

pub struct Bump {
    /// `None` for anonymous memory.
    file: Option<File>,
    state: Mutex<State>,
}

/// Offsets from the base: end of the mapped bytes, and end of the bytes given to threads.
struct State {
    mapped: usize,
    given: usize,
}

impl Bump {
    pub fn in_file(path: &Path) -> io::Result<Bump> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        map(RANGE_BYTES, libc::PROT_NONE, RESERVE | libc::MAP_FIXED_NOREPLACE, None, 0)?;
        Ok(Bump::new(Some(file)))
    }

    pub fn anonymous() -> io::Result<Bump> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        map(RANGE_BYTES, protection, RESERVE | libc::MAP_FIXED_NOREPLACE, None, 0)?;
        Ok(Bump::new(None))
    }

    fn new(file: Option<File>) -> Bump {
        // The first page holds the head.
        let mapped = if file.is_some() { 0 } else { RANGE_BYTES };
        Bump { file, state: Mutex::new(State { mapped, given: PAGE_BYTES }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next chunk: its first address and its end.
    fn chunk(&self) -> io::Result<(usize, usize)> {
        let mut state = self.lock();
        let end = state.given + CHUNK_BYTES;
        if end > state.mapped {
            self.grow(&mut state, end)?;
        }
        let first = BASE + state.given;
        state.given = end;
        Ok((first, BASE + end))
    }

    fn grow(&self, state: &mut State, wanted: usize) -> io::Result<()> {
        let Some(file) = &self.file else { return Err(io::ErrorKind::OutOfMemory.into()) };
        let step = (state.mapped / 8).clamp(STEP_BYTES.0, STEP_BYTES.1);
        let end = wanted.max(state.mapped + step).next_multiple_of(PAGE_BYTES);
        let gained = end - state.mapped;
        // SAFETY: `fallocate` takes no pointers.
        let result =
            unsafe { libc::fallocate(file.as_raw_fd(), 0, state.mapped as i64, gained as i64) };
        checked(result as isize)?;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        map(gained, protection, flags, Some(file), state.mapped)?;
        let populated = gained.min(POPULATED_BYTES_MAX);
        // SAFETY: the range was just mapped, and the advice changes no contents.
        unsafe {
            let place = at(state.mapped);
            libc::madvise(place.cast(), populated, libc::MADV_POPULATE_WRITE);
        }
        state.mapped = end;
        Ok(())
    }

    /// Stores the root's address and makes the file durable.
    pub fn finish(&self, root: *mut Node) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        // SAFETY: the first page is mapped once a chunk was given, and no chunk includes it.
        unsafe { at(0).cast::<usize>().write(root.expose_provenance()) };
        file.sync_data()
    }
}

impl Drop for Bump {
    fn drop(&mut self) {
        // SAFETY: the range belongs to this value, and no reference to it remains.
        unsafe { libc::munmap(at(0).cast(), RANGE_BYTES) };
    }
}

/// Remainder of a thread's chunk.
pub struct BumpThread<'a> {
    bump: &'a Bump,
    at: usize,
    end: usize,
}

impl Allocator for Bump {
    type Thread<'a> = BumpThread<'a>;

    fn thread(&self) -> BumpThread<'_> {
        BumpThread { bump: self, at: 0, end: 0 }
    }
}

impl Allocate for BumpThread<'_> {
    fn allocate(&mut self, bytes: usize) -> *mut u8 {
        if self.end - self.at < bytes {
            match self.bump.chunk() {
                Ok(chunk) => (self.at, self.end) = chunk,
                Err(_) => return std::ptr::null_mut(),
            }
        }
        let place = std::ptr::with_exposed_provenance_mut(self.at);
        self.at += bytes;
        place
    }

    /// Does nothing: the memory is not reused.
    unsafe fn free(&mut self, _: *mut u8) {}
}

/// Maps the file for reading in a later process, at its address, and returns the root.
pub fn open(path: &Path) -> io::Result<*const Node> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len() as usize;
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE;
    map(bytes, libc::PROT_READ, flags, Some(&file), 0)?;
    // SAFETY: `finish` wrote the first word, and the mapping stays until the process ends.
    let root = unsafe { at(0).cast::<usize>().read() };
    Ok(std::ptr::with_exposed_provenance(root))
}

const RESERVE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

fn at(offset: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(BASE + offset)
}

/// Maps `length` bytes of the file at `offset`, at the same offset from the base.
fn map(length: usize, prot: i32, flags: i32, file: Option<&File>, offset: usize) -> io::Result<()> {
    let file = file.map_or(-1, |file| file.as_raw_fd());
    // SAFETY: the range belongs to the bump pointer, or the kernel refuses to replace a mapping
    // (MAP_FIXED_NOREPLACE).
    let mapped = unsafe { libc::mmap(at(offset).cast(), length, prot, flags, file, offset as i64) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    mapped.expose_provenance();
    Ok(())
}
