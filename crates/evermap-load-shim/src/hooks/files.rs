//! Calls about descriptors: long reads, and whatever could close one that a load needs.

use std::ffi::{c_int, c_uint, c_void};

use crate::inside::{set_errno, within};
use crate::reads::{self, BYTES_MIN, Buffer};
use crate::{forks, loading, real, settings};

fn came(result: Result<usize, i32>) -> isize {
    match result {
        Ok(came) => came as isize,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

fn could_be_ours(bytes: usize) -> bool {
    (BYTES_MIN..=isize::MAX as usize).contains(&bytes) && settings::are_active()
}

/// See `read(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn read(fd: c_int, buffer: *mut c_void, bytes: usize) -> isize {
    if could_be_ours(bytes) {
        // SAFETY: this is a point at which threads can be cancelled.
        unsafe { real::pthread_testcancel() };
        let buffers = [Buffer { address: buffer as usize, bytes }];
        if let Some(result) = within(|| reads::read(fd, &buffers)).flatten() {
            return came(result);
        }
    }
    // SAFETY: passed on.
    unsafe { real::read(fd, buffer, bytes) }
}

/// As `read`, of a program that was compiled to check its buffers.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    buffer: *mut c_void,
    bytes: usize,
    buffer_bytes: usize,
) -> isize {
    if bytes > buffer_bytes {
        // SAFETY: ends the program, as it wants.
        unsafe { real::__chk_fail() };
    }
    // SAFETY: passed on.
    unsafe { read(fd, buffer, bytes) }
}

/// See `pread(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pread64(
    fd: c_int,
    buffer: *mut c_void,
    bytes: usize,
    offset: i64,
) -> isize {
    if could_be_ours(bytes) {
        // SAFETY: this is a point at which threads can be cancelled.
        unsafe { real::pthread_testcancel() };
        let into = Buffer { address: buffer as usize, bytes };
        if let Some(result) = within(|| reads::read_at(fd, into, offset)).flatten() {
            return came(result);
        }
    }
    // SAFETY: passed on.
    unsafe { real::pread(fd, buffer, bytes, offset) }
}

/// See `pread(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pread(
    fd: c_int,
    buffer: *mut c_void,
    bytes: usize,
    offset: i64,
) -> isize {
    // SAFETY: passed on.
    unsafe { pread64(fd, buffer, bytes, offset) }
}

/// As `pread`, of a program that was compiled to check its buffers.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __pread64_chk(
    fd: c_int,
    buffer: *mut c_void,
    bytes: usize,
    offset: i64,
    buffer_bytes: usize,
) -> isize {
    if bytes > buffer_bytes {
        // SAFETY: ends the program, as it wants.
        unsafe { real::__chk_fail() };
    }
    // SAFETY: passed on.
    unsafe { pread64(fd, buffer, bytes, offset) }
}

/// As `pread`, of a program that was compiled to check its buffers.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __pread_chk(
    fd: c_int,
    buffer: *mut c_void,
    bytes: usize,
    offset: i64,
    buffer_bytes: usize,
) -> isize {
    // SAFETY: passed on.
    unsafe { __pread64_chk(fd, buffer, bytes, offset, buffer_bytes) }
}

/// See `readv(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn readv(fd: c_int, vectors: *const libc::iovec, count: c_int) -> isize {
    // What the kernel takes; all else it refuses.
    let is_array = !vectors.is_null() && vectors.is_aligned();
    if is_array && (1..=1024).contains(&count) && settings::are_active() {
        // SAFETY: the program says that so many are there.
        let vectors = unsafe { std::slice::from_raw_parts(vectors, count as usize) };
        let total = vectors.iter().fold(0usize, |sum, one| sum.saturating_add(one.iov_len));
        if could_be_ours(total) {
            // SAFETY: this is a point at which threads can be cancelled.
            unsafe { real::pthread_testcancel() };
            let result = within(|| {
                let buffer = |one: &libc::iovec| Buffer {
                    address: one.iov_base as usize,
                    bytes: one.iov_len,
                };
                let buffers: Vec<Buffer> = vectors.iter().map(buffer).collect();
                reads::read(fd, &buffers)
            });
            if let Some(result) = result.flatten() {
                return came(result);
            }
        }
    }
    // SAFETY: passed on.
    unsafe { real::readv(fd, vectors, count) }
}

/// Descriptors from one to another are about to be closed. A program closes none but its own; but one that closes all it could have, as daemons do, would
/// take those from a load that is under way: that is finished first.
fn closing(first: c_uint, last: c_uint) {
    // A child of `vfork` has descriptors of its own.
    if loading::are_any() && forks::is_own_process() {
        let _ = within(|| {
            if first != last || loading::may_be_of_a_load(first as c_int) {
                loading::finish(|_| true);
            }
        });
    }
}

/// See `close(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    closing(fd as c_uint, fd as c_uint);
    // SAFETY: passed on.
    unsafe { real::close(fd) }
}

/// See `close_range(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        closing(first, last);
    }
    // SAFETY: passed on.
    unsafe { real::close_range(first, last, flags) }
}

/// See `closefrom(3)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn closefrom(first: c_int) {
    closing(first.max(0) as c_uint, c_uint::MAX);
    // SAFETY: passed on.
    unsafe { real::closefrom(first) }
}

/// See `dup2(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup2(old: c_int, new: c_int) -> c_int {
    closing(new as c_uint, new as c_uint);
    // SAFETY: passed on.
    unsafe { real::dup2(old, new) }
}

/// See `dup3(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    closing(new as c_uint, new as c_uint);
    // SAFETY: passed on.
    unsafe { real::dup3(old, new, flags) }
}
