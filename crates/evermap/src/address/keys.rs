//! Memory protection keys: rights to ranges of memory that a thread switches without a system call.
//!
//! A key is a number of 4 bits in the page table entries; what a thread may do with the pages of
//! each key is said by a register of its own (PKRU on x86-64). Three facts of Linux shape this file:
//!
//! - A thread gets the rights of the thread that started it. A thread that was there before a key
//!   was allocated may not even *read* its pages, and nobody else can change that. So keys are taken
//!   once, while the process has one thread: all later ones descend from it and may read.
//! - Rights belong to the number of a key, and outlive it in other threads. So keys are never given
//!   back to the kernel: an object gets one from a pool, and returns it when nothing is mapped
//!   with it any more.
//! - A signal handler begins with the kernel's rights, which are none: it can read no such pages.
//!
//! Keys of the pool are for write protection, an object each. A key that an embedder takes (see
//! `access`) is closed to everybody at first, may guard many objects, and is no part of the pool.
//!
//! Invariant: a [`Key`] of the pool is used by one object; its number returns to the pool only when
//! the value is dropped, which its mappings' owners do after unmapping.

use std::cell::Cell;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::register;
use crate::at_fork;
use crate::error::{Error, Result};

/// Keys that are taken of the kernel's 15: others in the process may want some.
const KEYS_TAKEN: usize = 8;
/// Keys that there can be, key 0 (of all other memory) among them.
const KEYS_MAX: usize = 16;

/// What is known of keys, from the first time anybody asks.
static POOL: OnceLock<std::result::Result<Mutex<Vec<u32>>, &'static str>> = OnceLock::new();

thread_local! {
    /// How many scopes this thread has open, by key.
    static OPEN: [Cell<u32>; KEYS_MAX] = const { [const { Cell::new(0) }; KEYS_MAX] };
}

/// One key.
#[derive(Debug)]
pub(crate) struct Key {
    number: u32,
    /// It returns there.
    of_pool: bool,
}

/// Takes keys from the kernel if that was not done yet; or why there are none.
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
    // A thread more than seen here cannot come to be meanwhile: only this one runs.
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

/// A key, from which this thread is `kept`.
fn allocate(kept: libc::c_ulong) -> Option<u32> {
    // SAFETY: the call takes no pointers; it changes this thread's rights to the new key only.
    let number = unsafe { libc::syscall(libc::SYS_pkey_alloc, 0 as libc::c_ulong, kept) };
    u32::try_from(number).ok().filter(|&number| number > 0 && (number as usize) < KEYS_MAX)
}

impl Key {
    /// A key nobody uses; or why there is none.
    pub(crate) fn take() -> std::result::Result<Key, &'static str> {
        let mut free = pool()?.lock().unwrap_or_else(PoisonError::into_inner);
        let number = free.pop().ok_or("other objects have all of them")?;
        Ok(Key { number, of_pool: true })
    }

    /// A key of no pool, closed to this thread and to all that never had rights to its number. It
    /// stays taken until the process ends: rights outlive a key.
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

    /// Puts mapped, readable and, as `writable` says, writable memory under this key.
    ///
    /// # Safety
    /// The range is mapped, and the caller's: whoever lacks the key's rights faults at using it.
    pub(super) unsafe fn guard(&self, address: u64, length: u64, writable: bool) -> Result<()> {
        let rights = match writable {
            true => (libc::PROT_READ | libc::PROT_WRITE) as libc::c_ulong,
            false => libc::PROT_READ as libc::c_ulong,
        };
        // SAFETY: the caller's promise; contents are not changed.
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

    /// Lets this thread store; counted.
    pub(crate) fn open(&self) {
        OPEN.with(|open| {
            let count = &open[self.number as usize];
            if count.get() == 0 {
                set_rights(self.number, register::ALL);
            }
            count.set(count.get() + 1);
        });
    }

    /// Undoes one [`open`](Key::open) of this thread; false when there was none.
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

/// Sets this thread's rights to the pages of a key: some 20 ns.
fn set_rights(key: u32, rights: u32) {
    let now = register::read();
    let wanted = register::with(now, key, rights);
    if wanted != now {
        register::write(wanted);
    }
}
