//! Asynchronous write protection (`userfaultfd` with `UFFD_FEATURE_WP_ASYNC`, Linux 6.7).
//!
//! A page that a scan has write-protected is unprotected by the kernel at the first store to it,
//! without waking anybody: the protection is only a mark that the next scan reads. No privilege is
//! needed, no thread handles faults. Not for DAX mappings: on 6.12 a read of a protected page that
//! was not there never returned.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A registration of address ranges; ends when dropped.
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
    /// `None` where the kernel has no such thing or forbids it.
    pub(super) fn new() -> Option<WriteWatch> {
        // Faults of the kernel's own (a `read` into the heap) need no handler either, so the
        // mode that every user may have is enough.
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | UFFD_USER_MODE_ONLY;
        // SAFETY: the call takes no pointers.
        let descriptor = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let descriptor = i32::try_from(descriptor).ok().filter(|d| *d >= 0)?;
        // SAFETY: the kernel has just given us this descriptor.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let mut api = UffdioApi { api: UFFD_API, features: UFFD_FEATURE_WP_ASYNC, ioctls: 0 };
        // SAFETY: the structure is the ioctl's and lives through the call.
        let result = unsafe { libc::ioctl(descriptor.as_raw_fd(), UFFDIO_API as _, &raw mut api) };
        (result == 0 && api.features & UFFD_FEATURE_WP_ASYNC != 0)
            .then_some(WriteWatch { descriptor })
    }

    /// Registers mapped addresses; those that are registered already are no error.
    pub(super) fn add(&self, start: u64, end: u64) -> bool {
        let mut range =
            UffdioRegister { start, length: end - start, mode: UFFDIO_REGISTER_MODE_WP, ioctls: 0 };
        // SAFETY: the structure is the ioctl's and lives through the call; registering changes
        // neither contents nor rights, only who is told of stores to protected pages: nobody.
        let result = unsafe {
            libc::ioctl(self.descriptor.as_raw_fd(), UFFDIO_REGISTER as _, &raw mut range)
        };
        result == 0
    }
}
