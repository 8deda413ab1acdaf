//! `userfaultfd(2)`: the kernel asks this process for pages that are missing.
//!
//! Pages are moved into place (Linux 6.8): a page that was read elsewhere changes its address, and is copied by nobody.
//! What is registered belongs to an image's memory; nothing here looks at its bytes.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::mm::{UserfaultfdFlags, userfaultfd};

/// The first byte of all its ioctls' numbers.
const GROUP: u8 = 0xaa;
/// The version of its interface.
const API: u64 = 0xaa;
const FEATURE_WRITE_PROTECT: u64 = 1 << 0;
const FEATURE_POISON: u64 = 1 << 14;
/// Writes to protected pages are noted by the kernel, and wait for nobody (Linux 6.7).
const FEATURE_WRITES_NOTED: u64 = 1 << 15;
const FEATURE_MOVE: u64 = 1 << 16;
const REGISTER_MODE_MISSING: u64 = 1;
const REGISTER_MODE_WRITE_PROTECT: u64 = 2;
const COPY_MODE_WRITE_PROTECT: u64 = 2;
const FAULT_WRITE: u64 = 1;
const EVENT_PAGEFAULT: u8 = 0x12;
/// Messages that are read at a time.
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

/// `uffdio_copy` and `uffdio_move` are laid out alike.
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

/// Bytes of a message, `uffd_msg`: an event in the first; of a page fault flags at 8, an address at 16.
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

/// Whose faults are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The program's and, within its system calls, the kernel's.
    All,
    /// The program's only: a system call on a missing page is `EFAULT`.
    UserMode,
}

/// How pages are put where they are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// They change their address.
    Move,
    /// Others get their contents.
    Copy,
}

/// A thread waits for a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) address: usize,
    /// It writes to it.
    pub(crate) is_write: bool,
}

/// An open userfaultfd. Closing it makes pages that are missing read as zeros: not before all are there.
#[derive(Debug)]
pub(crate) struct Userfault {
    fd: OwnedFd,
    scope: Scope,
    /// Which pages are written can be asked of the kernel.
    notes_writes: bool,
}

impl Userfault {
    /// Opens one that moves and poisons pages; one for all faults, if this process may have it. Says what is missing.
    pub(crate) fn new() -> Result<Userfault, String> {
        Userfault::with(FEATURE_MOVE | FEATURE_POISON)?
            .ok_or_else(|| "this kernel's userfaultfd does not move pages: Linux 6.8 does".into())
    }

    /// Opens one that poisons pages and, if the kernel can, has it note which are written.
    pub(crate) fn for_recording() -> Result<Userfault, String> {
        let noting = FEATURE_WRITE_PROTECT | FEATURE_WRITES_NOTED;
        if let Some(userfault) = Userfault::with(FEATURE_POISON | noting)? {
            return Ok(userfault);
        }
        Userfault::with(FEATURE_POISON)?
            .ok_or_else(|| "this kernel's userfaultfd does not poison pages: Linux 6.6 does".into())
    }

    /// With these features, if the kernel has them.
    fn with(features: u64) -> Result<Option<Userfault>, String> {
        let (fd, scope) = open()?;
        let mut api = ApiCall { api: API, features, ioctls: 0 };
        // SAFETY: the number goes with the structure, which the kernel writes within the call.
        let outcome = unsafe { ioctl(&fd, Updater::<UFFDIO_API, ApiCall>::new(&mut api)) };
        let notes_writes = features & FEATURE_WRITES_NOTED != 0;
        Ok(outcome.is_ok().then_some(Userfault { fd, scope, notes_writes }))
    }

    /// Whether the kernel notes which pages are written that were copied here.
    pub(crate) fn notes_writes(&self) -> bool {
        self.notes_writes
    }

    /// Whose faults it serves.
    pub(crate) fn scope(&self) -> Scope {
        self.scope
    }

    /// From now on pages that are missing in this range are asked for.
    ///
    /// # Safety
    ///
    /// The range is anonymous memory of the caller's, and no page in it was used that counts.
    pub(crate) unsafe fn register(&self, address: usize, bytes: usize) -> Result<(), Errno> {
        let range = Range { start: address as u64, bytes: bytes as u64 };
        let writes = if self.notes_writes { REGISTER_MODE_WRITE_PROTECT } else { 0 };
        let mut register = Register { range, mode: REGISTER_MODE_MISSING | writes, ioctls: 0 };
        // SAFETY: number and structure belong together; the range is the caller's.
        unsafe { ioctl(&self.fd, Updater::<UFFDIO_REGISTER, Register>::new(&mut register)) }
    }

    /// Pages that are missing in this range are nobody's business any more: they read as zeros.
    pub(crate) fn unregister(&self, address: usize, bytes: usize) -> Result<(), Errno> {
        let mut range = Range { start: address as u64, bytes: bytes as u64 };
        // SAFETY: number and structure belong together; what is not registered is left alone.
        unsafe { ioctl(&self.fd, Updater::<UFFDIO_UNREGISTER, Range>::new(&mut range)) }
    }

    /// Lets threads go on that wait for pages of this range: they look again.
    pub(crate) fn wake(&self, address: usize, bytes: usize) -> Result<(), Errno> {
        let mut range = Range { start: address as u64, bytes: bytes as u64 };
        // SAFETY: number and structure belong together; no page changes.
        unsafe { ioctl(&self.fd, Updater::<UFFDIO_WAKE, Range>::new(&mut range)) }
    }

    /// Puts pages into a registered range where they are missing, and wakes who waits there. Says how many bytes it put there before it
    /// failed, too.
    ///
    /// # Safety
    ///
    /// `source` is memory of the caller's that can be read. To be moved it must be anonymous, with all pages present, and nobody else's;
    /// the pages are gone from there afterwards.
    pub(crate) unsafe fn place(
        &self,
        how: How,
        target: usize,
        source: usize,
        bytes: usize,
    ) -> (usize, Result<(), Errno>) {
        let mode = match how {
            How::Copy if self.notes_writes => COPY_MODE_WRITE_PROTECT,
            _ => 0,
        };
        let mut place = Place {
            target: target as u64,
            source: source as u64,
            bytes: bytes as u64,
            mode,
            done_bytes: 0,
        };
        // SAFETY: numbers and structure belong together; the kernel puts pages only where none are, in registered ranges.
        let result = unsafe {
            match how {
                How::Move => ioctl(&self.fd, Updater::<UFFDIO_MOVE, Place>::new(&mut place)),
                How::Copy => ioctl(&self.fd, Updater::<UFFDIO_COPY, Place>::new(&mut place)),
            }
        };
        (usize::try_from(place.done_bytes).unwrap_or(0), result)
    }

    /// Whoever touches a page of this range that is missing, or waits for it, gets SIGBUS from now on, and never zeros.
    pub(crate) fn poison(&self, address: usize, bytes: usize) {
        let mut done = 0;
        while done < bytes {
            match self.poison_some(address + done, bytes - done) {
                (poisoned, Ok(())) if poisoned > 0 => done += poisoned,
                (poisoned, Err(Errno::AGAIN)) => done += poisoned,
                // A page that is there stays as it is.
                (poisoned, Err(Errno::EXIST)) => done += poisoned.max(super::page_bytes()),
                _ => break,
            }
        }
        let _ = self.wake(address, bytes);
    }

    /// One call; says how many bytes were poisoned.
    fn poison_some(&self, address: usize, bytes: usize) -> (usize, Result<(), Errno>) {
        let range = Range { start: address as u64, bytes: bytes as u64 };
        let mut poison = Poison { range, mode: 0, done_bytes: 0 };
        // SAFETY: number and structure belong together; only missing pages of registered ranges are changed.
        let result = unsafe { ioctl(&self.fd, Updater::<UFFDIO_POISON, Poison>::new(&mut poison)) };
        (usize::try_from(poison.done_bytes).unwrap_or(0), result)
    }

    /// The faults that nobody has taken yet; none if there are none. Never waits.
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

/// By the device, which permissions can open to a user; by the system call, for who may; for user mode only, for everybody.
fn open() -> Result<(OwnedFd, Scope), String> {
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    if let Some(fd) = open_by_device(flags) {
        return Ok((fd, Scope::All));
    }
    // SAFETY: the descriptor is used by this module only, which keeps to what its functions say.
    if let Ok(fd) = unsafe { userfaultfd(flags) } {
        return Ok((fd, Scope::All));
    }
    // Linux 5.11: UFFD_USER_MODE_ONLY.
    let flags = flags | UserfaultfdFlags::from_bits_retain(1);
    // SAFETY: as above.
    let opened = unsafe { userfaultfd(flags) };
    opened.map(|fd| (fd, Scope::UserMode)).map_err(|errno| match errno {
        Errno::NOSYS => "this kernel has no userfaultfd".to_string(),
        Errno::PERM | Errno::ACCESS => {
            "userfaultfd is forbidden here, as it is in many containers: allow the system call, \
             or give access to /dev/userfaultfd"
                .to_string()
        }
        errno => format!("no userfaultfd is to be had: {errno}"),
    })
}

fn open_by_device(flags: UserfaultfdFlags) -> Option<OwnedFd> {
    use std::os::fd::AsRawFd;
    let device = std::fs::File::options().read(true).write(true).open("/dev/userfaultfd").ok()?;
    // SAFETY: the call takes flags by value and returns a new descriptor, or -1.
    let fd = unsafe {
        libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW as _, flags.bits() as libc::c_ulong)
    };
    // SAFETY: a descriptor that was just made, and belongs to nobody else.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}
