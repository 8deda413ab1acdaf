//! How programs load a file without evermap, as they would in C: `malloc` and `read`, or `mmap`.
//!
//! A mapping is private, and may be written to only where it will be: populating one that may be copies each page.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

use common::Outcome;

use super::Asked;
use crate::subjects::{MAP, MAP_POPULATE, MAP_WILLNEED, READ};

const READ_BYTES: usize = 1 << 20;

/// A file's bytes in memory. They stay until the process ends, as a program's data do.
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
            name => return Err(format!("nobody is called `{name}`").into()),
        };
        map(asked, flags)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: `start` is that many bytes, never freed; of a file that nobody changes, where it is mapped.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.is_writable, "a file that is written to is mapped so");
        // SAFETY: as above, private to this process, and this value alone has it.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

fn last_error(what: &str) -> Box<dyn std::error::Error> {
    format!("{what}: {}", std::io::Error::last_os_error()).into()
}

fn open(asked: &Asked) -> Outcome<(libc::c_int, usize)> {
    let path = CString::new(asked.file.as_os_str().as_bytes())?;
    // SAFETY: the path ends with a zero and lives during the call.
    let file = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return Err(last_error("open"));
    }
    // SAFETY: any bytes are a `stat`, which lives during the call.
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
    // SAFETY: memory is asked for, and looked at only where it was read into.
    let start: *mut u8 = unsafe { libc::malloc(bytes) }.cast();
    if start.is_null() {
        return Err(last_error("malloc"));
    }
    let mut filled = 0;
    while filled < bytes {
        let part = READ_BYTES.min(bytes - filled);
        // SAFETY: `part` bytes from there on are within the memory.
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
    // SAFETY: a new mapping, wherever the kernel likes.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, file, 0) };
    if start == libc::MAP_FAILED {
        return Err(last_error("mmap"));
    }
    // SAFETY: advice about the mapping that was just made; no byte of it changes.
    let is_advised = asked.subject != MAP_WILLNEED
        || unsafe { libc::madvise(start, bytes, libc::MADV_WILLNEED) } == 0;
    if !is_advised {
        return Err(last_error("madvise"));
    }
    close(file);
    Ok(Plain { start: start.cast(), bytes, is_writable })
}

fn close(file: libc::c_int) {
    // SAFETY: it is open, and nobody uses it after.
    unsafe { libc::close(file) };
}
