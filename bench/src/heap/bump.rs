//! The limit: a pointer that moves on, into the same kind of memory that an object has.
//!
//! A file, reserved step by step, each step mapped shared at its place in a range of addresses that
//! never changes, the first 2 MiB of it populated: as an object grows. No classes, no metadata, no
//! freeing, no log. The file's first page has the root's address, so that a new process finds the
//! tree by mapping the file: the limit for opening, too. Or else plain anonymous memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::tree::{Allocate, Allocator, Node};
use crate::files::checked;

/// Where the file lies in every process: between where Linux puts programs and libraries, and apart
/// from stores' arenas.
const BASE: usize = 0x1000_0000_0000;
const RANGE_BYTES: usize = 64 << 30;
const PAGE_BYTES: usize = 4096;
const CHUNK_BYTES: usize = 64 << 10;
/// As an object grows.
const STEP_BYTES: (usize, usize) = (CHUNK_BYTES, 64 << 20);
const POPULATED_BYTES_MAX: usize = 2 << 20;

pub struct Bump {
    /// None for anonymous memory.
    file: Option<File>,
    state: Mutex<State>,
}

/// Bytes from the base: those that are mapped, and those that were given to threads.
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
        // The first page is the head.
        let mapped = if file.is_some() { 0 } else { RANGE_BYTES };
        Bump { file, state: Mutex::new(State { mapped, given: PAGE_BYTES }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next chunk: its first byte and the one behind its last.
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
        // SAFETY: the call takes no pointers.
        let result =
            unsafe { libc::fallocate(file.as_raw_fd(), 0, state.mapped as i64, gained as i64) };
        checked(result as isize)?;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        map(gained, protection, flags, Some(file), state.mapped)?;
        let populated = gained.min(POPULATED_BYTES_MAX);
        // SAFETY: the range was just mapped; the advice changes no contents.
        unsafe {
            let place = at(state.mapped);
            libc::madvise(place.cast(), populated, libc::MADV_POPULATE_WRITE);
        }
        state.mapped = end;
        Ok(())
    }

    /// Notes the root and makes the file durable.
    pub fn finish(&self, root: *mut Node) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        // SAFETY: the first page is mapped once a chunk was given, and is nobody else's.
        unsafe { at(0).cast::<usize>().write(root.expose_provenance()) };
        file.sync_data()
    }
}

impl Drop for Bump {
    fn drop(&mut self) {
        // SAFETY: the range is this value's own, and nothing refers to it any more.
        unsafe { libc::munmap(at(0).cast(), RANGE_BYTES) };
    }
}

/// What a thread still has of its chunk.
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

    /// Such memory is not used again.
    unsafe fn free(&mut self, _: *mut u8) {}
}

/// In a later process: maps the file for reading, at its place; gives the root.
pub fn open(path: &Path) -> io::Result<*const Node> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len() as usize;
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE;
    map(bytes, libc::PROT_READ, flags, Some(&file), 0)?;
    // SAFETY: the first word was written by `finish`; the mapping stays until the process ends.
    let root = unsafe { at(0).cast::<usize>().read() };
    Ok(std::ptr::with_exposed_provenance(root))
}

const RESERVE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

fn at(offset: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(BASE + offset)
}

/// Maps `length` bytes at the base's `offset`, from the same offset of the file.
fn map(length: usize, prot: i32, flags: i32, file: Option<&File>, offset: usize) -> io::Result<()> {
    let file = file.map_or(-1, |file| file.as_raw_fd());
    // SAFETY: the range is the bump pointer's own, or the kernel refuses to replace what is there.
    let mapped = unsafe { libc::mmap(at(offset).cast(), length, prot, flags, file, offset as i64) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    mapped.expose_provenance();
    Ok(())
}
