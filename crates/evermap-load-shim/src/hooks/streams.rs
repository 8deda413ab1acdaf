//! Hooks for `fread` and its variants.

use std::ffi::c_void;

use crate::inside::{set_errno, within};
use crate::reads::BYTES_MIN;
use crate::{real, settings, streams};

/// Returns the number of bytes requested, if it is large enough to load.
fn large_request(size: usize, count: usize) -> Option<usize> {
    let bytes = size.checked_mul(count)?;
    (bytes >= 2 * BYTES_MIN && settings::are_active()).then_some(bytes)
}

/// See `fread(3)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fread(
    buffer: *mut c_void,
    size: usize,
    count: usize,
    stream: *mut libc::FILE,
) -> usize {
    if large_request(size, count).is_some() {
        // SAFETY: the caller meets the contract of `fread`. The stream is locked as `fread` locks
        // it, and the lock is recursive.
        unsafe {
            real::flockfile(stream);
            let read_bytes = fread_unlocked(buffer, size, count, stream);
            real::funlockfile(stream);
            return read_bytes;
        }
    }
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
    unsafe { real::fread(buffer, size, count, stream) }
}

/// See `unlocked_stdio(3)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn fread_unlocked(
    buffer: *mut c_void,
    size: usize,
    count: usize,
    stream: *mut libc::FILE,
) -> usize {
    if let Some(bytes) = large_request(size, count) {
        // SAFETY: the caller meets the contract of `fread_unlocked`.
        let read_bytes = within(|| unsafe { streams::read(buffer, bytes, stream) });
        if let Some((read_bytes, errno)) = read_bytes.flatten() {
            if read_bytes < bytes {
                set_errno(errno);
            }
            return read_bytes / size;
        }
    }
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
    unsafe { real::fread_unlocked(buffer, size, count, stream) }
}

fn fits(size: usize, count: usize, buffer_bytes: usize) -> bool {
    size.checked_mul(count).is_some_and(|bytes| bytes <= buffer_bytes)
}

/// Like `fread`, from programs compiled with buffer checks.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __fread_chk(
    buffer: *mut c_void,
    buffer_bytes: usize,
    size: usize,
    count: usize,
    stream: *mut libc::FILE,
) -> usize {
    if !fits(size, count, buffer_bytes) {
        // SAFETY: ends the program, as the C library does for a short buffer.
        unsafe { real::__chk_fail() };
    }
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
    unsafe { fread(buffer, size, count, stream) }
}

/// Like `fread_unlocked`, from programs compiled with buffer checks.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __fread_unlocked_chk(
    buffer: *mut c_void,
    buffer_bytes: usize,
    size: usize,
    count: usize,
    stream: *mut libc::FILE,
) -> usize {
    if !fits(size, count, buffer_bytes) {
        // SAFETY: ends the program, as the C library does for a short buffer.
        unsafe { real::__chk_fail() };
    }
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
    unsafe { fread_unlocked(buffer, size, count, stream) }
}
