//! Descriptions of faults: object, class, and the missing right.
//!
//! Functions that a signal handler calls take no lock, allocate nothing and read only memory that
//! is never freed. The list of assigned objects grows at its head and never shrinks.

use std::fmt::{self, Write as _};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use evermap::{Access, AccessKey};

use super::class::Class;
use super::inside::current_class;
use crate::error::{Error, Result};

/// Most recently assigned object; `next` leads to the others.
static ASSIGNED: AtomicPtr<Assigned> = AtomicPtr::new(null_mut());

struct Assigned {
    name: String,
    regions: Vec<(u64, u64)>,
    key: AccessKey,
    next: *const Assigned,
}

pub(super) fn remember(name: String, regions: Vec<(u64, u64)>, key: AccessKey) {
    let node = Box::leak(Box::new(Assigned { name, regions, key, next: null_mut() }));
    let mut head = ASSIGNED.load(Ordering::Relaxed);
    loop {
        node.next = head;
        match ASSIGNED.compare_exchange_weak(head, node, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(other) => head = other,
        }
    }
}

/// Iterates over all assigned objects, latest first.
fn assigned() -> impl Iterator<Item = &'static Assigned> {
    let mut next: *const Assigned = ASSIGNED.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: the pointer is null or a leaked node that does not change once it is in the list.
        let node = unsafe { next.as_ref() }?;
        next = node.next;
        Some(node)
    })
}

/// Description of a fault. `Display` writes the text that [`report_faults`] prints.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Accessed address.
    pub address: usize,
    /// Object at that address. For memory gained after the assignment, the latest object with the
    /// same rights.
    pub object: &'static str,
    /// True if `object` is exact.
    pub certain: bool,
    /// Class of the thread.
    pub class: Option<Class>,
    /// Access of that class to the object.
    pub access: Access,
}

/// Describes a fault at `address` in this thread. `key` is the fault's `si_pkey`, if known. Returns
/// `None` if no assigned object is there. Safe to call in a signal handler.
pub fn describe_fault(address: usize, key: Option<u32>) -> Option<Fault> {
    let at = address as u64;
    let holds = |object: &&Assigned| {
        object.regions.iter().any(|(base, bytes)| at.wrapping_sub(*base) < *bytes)
            && key.is_none_or(|key| key == object.key.number())
    };
    let here = assigned().find(holds);
    let object = here.or_else(|| {
        let key = key?;
        assigned().find(|object| object.key.number() == key)
    })?;
    let class = current_class();
    let access = class.map_or(Access::None, |class| {
        let none = object.key.bits(Access::None);
        match class.rights().bits & none {
            bits if bits == none => Access::None,
            0 => Access::Write,
            _ => Access::Read,
        }
    });
    Some(Fault { address, object: &object.name, certain: here.is_some(), class, access })
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let like = if self.certain { "" } else { "memory with the rights of " };
        write!(f, "{:#x} is in {like}object `{}`; the thread is in ", self.address, self.object)?;
        match self.class {
            Some(class) => write!(f, "class `{}`", class.name())?,
            None => f.write_str("no class")?,
        }
        f.write_str(match self.access {
            Access::None => ", which may not touch it",
            Access::Read => ", which may only read it",
            Access::Write => ", which may do so now: it was assigned after the thread entered",
        })
    }
}

/// Installs a handler that prints a description of each key fault to standard error. The fault then
/// ends the process or goes to the previous SIGSEGV handler. Other faults are passed on without
/// output.
///
/// # Errors
/// Fails if the kernel refuses the handler.
pub fn report_faults() -> Result<()> {
    handler::install().map_err(|source| Error::Kernel { operation: "sigaction", source })
}

/// Fixed-size line, filled without allocation. Longer text is truncated.
struct Line {
    bytes: [u8; 512],
    length: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - self.length;
        let taken = text.len().min(room);
        self.bytes[self.length..self.length + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.length += taken;
        Ok(())
    }
}

mod handler {
    use super::*;
    use std::io;
    use std::sync::OnceLock;

    /// `SEGV_PKUERR` of `asm-generic/siginfo.h`.
    const SEGV_PKUERR: libc::c_int = 4;
    /// Offset of `si_pkey` in `siginfo_t` on 64-bit Linux, behind the address (`_addr_pkey._pkey`).
    const PKEY_OFFSET: usize = 32;

    static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

    pub(super) fn install() -> io::Result<()> {
        // SAFETY: `sigaction` is plain data, and zeros are a valid value.
        let (mut before, mut action): (libc::sigaction, libc::sigaction) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        // SAFETY: the query changes nothing, and the structure lives through the call.
        if unsafe { libc::sigaction(libc::SIGSEGV, std::ptr::null(), &mut before) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if BEFORE.set(before).is_err() {
            return Ok(()); // installed already
        }
        action.sa_sigaction = report as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler has the signature required by SA_SIGINFO and calls only
        // async-signal-safe functions.
        match unsafe { libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    extern "C" fn report(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel passes a valid description of the fault.
        let (address, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
        if code == SEGV_PKUERR {
            // SAFETY: with this code the kernel has written the key at this offset; the structure
            // has 128 bytes.
            let key = unsafe { info.cast::<u8>().add(PKEY_OFFSET).cast::<u32>().read() };
            say(address, key);
        }
        if let Some(before) = BEFORE.get() {
            // The access is repeated on return, and the fault goes to the previous handler.
            // SAFETY: the kernel returned this action to us.
            unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
        }
    }

    fn say(address: usize, key: u32) {
        let mut line = Line { bytes: [0; 512], length: 0 };
        let _ = match describe_fault(address, Some(key)) {
            Some(fault) => writeln!(line, "evermap: fault: {fault}"),
            None => {
                writeln!(
                    line,
                    "evermap: fault: {address:#x} is under key {key}, which belongs to no compartment"
                )
            }
        };
        // SAFETY: a system call that reads bytes of our own stack.
        unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.length) };
    }
}
