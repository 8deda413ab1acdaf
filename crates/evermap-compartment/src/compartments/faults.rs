//! What a fault was about, in words: object, class, and what the class lacks.
//!
//! Everything here that a signal handler calls takes no lock, allocates nothing and reads only what
//! is never freed: the list of assigned objects grows at its head and is never cut.

use std::fmt::{self, Write as _};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use evermap::{Access, AccessKey};

use super::class::Class;
use super::inside::class_here;
use crate::error::{Error, Result};

/// The object that was assigned last, and by `next` all others.
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

/// All assigned objects, the latest first.
fn assigned() -> impl Iterator<Item = &'static Assigned> {
    let mut next: *const Assigned = ASSIGNED.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: null, or a node that is never freed or changed once it is in the list.
        let node = unsafe { next.as_ref() }?;
        next = node.next;
        Some(node)
    })
}

/// What is known of a fault. Its `Display` is the sentence that [`report_faults`] prints.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The address that was touched.
    pub address: usize,
    /// The object that lies there, or, if it gained that memory after it was assigned, the latest
    /// object with the same rights.
    pub object: &'static str,
    /// Is `object` that one for certain?
    pub certain: bool,
    /// The class that the thread is in.
    pub class: Option<Class>,
    /// What that class may do with the object.
    pub access: Access,
}

/// What a fault at `address` in this thread was about; `key` is the fault's `si_pkey`, if it is
/// known. `None` when no assigned object is there. May be called in a signal handler.
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
    let class = class_here();
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

/// Has faults that a key causes described on standard error before they end the process (or go to
/// whoever handled SIGSEGV before). Other faults are passed on in silence.
///
/// # Errors
/// When the kernel refuses the handler.
pub fn report_faults() -> Result<()> {
    handler::install().map_err(|source| Error::Kernel { operation: "sigaction", source })
}

/// A line without allocation: cut when it is too long.
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
    /// `si_pkey`'s place in `siginfo_t` on 64-bit Linux: behind the address, at `_addr_pkey._pkey`.
    const PKEY_OFFSET: usize = 32;

    static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

    pub(super) fn install() -> io::Result<()> {
        // SAFETY: `sigaction` is plain data, for which zeros are a value.
        let (mut before, mut action): (libc::sigaction, libc::sigaction) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        // SAFETY: asking changes nothing; the structure lives through the call.
        if unsafe { libc::sigaction(libc::SIGSEGV, std::ptr::null(), &mut before) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if BEFORE.set(before).is_err() {
            return Ok(()); // installed already
        }
        action.sa_sigaction = report as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler has the signature that SA_SIGINFO asks for, and does in it only what
        // a signal handler may.
        match unsafe { libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    extern "C" fn report(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel gives a valid description of the fault.
        let (address, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
        if code == SEGV_PKUERR {
            // SAFETY: with this code the kernel has written the key there; the structure has 128 bytes.
            let key = unsafe { info.cast::<u8>().add(PKEY_OFFSET).cast::<u32>().read() };
            say(address, key);
        }
        if let Some(before) = BEFORE.get() {
            // The access happens again, and the fault goes to whoever was there before.
            // SAFETY: an action that the kernel gave us.
            unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
        }
    }

    fn say(address: usize, key: u32) {
        let mut line = Line { bytes: [0; 512], length: 0 };
        let _ = match describe_fault(address, Some(key)) {
            Some(fault) => writeln!(line, "evermap: fault: {fault}"),
            None => {
                writeln!(line, "evermap: fault: {address:#x} is under key {key} of somebody else")
            }
        };
        // SAFETY: a plain system call with bytes of our own stack.
        unsafe { libc::write(2, line.bytes.as_ptr().cast(), line.length) };
    }
}
