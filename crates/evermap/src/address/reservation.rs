//! Reservations of arenas: ranges of addresses that this process keeps free for a store.
//!
//! A reservation never replaces another mapping. The list of all reservations names the owner when
//! two stores need the same addresses.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};
use tracing::debug;

use super::maps;
use crate::at_fork;
use crate::error::{Error, Result};

/// All reservations of this process. They identify a conflict with a second copy of a store.
static RESERVED: Mutex<Vec<Reserved>> = Mutex::new(Vec::new());

struct Reserved {
    base: u64,
    end: u64,
    owner: String,
}

/// Ranges that this process recently reserved and released. Their stores may be opened again at any
/// time, so a new arena avoids them while there is another place. This is only a convenience, hence
/// the limit: a list of 4 KiB.
static RELEASED: Mutex<VecDeque<(u64, u64)>> = Mutex::new(VecDeque::new());
const RELEASED_MAX: usize = 256;

/// Counts reservations and claims, that is opened and closed stores and objects.
pub(super) static ARENAS_CHANGED: AtomicU64 = AtomicU64::new(0);

/// Returns base and length of this process's current reservations.
pub(crate) fn reserved_here() -> Vec<(u64, u64)> {
    lock(&RESERVED).iter().map(|r| (r.base, r.end - r.base)).collect()
}

/// Returns base, end and store name of this process's current reservations.
pub(super) fn reserved_by() -> Vec<(u64, u64, String)> {
    lock(&RESERVED).iter().map(|r| (r.base, r.end, r.owner.clone())).collect()
}

/// Returns base and length of recently released reservations.
pub(crate) fn recently_released() -> Vec<(u64, u64)> {
    lock(&RELEASED).iter().copied().collect()
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn pointer(address: u64) -> *mut c_void {
    address as *mut c_void
}

/// Addresses of one arena, reserved while this value lives.
#[derive(Debug)]
pub(super) struct Reservation {
    pub(super) base: u64,
    pub(super) length: u64,
    /// The memory belongs to the lender: this value neither reserves nor releases it.
    lent: bool,
}

impl Reservation {
    /// A range that its owner keeps mapped and lends.
    pub(super) fn lent(base: u64, length: u64) -> Reservation {
        Reservation { base, length, lent: true }
    }

    pub(super) fn new(owner: &str, base: u64, length: u64) -> Result<Reservation> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: FIXED_NOREPLACE never replaces a mapping, and the new one is inaccessible.
        let mapped = unsafe {
            mm::mmap_anonymous(pointer(base), length as usize, ProtFlags::empty(), flags)
        };
        match mapped {
            Ok(at) if at as u64 == base => {
                debug!(base, length, owner, "reserved addresses");
                let owner = owner.to_string();
                lock(&RESERVED).push(Reserved { base, end: base + length, owner });
                ARENAS_CHANGED.fetch_add(1, Ordering::AcqRel);
                Ok(Reservation { base, length, lent: false })
            }
            Ok(at) => {
                // A kernel before 4.17 treats the address as a hint.
                // SAFETY: the mapping was created just above, and no other code knows its address.
                let _ = unsafe { mm::munmap(at, length as usize) };
                Err(taken(owner, base, length))
            }
            Err(Errno::EXIST) => Err(taken(owner, base, length)),
            Err(error) => Err(no_addresses(owner, length, error)),
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // A child keeps the addresses: the mappings that it does not inherit lie between others.
        if self.lent || at_fork::is_child() {
            return;
        }
        debug!(base = self.base, length = self.length, "gave addresses back");
        {
            // Before the range is free, so that it is in one of the two lists at any time.
            let mut released = lock(&RELEASED);
            released.retain(|(base, _)| *base != self.base);
            released.push_back((self.base, self.length));
            if released.len() > RELEASED_MAX {
                released.pop_front();
            }
        }
        lock(&RESERVED).retain(|r| r.base != self.base);
        ARENAS_CHANGED.fetch_add(1, Ordering::AcqRel);
        // SAFETY: this value owns the range. Mappings keep the space alive, so none is left.
        let _ = unsafe { mm::munmap(pointer(self.base), self.length as usize) };
    }
}

/// The kernel refuses a reservation though the range is free.
fn no_addresses(owner: &str, length: u64, error: Errno) -> Error {
    let source = match error {
        Errno::NOMEM => std::io::Error::new(
            std::io::ErrorKind::OutOfMemory,
            format!(
                "{length} bytes of addresses are more than this process may have; raise its limit \
                 (`ulimit -v`) or the machine's of mappings (`vm.max_map_count`)"
            ),
        ),
        other => other.into(),
    };
    Error::Io { path: owner.into(), doing: "reserve addresses for", source }
}

pub(super) fn taken(what: &str, base: u64, length: u64) -> Error {
    let end = base + length;
    let ours = lock(&RESERVED)
        .iter()
        .find(|r| r.base < end && r.end > base)
        .map(|r| (r.owner.clone(), "close that store first, or rebase one of the two copies"));
    let (by, remedy) = ours.unwrap_or_else(|| {
        (maps::what_lies_in(base, end), "open the store before that is loaded, or rebase the store")
    });
    Error::AddressTaken { what: what.to_string(), base, end, by, remedy }
}
