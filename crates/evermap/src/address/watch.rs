//! Asynchronous write protection (`userfaultfd` with `UFFD_FEATURE_WP_ASYNC`, Linux 6.7).
//!
//! The kernel unprotects a page that a scan write-protected at the first store to it, without
//! waking any thread: the protection is only a mark that the next scan reads. It needs no privilege
//! and no thread that handles faults. Not for DAX mappings: on 6.12, a read of a protected page
//! that was not present never returned.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Registration of address ranges. Ends when dropped.
#[derive(Debug)]
pub(super) struct WriteWatch {
    descriptor: OwnedFd,
}

/// `struct uffdio_api`.
#[repr(C)]
struct UffdioApi {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
struct UffdioRegister {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
}

const UFFD_USER_MODE_ONLY: libc::c_int = 1;
const UFFD_API: u64 = 0xaa;
const UFFD_FEATURE_WP_ASYNC: u64 = 1 << 15;
/// `_IOWR(0xaa, 0x3f, struct uffdio_api)`.
const UFFDIO_API: libc::c_ulong = 3 << 30 | 24 << 16 | 0xaa << 8 | 0x3f;
/// `_IOWR(0xaa, 0x00, struct uffdio_register)`.
const UFFDIO_REGISTER: libc::c_ulong = 3 << 30 | 32 << 16 | 0xaa << 8;
const UFFDIO_REGISTER_MODE_WP: u64 = 1 << 1;

impl WriteWatch {
    /// Returns `None` if the kernel does not support or does not allow it.
    pub(super) fn new() -> Option<WriteWatch> {
        // The kernel's own faults (a `read` into the heap) need no handler either, so the mode that
        // every user may use is sufficient.
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | UFFD_USER_MODE_ONLY;
        // SAFETY: the call takes no pointers.
        let descriptor = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let descriptor = i32::try_from(descriptor).ok().filter(|d| *d >= 0)?;
        // SAFETY: the kernel has just returned this descriptor.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let mut api = UffdioApi { api: UFFD_API, features: UFFD_FEATURE_WP_ASYNC, ioctls: 0 };
        // SAFETY: the structure is the one that the ioctl expects and lives through the call.
        let result = unsafe { libc::ioctl(descriptor.as_raw_fd(), UFFDIO_API as _, &raw mut api) };
        (result == 0 && api.features & UFFD_FEATURE_WP_ASYNC != 0)
            .then_some(WriteWatch { descriptor })
    }

    /// Registers mapped addresses. Addresses that are already registered are not an error.
    pub(super) fn add(&self, start: u64, end: u64) -> bool {
        let mut range =
            UffdioRegister { start, length: end - start, mode: UFFDIO_REGISTER_MODE_WP, ioctls: 0 };
        // SAFETY: the structure is the one that the ioctl expects and lives through the call.
        // Registering changes neither contents nor rights, and no handler is notified.
        let result = unsafe {
            libc::ioctl(self.descriptor.as_raw_fd(), UFFDIO_REGISTER as _, &raw mut range)
        };
        result == 0
    }
}
