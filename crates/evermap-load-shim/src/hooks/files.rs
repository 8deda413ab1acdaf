//! Hooks for descriptors: long reads, and calls that could close a descriptor of a load.

use std::ffi::{c_int, c_uint, c_void};

use crate::inside::{set_errno, within};
use crate::reads::{self, BYTES_MIN, Buffer};
use crate::{forks, loading, real, settings};

fn to_result(result: Result<usize, i32>) -> isize {
    match result {
        Ok(read_bytes) => read_bytes as isize,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

fn is_candidate(bytes: usize) -> bool {
    (BYTES_MIN..=isize::MAX as usize).contains(&bytes) && settings::are_active()
}

/// See `read(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn read(fd: c_int, buffer: *mut c_void, bytes: usize) -> isize {
    if is_candidate(bytes) {
        // SAFETY: `read` is a cancellation point, as the caller expects.
        unsafe { real::pthread_testcancel() };
        let buffers = [Buffer { address: buffer as usize, bytes }];
        if let Some(result) = within(|| reads::read(fd, &buffers)).flatten() {
            return to_result(result);
        }
    }
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
    unsafe { real::read(fd, buffer, bytes) }
}

/// Like `read`, from programs compiled with buffer checks.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    buffer: *mut c_void,
    bytes: usize,
    buffer_bytes: usize,
) -> isize {
    if bytes > buffer_bytes {
        // SAFETY: ends the program, as the C library does for a short buffer.
        unsafe { real::__chk_fail() };
    }
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
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
    if is_candidate(bytes) {
        // SAFETY: `pread` is a cancellation point, as the caller expects.
        unsafe { real::pthread_testcancel() };
        let into = Buffer { address: buffer as usize, bytes };
        if let Some(result) = within(|| reads::read_at(fd, into, offset)).flatten() {
            return to_result(result);
        }
    }
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
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
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
    unsafe { pread64(fd, buffer, bytes, offset) }
}

/// Like `pread`, from programs compiled with buffer checks.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __pread64_chk(
    fd: c_int,
    buffer: *mut c_void,
    bytes: usize,
    offset: i64,
    buffer_bytes: usize,
) -> isize {
    if bytes > buffer_bytes {
        // SAFETY: ends the program, as the C library does for a short buffer.
        unsafe { real::__chk_fail() };
    }
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
    unsafe { pread64(fd, buffer, bytes, offset) }
}

/// Like `pread`, from programs compiled with buffer checks.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __pread_chk(
    fd: c_int,
    buffer: *mut c_void,
    bytes: usize,
    offset: i64,
    buffer_bytes: usize,
) -> isize {
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
    unsafe { __pread64_chk(fd, buffer, bytes, offset, buffer_bytes) }
}

/// See `readv(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn readv(fd: c_int, vectors: *const libc::iovec, count: c_int) -> isize {
    // Arguments that the kernel accepts. Pass all others on, to be refused by the kernel.
    let is_array = !vectors.is_null() && vectors.is_aligned();
    if is_array && (1..=1024).contains(&count) && settings::are_active() {
        // SAFETY: the program passes an array of `count` vectors.
        let vectors = unsafe { std::slice::from_raw_parts(vectors, count as usize) };
        let total = vectors.iter().fold(0usize, |sum, one| sum.saturating_add(one.iov_len));
        if is_candidate(total) {
            // SAFETY: `readv` is a cancellation point, as the caller expects.
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
                return to_result(result);
            }
        }
    }
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
    unsafe { real::readv(fd, vectors, count) }
}

/// Called before a range of descriptors is closed. Programs close their own descriptors, but some,
/// such as daemons, close all possible ones. That would close descriptors of a running load, so
/// finish loads first.
fn closing(first: c_uint, last: c_uint) {
    // A child of `vfork` has its own descriptors.
    if loading::has_loads() && forks::is_own_process() {
        let _ = within(|| {
            if first != last || loading::may_belong_to_load(first as c_int) {
                loading::finish(|_| true);
            }
        });
    }
}

/// See `close(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    closing(fd as c_uint, fd as c_uint);
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
    unsafe { real::close(fd) }
}

/// See `close_range(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        closing(first, last);
    }
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
    unsafe { real::close_range(first, last, flags) }
}

/// See `closefrom(3)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn closefrom(first: c_int) {
    closing(first.max(0) as c_uint, c_uint::MAX);
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
    unsafe { real::closefrom(first) }
}

/// See `dup2(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup2(old: c_int, new: c_int) -> c_int {
    closing(new as c_uint, new as c_uint);
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
    unsafe { real::dup2(old, new) }
}

/// See `dup3(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    closing(new as c_uint, new as c_uint);
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
    unsafe { real::dup3(old, new, flags) }
}
