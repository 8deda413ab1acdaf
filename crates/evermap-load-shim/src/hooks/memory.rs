//! Hooks for addresses.

use std::ffi::{c_int, c_void};

use crate::images::{self, MapCall, RemapCall};
use crate::inside::{set_errno, within};
use crate::{loading, real, settings};

/// See `mmap(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn mmap(
    address: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let asked = MapCall { address, bytes, protection, flags, fd, offset };
    if flags & libc::MAP_FIXED != 0 && loading::may_have(address as usize, bytes) {
        let start = address as usize;
        let _ = within(|| images::forget(start, start.saturating_add(bytes)));
    }
    if asked.is_candidate() && settings::are_active() {
        match within(|| images::map(&asked)).flatten() {
            Some(Ok(address)) => return address as *mut c_void,
            Some(Err(errno)) => {
                set_errno(errno);
                return libc::MAP_FAILED;
            }
            None => {}
        }
    }
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
    unsafe { real::mmap(address, bytes, protection, flags, fd, offset) }
}

/// See `mmap(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn mmap64(
    address: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
    unsafe { mmap(address, bytes, protection, flags, fd, offset) }
}

fn status(result: Result<(), i32>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

/// See `munmap(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn munmap(address: *mut c_void, bytes: usize) -> c_int {
    if loading::may_have(address as usize, bytes)
        && let Some(result) = within(|| images::unmap(address as usize, bytes))
    {
        return status(result);
    }
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
    unsafe { real::munmap(address, bytes) }
}

/// See `mremap(2)`. The C library declares the last argument as variadic; the calling convention is
/// the same.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn mremap(
    address: *mut c_void,
    bytes: usize,
    new_bytes: usize,
    flags: c_int,
    new_address: *mut c_void,
) -> *mut c_void {
    let moved = RemapCall { address, bytes, new_bytes, flags, new_address };
    let is_fixed = flags & libc::MREMAP_FIXED != 0;
    if (loading::may_have(address as usize, bytes)
        || (is_fixed && loading::may_have(new_address as usize, new_bytes)))
        && let Some(result) = within(|| images::remap(&moved))
    {
        return match result {
            Ok(address) => address as *mut c_void,
            Err(errno) => {
                set_errno(errno);
                libc::MAP_FAILED
            }
        };
    }
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
    unsafe { real::mremap(address, bytes, new_bytes, flags, new_address) }
}

/// Linux 5.18: `MADV_DONTNEED` for locked memory too.
const MADV_DONTNEED_LOCKED: c_int = 24;

/// See `madvise(2)`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn madvise(address: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    let start = address as usize;
    if loading::may_have(start, bytes) {
        let done = match advice {
            libc::MADV_DONTNEED
            | MADV_DONTNEED_LOCKED
            | libc::MADV_FREE
            | libc::MADV_WIPEONFORK => within(|| images::discard(start, bytes, advice)),
            // A running load sets these itself, so finish it first.
            libc::MADV_DONTFORK | libc::MADV_DOFORK => {
                let _ = within(|| loading::finish_between(start, start.saturating_add(bytes)));
                None
            }
            _ => None,
        };
        if let Some(result) = done {
            return status(result);
        }
    }
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
    unsafe { real::madvise(address, bytes, advice) }
}

/// See `mprotect(2)`. Loads move pages only to writable memory.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn mprotect(
    address: *mut c_void,
    bytes: usize,
    protection: c_int,
) -> c_int {
    let start = address as usize;
    if loading::has_loads() && loading::may_have(start, bytes) {
        let _ = within(|| loading::finish_between(start, start.saturating_add(bytes)));
    }
    // SAFETY: the caller meets the contract of the C function, which gets its arguments unchanged.
    unsafe { real::mprotect(address, bytes, protection) }
}
