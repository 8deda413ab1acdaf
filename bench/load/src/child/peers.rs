//! Loads a file without Evermap, as C programs do: `malloc` and `read`, or `mmap`.
//!
//! A mapping is private. It is writable only if the work writes, because populating a writable one
//! copies each page.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

use harness::Outcome;

use super::Asked;
use crate::subjects::{MAP, MAP_POPULATE, MAP_WILLNEED, READ};

const READ_BYTES: usize = 1 << 20;

/// Bytes of a file in memory. They stay until the process ends, like a program's data.
pub(super) struct Plain {
    start: *mut u8,
    bytes: usize,
    is_writable: bool,
}

impl Plain {
    pub(super) fn load(asked: &Asked) -> Outcome<Plain> {
        let flags = match asked.subject.as_str() {
            READ => return read(asked),
            MAP | MAP_WILLNEED => libc::MAP_PRIVATE,
            MAP_POPULATE => libc::MAP_PRIVATE | libc::MAP_POPULATE,
            name => return Err(format!("unknown subject `{name}`").into()),
        };
        map(asked, flags)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: `start` points to `bytes` bytes that are never freed. A mapped file does
        // not change during the run.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.is_writable, "work that writes maps the file writable");
        // SAFETY: `start` points to `bytes` bytes that are never freed and private to this
        // process, and only this value refers to them.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

fn last_error(what: &str) -> Box<dyn std::error::Error> {
    format!("{what}: {}", std::io::Error::last_os_error()).into()
}

fn open(asked: &Asked) -> Outcome<(libc::c_int, usize)> {
    let path = CString::new(asked.file.as_os_str().as_bytes())?;
    // SAFETY: the path is a zero-terminated string that lives during the call.
    let file = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return Err(last_error("open"));
    }
    // SAFETY: all-zero bytes are a valid `stat`, and it lives during the call.
    let (result, about) = unsafe {
        let mut about: libc::stat = std::mem::zeroed();
        (libc::fstat(file, &mut about), about)
    };
    match result {
        0 => Ok((file, usize::try_from(about.st_size)?)),
        _ => Err(last_error("fstat")),
    }
}

fn read(asked: &Asked) -> Outcome<Plain> {
    let (file, bytes) = open(asked)?;
    // SAFETY: `malloc` accepts any size; only bytes that `read` has filled are read later.
    let start: *mut u8 = unsafe { libc::malloc(bytes) }.cast();
    if start.is_null() {
        return Err(last_error("malloc"));
    }
    let mut filled = 0;
    while filled < bytes {
        let part = READ_BYTES.min(bytes - filled);
        // SAFETY: `filled + part` is at most `bytes`, so the read stays inside the
        // allocation.
        match unsafe { libc::read(file, start.add(filled).cast(), part) } {
            0 => return Err("the file is shorter than it was".into()),
            count if count < 0 => return Err(last_error("read")),
            count => filled += count as usize,
        }
    }
    close(file);
    Ok(Plain { start, bytes, is_writable: true })
}

fn map(asked: &Asked, flags: libc::c_int) -> Outcome<Plain> {
    let (file, bytes) = open(asked)?;
    let is_writable = asked.work.is_written;
    let access = libc::PROT_READ | if is_writable { libc::PROT_WRITE } else { 0 };
    // SAFETY: creates a new mapping at an address that the kernel chooses, so it replaces no
    // other.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, file, 0) };
    if start == libc::MAP_FAILED {
        return Err(last_error("mmap"));
    }
    // SAFETY: the advice covers exactly the new mapping and changes no byte of it.
    let is_advised = asked.subject != MAP_WILLNEED
        || unsafe { libc::madvise(start, bytes, libc::MADV_WILLNEED) } == 0;
    if !is_advised {
        return Err(last_error("madvise"));
    }
    close(file);
    Ok(Plain { start: start.cast(), bytes, is_writable })
}

fn close(file: libc::c_int) {
    // SAFETY: the descriptor is open, and is not used after this call.
    unsafe { libc::close(file) };
}
