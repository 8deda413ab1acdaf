//! `fread` and its like.

use std::ffi::c_void;

use crate::inside::{set_errno, within};
use crate::reads::BYTES_MIN;
use crate::{real, settings, streams};

/// Bytes that are asked for, if that is much.
fn much(size: usize, count: usize) -> Option<usize> {
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
    if much(size, count).is_some() {
        // SAFETY: passed on; the stream is locked as `fread` locks it, which may be done more than once.
        unsafe {
            real::flockfile(stream);
            let came = fread_unlocked(buffer, size, count, stream);
            real::funlockfile(stream);
            return came;
        }
    }
    // SAFETY: passed on.
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
    if let Some(bytes) = much(size, count) {
        // SAFETY: passed on.
        let came = within(|| unsafe { streams::read(buffer, bytes, stream) });
        if let Some((came, errno)) = came.flatten() {
            if came < bytes {
                set_errno(errno);
            }
            return came / size;
        }
    }
    // SAFETY: passed on.
    unsafe { real::fread_unlocked(buffer, size, count, stream) }
}

fn fits(size: usize, count: usize, buffer_bytes: usize) -> bool {
    size.checked_mul(count).is_some_and(|bytes| bytes <= buffer_bytes)
}

/// As `fread`, of a program that was compiled to check its buffers.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __fread_chk(
    buffer: *mut c_void,
    buffer_bytes: usize,
    size: usize,
    count: usize,
    stream: *mut libc::FILE,
) -> usize {
    if !fits(size, count, buffer_bytes) {
        // SAFETY: ends the program, as it wants.
        unsafe { real::__chk_fail() };
    }
    // SAFETY: passed on.
    unsafe { fread(buffer, size, count, stream) }
}

/// The same for `fread_unlocked`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn __fread_unlocked_chk(
    buffer: *mut c_void,
    buffer_bytes: usize,
    size: usize,
    count: usize,
    stream: *mut libc::FILE,
) -> usize {
    if !fits(size, count, buffer_bytes) {
        // SAFETY: ends the program, as it wants.
        unsafe { real::__chk_fail() };
    }
    // SAFETY: passed on.
    unsafe { fread_unlocked(buffer, size, count, stream) }
}
