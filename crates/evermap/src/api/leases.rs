//! Address leases: who may put what where, between processes that share nothing but files.
//!
//! A range of addresses is free when the catalog gives it to no object and no process holds a lock
//! on it. The locks are on one file, on the bytes whose offsets are the addresses themselves, and
//! the kernel frees them when their holder dies: a process that was killed while it made an object
//! leaks no addresses. Whoever has an object open holds its range shared, so the addresses of a
//! removed object are not given out while somebody still reads it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::catalog::{Arena, Lease};
use crate::error::{Error, Result};
use crate::format::{HUGE_BYTES, LARGE_REGION_BYTES};
use crate::storage::{File, LockKind};

/// The lock file of one open store and what this process holds of it.
#[derive(Debug)]
pub(super) struct LeaseBook {
    file: Arc<dyn File>,
    /// Ranges this process has locked, base to bytes; its own locks do not stop it, so it has to
    /// know them.
    held: Mutex<BTreeMap<u64, u64>>,
}

impl LeaseBook {
    pub(super) fn new(file: Arc<dyn File>) -> LeaseBook {
        LeaseBook { file, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
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
            let last = held.range(arena.base..end).next_back().map_or(0, |(b, bytes)| b + bytes);
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
        let before = held.range(..end).next_back().map(|(base, bytes)| base + bytes);
        if before.is_some_and(|before| before > lease.base)
            || !self.file.try_lock(LockKind::Exclusive, lease.base, lease.bytes)?
        {
            return Ok(false);
        }
        held.insert(lease.base, lease.bytes);
        Ok(true)
    }

    /// Locks the first free range in `from..end`; one for a large region begins at a huge page.
    fn take_between(
        &self,
        held: &mut BTreeMap<u64, u64>,
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
            let before = held.range(..from + bytes).next_back().map(|(base, bytes)| base + bytes);
            if let Some(after) = before.filter(|after| *after > from) {
                from = after;
            } else if self.file.try_lock(LockKind::Exclusive, from, bytes)? {
                held.insert(from, bytes);
                return Ok(Some(from));
            } else if let Some((start, length)) = self.file.lock_holder(from, bytes)? {
                from = start + length.max(1);
            }
        }
    }

    /// Marks an object's ranges as in use here.
    pub(super) fn share(&self, leases: &[Lease]) -> Result<()> {
        for (done, lease) in leases.iter().enumerate() {
            let locked = self.file.try_lock(LockKind::Shared, lease.base, lease.bytes);
            if !matches!(locked, Ok(true)) {
                self.give_up(&leases[..done]);
                locked?;
                return Err(Error::Busy {
                    what: format!("addresses {:#x}..{:#x}", lease.base, lease.base + lease.bytes),
                    holder: "another process is making an object there".to_string(),
                });
            }
            self.held().insert(lease.base, lease.bytes);
        }
        Ok(())
    }

    /// Gives ranges up.
    pub(super) fn give_up(&self, leases: &[Lease]) {
        let mut held = self.held();
        for lease in leases {
            if held.remove(&lease.base).is_some() {
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
