//! Address leases: who may put what where, between processes that share nothing but files.
//!
//! A range of addresses is free when the catalog gives it to no object and no process holds a lock
//! on it. The locks are on one file, on the bytes whose offsets are the addresses themselves, and
//! the kernel frees them when their holder dies: a process that was killed while it made an object
//! leaks no addresses. A process that has an object open holds its ranges shared, so the addresses
//! of a removed object are not given out while a process still reads it.
//!
//! The order that keeps look-ups from failing: a maker holds a new range exclusively only until the
//! catalog change that records it, and makes it shared inside of that change. A reader shares an
//! object's ranges inside of the look-up that finds it. Look-ups and changes exclude each other, so a
//! range that the catalog gives to an object can always be shared, and belongs to that object for as
//! long as it is. The one exception is a process that replaces the whole store: it holds all ranges
//! exclusively for that moment, and the others wait for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::at_fork;
use crate::catalog::{Arena, Lease};
use crate::error::{Error, Result};
use crate::format::{HUGE_BYTES, LARGE_REGION_BYTES};
use crate::storage::{File, LockKind};

/// How long to wait for a process that replaces the store. It takes milliseconds, unless it is stopped.
const REPLACEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two looks.
const REPLACEMENT_PAUSE: Duration = Duration::from_millis(1);

/// The lock file of one open store and what this process holds of it.
#[derive(Debug)]
pub(super) struct LeaseBook {
    file: Arc<dyn File>,
    /// Ranges that this process has locked, by base. Its own locks do not stop it, so it has to know
    /// them.
    held: Mutex<BTreeMap<u64, HeldRange>>,
}

/// A locked range, and how many parts of this process use it.
#[derive(Clone, Copy, Debug)]
struct HeldRange {
    bytes: u64,
    uses: u32,
}

impl HeldRange {
    fn new(bytes: u64) -> HeldRange {
        HeldRange { bytes, uses: 1 }
    }
}

/// Ranges of an object that is open, held shared. Dropping it gives them up.
#[derive(Debug)]
pub(super) struct SharedLeases {
    book: Arc<LeaseBook>,
    leases: Vec<Lease>,
}

impl SharedLeases {
    /// The ranges.
    pub(super) fn all(&self) -> &[Lease] {
        &self.leases
    }

    /// Shares those of `wanted` that are not among them. Returns false when all of them were.
    pub(super) fn add(&mut self, wanted: &[Lease]) -> Result<bool> {
        let missing: Vec<Lease> =
            wanted.iter().filter(|lease| !self.leases.contains(lease)).copied().collect();
        for lease in &missing {
            self.book.share_one(lease)?;
            self.leases.push(*lease);
        }
        Ok(!missing.is_empty())
    }

    /// Takes over ranges that this process took for the object and has made shared.
    pub(super) fn adopt(&mut self, taken: Vec<Lease>) {
        self.leases.extend(taken);
    }
}

impl Drop for SharedLeases {
    fn drop(&mut self) {
        self.book.give_up(&self.leases);
    }
}

impl LeaseBook {
    pub(super) fn new(file: Arc<dyn File>) -> LeaseBook {
        LeaseBook { file, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<u64, HeldRange>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `bytes` addresses that nobody has, above every arena's high-water mark.
    ///
    /// The caller holds the catalog locked, at least for reading: nobody can record addresses
    /// between the look at it and the lock.
    pub(super) fn take_above(&self, arenas: &[Arena], bytes: u64) -> Result<Option<u64>> {
        let mut held = self.held();
        for arena in arenas {
            let end = arena.base + arena.length;
            // Behind what this process took last: a batch of thousands must not walk over its own.
            let last = held.range(arena.base..end).next_back().map_or(0, |(b, h)| b + h.bytes);
            let from = arena.high_water.max(last);
            if let Some(base) = self.take_between(&mut held, from, end, bytes)? {
                return Ok(Some(base));
            }
        }
        Ok(None)
    }

    /// Takes `bytes` addresses from a gap that removed objects left between the ranges `used`,
    /// which are in order. The caller holds the catalog locked.
    pub(super) fn take_gap(
        &self,
        arenas: &[Arena],
        used: &[Lease],
        bytes: u64,
    ) -> Result<Option<u64>> {
        let mut held = self.held();
        for arena in arenas {
            let mut from = arena.base;
            let end = arena.base + arena.length;
            let inside = used.iter().filter(|l| l.base >= arena.base && l.base < end);
            for stop in inside.chain([&Lease { base: end, bytes: 0 }]) {
                if let Some(base) = self.take_between(&mut held, from, stop.base, bytes)? {
                    return Ok(Some(base));
                }
                from = from.max(stop.base + stop.bytes);
            }
        }
        Ok(None)
    }

    /// Takes these very addresses; false when another process, or this one, has some of them. The
    /// caller holds the catalog locked and knows that it gives them to nobody.
    pub(super) fn take_exactly(&self, lease: &Lease) -> Result<bool> {
        let mut held = self.held();
        let end = lease.base + lease.bytes;
        let before = held.range(..end).next_back().map(|(base, h)| base + h.bytes);
        if before.is_some_and(|before| before > lease.base)
            || !self.file.try_lock(LockKind::Exclusive, lease.base, lease.bytes)?
        {
            return Ok(false);
        }
        held.insert(lease.base, HeldRange::new(lease.bytes));
        Ok(true)
    }

    /// Locks the first free range in `from..end`; one for a large region begins at a huge page.
    fn take_between(
        &self,
        held: &mut BTreeMap<u64, HeldRange>,
        mut from: u64,
        end: u64,
        bytes: u64,
    ) -> Result<Option<u64>> {
        let align = if bytes >= LARGE_REGION_BYTES { HUGE_BYTES } else { 1 };
        loop {
            from = from.next_multiple_of(align);
            if from.checked_add(bytes).is_none_or(|e| e > end) {
                return Ok(None);
            }
            let before = held.range(..from + bytes).next_back().map(|(base, h)| base + h.bytes);
            if let Some(after) = before.filter(|after| *after > from) {
                from = after;
            } else if self.file.try_lock(LockKind::Exclusive, from, bytes)? {
                held.insert(from, HeldRange::new(bytes));
                return Ok(Some(from));
            } else if let Some((start, length)) = self.file.lock_holder(from, bytes)? {
                from = start + length.max(1);
            }
        }
    }

    /// Shares an object's ranges. The caller holds the catalog locked and has found them there, or
    /// verifies afterwards that they are still the object's.
    pub(super) fn share(self: &Arc<Self>, leases: &[Lease]) -> Result<SharedLeases> {
        let mut shared = SharedLeases { book: Arc::clone(self), leases: Vec::new() };
        shared.add(leases)?;
        Ok(shared)
    }

    fn share_one(&self, lease: &Lease) -> Result<()> {
        let mut held = self.held();
        if let Some(range) = held.get_mut(&lease.base) {
            range.uses += 1;
            return Ok(());
        }
        let since = Instant::now();
        while !self.file.try_lock(LockKind::Shared, lease.base, lease.bytes)? {
            if since.elapsed() > REPLACEMENT_TIMEOUT {
                return Err(Error::Busy {
                    what: format!("addresses {:#x}..{:#x}", lease.base, lease.base + lease.bytes),
                    holder: "another process is replacing the store".to_string(),
                });
            }
            std::thread::sleep(REPLACEMENT_PAUSE);
        }
        held.insert(lease.base, HeldRange::new(lease.bytes));
        Ok(())
    }

    /// Makes ranges that this process took shared, in the catalog change that records them: whoever
    /// finds them there can share them.
    pub(super) fn make_shared(&self, taken: &[Lease]) -> Result<()> {
        for lease in taken {
            // The kernel changes the lock in place: no other process can take it in between.
            self.file.try_lock(LockKind::Shared, lease.base, lease.bytes)?;
        }
        Ok(())
    }

    /// Gives ranges up.
    pub(super) fn give_up(&self, leases: &[Lease]) {
        // The locks are the parent's, and the list may be locked here for ever.
        if at_fork::is_child() {
            return;
        }
        let mut held = self.held();
        for lease in leases {
            let Some(range) = held.get_mut(&lease.base) else { continue };
            range.uses -= 1;
            if range.uses == 0 {
                held.remove(&lease.base);
                // The kernel does it at exit if it cannot now.
                let _ = self.file.unlock(lease.base, lease.bytes);
            }
        }
    }

    /// Locks a token for as long as the book lives; false when it is taken.
    pub(super) fn lock_token(&self, token: u64) -> Result<bool> {
        self.file.try_lock(LockKind::Exclusive, token, 1)
    }

    /// Does another process hold this token?
    pub(super) fn token_is_locked(&self, token: u64) -> Result<bool> {
        Ok(self.file.lock_holder(token, 1)?.is_some())
    }
}
