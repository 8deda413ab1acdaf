//! `userfaultfd(2)`: the kernel asks this process to supply missing pages.
//!
//! Pages are moved into place (Linux 6.8): a page read elsewhere changes its address without a
//! copy. Registered ranges belong to an image's memory. This module does not access their bytes.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::mm::{UserfaultfdFlags, userfaultfd};

/// ioctl group of userfaultfd.
const GROUP: u8 = 0xaa;
/// API version.
const API: u64 = 0xaa;
const FEATURE_WRITE_PROTECT: u64 = 1 << 0;
const FEATURE_POISON: u64 = 1 << 14;
/// The kernel records writes to protected pages without a fault to user space (Linux 6.7).
const FEATURE_WRITES_NOTED: u64 = 1 << 15;
const FEATURE_MOVE: u64 = 1 << 16;
const REGISTER_MODE_MISSING: u64 = 1;
const REGISTER_MODE_WRITE_PROTECT: u64 = 2;
const COPY_MODE_WRITE_PROTECT: u64 = 2;
const FAULT_WRITE: u64 = 1;
const EVENT_PAGEFAULT: u8 = 0x12;
/// Number of messages per read.
const MESSAGES: usize = 32;

#[repr(C)]
struct ApiCall {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Range {
    start: u64,
    bytes: u64,
}

#[repr(C)]
struct Register {
    range: Range,
    mode: u64,
    ioctls: u64,
}

/// `uffdio_copy` and `uffdio_move`, which have the same layout.
#[repr(C)]
struct Place {
    target: u64,
    source: u64,
    bytes: u64,
    mode: u64,
    done_bytes: i64,
}

#[repr(C)]
struct Poison {
    range: Range,
    mode: u64,
    done_bytes: i64,
}

/// Size of a message, `uffd_msg`: event in byte 0; for a page fault, flags at 8 and address at 16.
const MESSAGE_BYTES: usize = 32;

const _: () = assert!(size_of::<Place>() == 40 && size_of::<Register>() == 32);

const UFFDIO_API: Opcode = opcode::read_write::<ApiCall>(GROUP, 0x3f);
const UFFDIO_REGISTER: Opcode = opcode::read_write::<Register>(GROUP, 0x00);
const UFFDIO_UNREGISTER: Opcode = opcode::read::<Range>(GROUP, 0x01);
const UFFDIO_WAKE: Opcode = opcode::read::<Range>(GROUP, 0x02);
const UFFDIO_COPY: Opcode = opcode::read_write::<Place>(GROUP, 0x03);
const UFFDIO_MOVE: Opcode = opcode::read_write::<Place>(GROUP, 0x05);
const UFFDIO_POISON: Opcode = opcode::read_write::<Poison>(GROUP, 0x08);
const USERFAULTFD_IOC_NEW: Opcode = opcode::none(GROUP, 0x00);

/// Faults that are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Faults in user mode and in system calls.
    All,
    /// Faults in user mode only. A system call on a missing page fails with `EFAULT`.
    UserMode,
}

/// Kinds of filling missing pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FillMode {
    /// Move the pages to a new address.
    Move,
    /// Copy their contents.
    Copy,
}

/// A page fault: a thread waits for a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) address: usize,
    /// True if the access is a write.
    pub(crate) is_write: bool,
}

/// An open userfaultfd. Closing it makes missing pages read as zeros, so close it only when all are
/// present.
#[derive(Debug)]
pub(crate) struct Userfault {
    fd: OwnedFd,
    scope: Scope,
    /// True if the kernel reports which pages were written.
    notes_writes: bool,
}

impl Userfault {
    /// Opens a userfaultfd that moves and poisons pages, for all faults if permitted. Returns the
    /// reason if that is impossible.
    pub(crate) fn new() -> Result<Userfault, String> {
        Userfault::with(FEATURE_MOVE | FEATURE_POISON)?.ok_or_else(|| {
            "this kernel's userfaultfd cannot move pages; Linux 6.8 or later is required".into()
        })
    }

    /// Opens a userfaultfd that poisons pages and, if supported, records writes.
    pub(crate) fn for_recording() -> Result<Userfault, String> {
        let noting = FEATURE_WRITE_PROTECT | FEATURE_WRITES_NOTED;
        if let Some(userfault) = Userfault::with(FEATURE_POISON | noting)? {
            return Ok(userfault);
        }
        Userfault::with(FEATURE_POISON)?.ok_or_else(|| {
            "this kernel's userfaultfd cannot poison pages; Linux 6.6 or later is required".into()
        })
    }

    /// Opens a userfaultfd with these features. Returns `None` if the kernel lacks them.
    fn with(features: u64) -> Result<Option<Userfault>, String> {
        let (fd, scope) = open()?;
        let mut api = ApiCall { api: API, features, ioctls: 0 };
        // SAFETY: the ioctl number belongs to the structure, which lives through the call.
        let outcome = unsafe { ioctl(&fd, Updater::<UFFDIO_API, ApiCall>::new(&mut api)) };
        let notes_writes = features & FEATURE_WRITES_NOTED != 0;
        Ok(outcome.is_ok().then_some(Userfault { fd, scope, notes_writes }))
    }

    /// Returns true if the kernel records writes to pages copied here.
    pub(crate) fn notes_writes(&self) -> bool {
        self.notes_writes
    }

    /// Returns which faults are served.
    pub(crate) fn scope(&self) -> Scope {
        self.scope
    }

    /// Registers a range, whose missing pages then cause faults.
    ///
    /// # Safety
    ///
    /// The range is anonymous memory of the caller that holds no data yet.
    pub(crate) unsafe fn register(&self, address: usize, bytes: usize) -> Result<(), Errno> {
        let range = Range { start: address as u64, bytes: bytes as u64 };
        let writes = if self.notes_writes { REGISTER_MODE_WRITE_PROTECT } else { 0 };
        let mut register = Register { range, mode: REGISTER_MODE_MISSING | writes, ioctls: 0 };
        // SAFETY: the ioctl number belongs to the structure, and the range belongs to the caller.
        unsafe { ioctl(&self.fd, Updater::<UFFDIO_REGISTER, Register>::new(&mut register)) }
    }

    /// Unregisters a range. Its missing pages then read as zeros.
    pub(crate) fn unregister(&self, address: usize, bytes: usize) -> Result<(), Errno> {
        let mut range = Range { start: address as u64, bytes: bytes as u64 };
        // SAFETY: the ioctl number belongs to the structure; unregistered memory is not affected.
        unsafe { ioctl(&self.fd, Updater::<UFFDIO_UNREGISTER, Range>::new(&mut range)) }
    }

    /// Wakes threads that wait for pages of this range. They repeat their access.
    pub(crate) fn wake(&self, address: usize, bytes: usize) -> Result<(), Errno> {
        let mut range = Range { start: address as u64, bytes: bytes as u64 };
        // SAFETY: the ioctl number belongs to the structure; no page changes.
        unsafe { ioctl(&self.fd, Updater::<UFFDIO_WAKE, Range>::new(&mut range)) }
    }

    /// Fills missing pages of a registered range and wakes threads that wait there. Returns the
    /// number of bytes filled, also on failure.
    ///
    /// # Safety
    ///
    /// `source` is readable memory of the caller. To be moved, it must be anonymous, with all pages
    /// present and no other user. Moved pages are gone from there afterwards.
    pub(crate) unsafe fn place(
        &self,
        fill: FillMode,
        target: usize,
        source: usize,
        bytes: usize,
    ) -> (usize, Result<(), Errno>) {
        let mode = match fill {
            FillMode::Copy if self.notes_writes => COPY_MODE_WRITE_PROTECT,
            _ => 0,
        };
        let mut place = Place {
            target: target as u64,
            source: source as u64,
            bytes: bytes as u64,
            mode,
            done_bytes: 0,
        };
        // SAFETY: the ioctl numbers belong to the structure; the kernel fills only missing pages in
        // registered ranges.
        let result = unsafe {
            match fill {
                FillMode::Move => ioctl(&self.fd, Updater::<UFFDIO_MOVE, Place>::new(&mut place)),
                FillMode::Copy => ioctl(&self.fd, Updater::<UFFDIO_COPY, Place>::new(&mut place)),
            }
        };
        (usize::try_from(place.done_bytes).unwrap_or(0), result)
    }

    /// Poisons missing pages of a range. An access to them raises SIGBUS from now on, also in
    /// threads that already wait.
    pub(crate) fn poison(&self, address: usize, bytes: usize) {
        let mut done = 0;
        while done < bytes {
            match self.poison_some(address + done, bytes - done) {
                (poisoned, Ok(())) if poisoned > 0 => done += poisoned,
                (poisoned, Err(Errno::AGAIN)) => done += poisoned,
                // A present page stays unchanged.
                (poisoned, Err(Errno::EXIST)) => done += poisoned.max(super::page_bytes()),
                _ => break,
            }
        }
        let _ = self.wake(address, bytes);
    }

    /// Makes one call and returns the number of bytes poisoned.
    fn poison_some(&self, address: usize, bytes: usize) -> (usize, Result<(), Errno>) {
        let range = Range { start: address as u64, bytes: bytes as u64 };
        let mut poison = Poison { range, mode: 0, done_bytes: 0 };
        // SAFETY: the ioctl number belongs to the structure; only missing pages of registered
        // ranges change.
        let result = unsafe { ioctl(&self.fd, Updater::<UFFDIO_POISON, Poison>::new(&mut poison)) };
        (usize::try_from(poison.done_bytes).unwrap_or(0), result)
    }

    /// Returns pending faults without waiting.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        loop {
            let mut messages = [[0u8; MESSAGE_BYTES]; MESSAGES];
            let Ok(bytes) = rustix::io::read(&self.fd, messages.as_flattened_mut()) else {
                return faults;
            };
            for message in &messages[..bytes / MESSAGE_BYTES] {
                let word = |at: usize| {
                    let mut word = [0; 8];
                    word.copy_from_slice(&message[at..at + 8]);
                    u64::from_ne_bytes(word)
                };
                if message[0] == EVENT_PAGEFAULT {
                    let is_write = word(8) & FAULT_WRITE != 0;
                    faults.push(Fault { address: word(16) as usize, is_write });
                }
            }
            if bytes < size_of_val(&messages) {
                return faults;
            }
        }
    }
}

impl AsFd for Userfault {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens a userfaultfd: by the device, whose permissions can admit a user; by the system call, for
/// privileged processes; else for user mode only, for any process.
fn open() -> Result<(OwnedFd, Scope), String> {
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    if let Some(fd) = open_by_device(flags) {
        return Ok((fd, Scope::All));
    }
    // SAFETY: only this module uses the descriptor, and its functions document their requirements.
    if let Ok(fd) = unsafe { userfaultfd(flags) } {
        return Ok((fd, Scope::All));
    }
    // Linux 5.11: UFFD_USER_MODE_ONLY.
    let flags = flags | UserfaultfdFlags::from_bits_retain(1);
    // SAFETY: only this module uses the descriptor, and its functions document their requirements.
    let opened = unsafe { userfaultfd(flags) };
    opened.map(|fd| (fd, Scope::UserMode)).map_err(|errno| match errno {
        Errno::NOSYS => "this kernel has no userfaultfd".to_string(),
        Errno::PERM | Errno::ACCESS => {
            "userfaultfd is not permitted, as in many containers: allow the system call, \
             or give access to /dev/userfaultfd"
                .to_string()
        }
        errno => format!("userfaultfd is not available: {errno}"),
    })
}

fn open_by_device(flags: UserfaultfdFlags) -> Option<OwnedFd> {
    use std::os::fd::AsRawFd;
    let device = std::fs::File::options().read(true).write(true).open("/dev/userfaultfd").ok()?;
    // SAFETY: the call takes flags by value and returns a new descriptor or -1.
    let fd = unsafe {
        libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW as _, flags.bits() as libc::c_ulong)
    };
    // SAFETY: the descriptor was just created and has no other owner.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}
