//! Memory protection keys: rights to memory ranges that a thread changes without a system call.
//!
//! A key is a 4-bit number in page table entries. Each thread has a register (PKRU on x86-64) with
//! its rights to the pages of each key. Three facts about Linux shape this file:
//!
//! - A thread inherits the rights of the thread that started it. A thread that existed before a key
//!   was allocated may not even *read* its pages, and no other thread can change that. So keys are
//!   taken once, while the process has a single thread: all later threads descend from it and may
//!   read.
//! - Rights belong to the number of a key and outlive the key in other threads. So keys are never
//!   given back to the kernel: an object gets one from a pool, and returns it when no memory is
//!   mapped with it any more.
//! - A signal handler starts with the kernel's default rights, which are none: it cannot read such
//!   pages.
//!
//! Keys of the pool are for write protection, one per object. A key taken by an embedder (see
//! `access`) is initially closed to all threads, may guard many objects, and does not belong to the
//! pool.
//!
//! Invariant: one object uses a [`Key`] of the pool. Its number returns to the pool only when the
//! value is dropped, and the owners of its mappings drop it after unmapping.

use std::cell::Cell;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::register;
use crate::at_fork;
use crate::error::{Error, Result};

/// Number of keys to take from the kernel's 15. Other code in the process may need some.
const KEYS_TAKEN: usize = 8;
/// Number of possible keys, including key 0 (all other memory).
const KEYS_MAX: usize = 16;

/// Pool of free keys, or the reason why no keys are available. Set at the first use.
static POOL: OnceLock<std::result::Result<Mutex<Vec<u32>>, &'static str>> = OnceLock::new();

thread_local! {
    /// Number of scopes that this thread has open, by key.
    static OPEN: [Cell<u32>; KEYS_MAX] = const { [const { Cell::new(0) }; KEYS_MAX] };
}

/// A memory protection key.
#[derive(Debug)]
pub(crate) struct Key {
    number: u32,
    /// The number returns to the pool.
    of_pool: bool,
}

/// Takes keys from the kernel at the first call. Returns the reason if no keys are available.
pub(crate) fn prepare() -> std::result::Result<(), &'static str> {
    pool().map(drop)
}

fn pool() -> std::result::Result<&'static Mutex<Vec<u32>>, &'static str> {
    POOL.get_or_init(take_keys).as_ref().map_err(|why| *why)
}

fn take_keys() -> std::result::Result<Mutex<Vec<u32>>, &'static str> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err("this build knows no protection keys for this processor");
    }
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return Err("/proc does not say how many threads there are");
    };
    // No thread can be added in between: only this one runs.
    if threads.count() != 1 {
        return Err("other threads ran already when keys were first asked for");
    }
    let closed_to_stores = || allocate(DISABLE_WRITE);
    let taken: Vec<u32> = std::iter::from_fn(closed_to_stores).take(KEYS_TAKEN).collect();
    match taken.is_empty() {
        true => Err("the processor or the kernel has no protection keys, or all are taken"),
        false => Ok(Mutex::new(taken)),
    }
}

/// `PKEY_DISABLE_ACCESS` and `PKEY_DISABLE_WRITE` of `asm-generic/mman-common.h`.
const DISABLE_ACCESS: libc::c_ulong = 1;
const DISABLE_WRITE: libc::c_ulong = 2;

/// Allocates a key. `kept` are the rights that this thread does not get.
fn allocate(kept: libc::c_ulong) -> Option<u32> {
    // SAFETY: the call takes no pointers; it changes this thread's rights to the new key only.
    let number = unsafe { libc::syscall(libc::SYS_pkey_alloc, 0 as libc::c_ulong, kept) };
    u32::try_from(number).ok().filter(|&number| number > 0 && (number as usize) < KEYS_MAX)
}

impl Key {
    /// Takes an unused key from the pool, or returns the reason why no key is available.
    pub(crate) fn take() -> std::result::Result<Key, &'static str> {
        let mut free = pool()?.lock().unwrap_or_else(PoisonError::into_inner);
        let number = free.pop().ok_or("other objects have all of them")?;
        Ok(Key { number, of_pool: true })
    }

    /// Takes a key outside of the pool, closed to this thread and to all threads that never had
    /// rights to its number. It stays taken until the process ends, because rights outlive a key.
    pub(super) fn take_closed() -> std::result::Result<Key, &'static str> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return Err("this build knows no protection keys for this processor");
        }
        let none = "the processor or the kernel has no protection keys, or all are taken";
        let number = allocate(DISABLE_ACCESS).ok_or(none)?;
        Ok(Key { number, of_pool: false })
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Puts mapped, readable and (if `writable`) writable memory under this key.
    ///
    /// # Safety
    /// The caller owns the range, which is mapped. Threads without the key's rights fault on
    /// access.
    pub(super) unsafe fn guard(&self, address: u64, length: u64, writable: bool) -> Result<()> {
        let rights = match writable {
            true => (libc::PROT_READ | libc::PROT_WRITE) as libc::c_ulong,
            false => libc::PROT_READ as libc::c_ulong,
        };
        // SAFETY: the caller owns the mapped range; the call does not change contents.
        let done = unsafe {
            libc::syscall(
                libc::SYS_pkey_mprotect,
                address as libc::c_ulong,
                length as libc::c_ulong,
                rights,
                libc::c_ulong::from(self.number),
            )
        };
        match done {
            0 => Ok(()),
            _ => Err(Error::Unsupported {
                why: format!("pkey_mprotect failed: {}", std::io::Error::last_os_error()),
            }),
        }
    }

    /// Allows this thread to store. Calls are counted.
    pub(crate) fn open(&self) {
        OPEN.with(|open| {
            let count = &open[self.number as usize];
            if count.get() == 0 {
                set_rights(self.number, register::ALL);
            }
            count.set(count.get() + 1);
        });
    }

    /// Undoes one [`open`](Key::open) of this thread. Returns false if there was none.
    pub(crate) fn close(&self) -> bool {
        OPEN.with(|open| {
            let count = &open[self.number as usize];
            match count.get() {
                0 => return false,
                1 => set_rights(self.number, register::READ_ONLY),
                _ => {}
            }
            count.set(count.get() - 1);
            true
        })
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // In a child the pool may be locked for ever.
        if at_fork::is_child() {
            return;
        }
        if let (true, Ok(pool)) = (self.of_pool, pool()) {
            pool.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
        }
    }
}

/// Sets this thread's rights to the pages of a key. Takes about 20 ns.
fn set_rights(key: u32, rights: u32) {
    let now = register::read();
    let wanted = register::with(now, key, rights);
    if wanted != now {
        register::write(wanted);
    }
}
