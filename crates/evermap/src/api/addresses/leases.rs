//! Address leases: the address ranges that objects use, agreed between processes that share nothing
//! but files.
//!
//! An address range is free if the catalog assigns it to no object and no process holds a lock on
//! it. The locks are byte locks on one file, at offsets equal to the addresses. The kernel releases
//! them when their holder dies, so a process that is killed while it creates an object leaks no
//! addresses. A process that has an object open holds shared locks on its ranges, so the addresses
//! of a removed object are not reused while a process still reads it.
//!
//! Invariant: a range that the catalog assigns to an object can always be locked shared, and
//! belongs to that object while it is locked. It holds because a creator keeps a new range locked
//! exclusively only until the catalog change that records it, and downgrades the lock within that
//! change. A reader shares an object's ranges within the look-up that finds it. Look-ups and
//! changes exclude each other. The one exception is a process that replaces the whole store: it
//! locks all ranges exclusively for a short time, and the others wait for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::address::random_uuid;
use crate::at_fork;
use crate::catalog::{Arena, Lease};
use crate::error::{Error, Result};
use crate::format::{HUGE_BYTES, LARGE_REGION_BYTES};
use crate::layout::{TOKEN_BYTES, token_of};
use crate::storage::{File, LockKind};

/// Timeout for a process that replaces the store. A replacement takes milliseconds unless the
/// process is stopped.
const REPLACEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two attempts.
const REPLACEMENT_PAUSE: Duration = Duration::from_millis(1);

/// Lock file of one open store, and the ranges that this process holds.
#[derive(Debug)]
pub(in crate::api) struct LeaseTable {
    file: Arc<dyn File>,
    /// Ranges that this process has locked, by base. A process does not conflict with its own
    /// locks, so it has to record them.
    held: Mutex<BTreeMap<u64, HeldRange>>,
    /// Tokens that this process has locked.
    tokens: Mutex<BTreeSet<u64>>,
}

/// Locked range, with the number of its users in this process.
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

/// Shared locks on the ranges of an open object. Dropping it releases them.
#[derive(Debug)]
pub(in crate::api) struct SharedLeases {
    lease_table: Arc<LeaseTable>,
    leases: Vec<Lease>,
}

/// First bytes of the ids of the objects that a batch or an import makes. While it exists, it holds
/// the byte of the lock file at this offset locked, so that no process sweeps the unfinished files.
#[derive(Debug)]
pub(in crate::api) struct MakerToken {
    lease_table: Arc<LeaseTable>,
    token: u64,
}

impl SharedLeases {
    /// Returns the ranges.
    pub(in crate::api) fn all(&self) -> &[Lease] {
        &self.leases
    }

    /// Shares the ranges of `wanted` that are not held yet. Returns false if all of them were.
    pub(in crate::api) fn add(&mut self, wanted: &[Lease]) -> Result<bool> {
        let missing: Vec<Lease> =
            wanted.iter().filter(|lease| !self.leases.contains(lease)).copied().collect();
        for lease in &missing {
            self.lease_table.share_one(lease)?;
            self.leases.push(*lease);
        }
        Ok(!missing.is_empty())
    }

    /// Adds ranges that this process took for the object and has already made shared.
    pub(in crate::api) fn adopt(&mut self, taken: Vec<Lease>) {
        self.leases.extend(taken);
    }
}

impl Drop for SharedLeases {
    fn drop(&mut self) {
        self.lease_table.release(&self.leases);
    }
}

impl LeaseTable {
    pub(in crate::api) fn new(file: Arc<dyn File>) -> LeaseTable {
        LeaseTable { file, held: Mutex::default(), tokens: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<u64, HeldRange>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `bytes` free addresses above the high-water mark of an arena.
    ///
    /// The caller holds the catalog locked, at least for reading, so no process can record
    /// addresses between reading the catalog and locking the range.
    pub(in crate::api) fn take_above(&self, arenas: &[Arena], bytes: u64) -> Result<Option<u64>> {
        let mut held = self.held();
        for arena in arenas {
            let end = arena.base + arena.length;
            // Start after the last range of this process, so that a batch of thousands does not
            // step over its own ranges.
            let last = held.range(arena.base..end).next_back().map_or(0, |(b, h)| b + h.bytes);
            let from = arena.high_water.max(last);
            if let Some(base) = self.take_between(&mut held, from, end, bytes)? {
                return Ok(Some(base));
            }
        }
        Ok(None)
    }

    /// Takes `bytes` addresses from a gap between the ranges `used`, which are sorted. Removed
    /// objects leave such gaps. The caller holds the catalog locked.
    pub(in crate::api) fn take_gap(
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

    /// Takes exactly these addresses. Returns false if this or another process has some of them.
    /// The caller holds the catalog locked and has checked that it assigns them to no object.
    pub(in crate::api) fn take_exactly(&self, lease: &Lease) -> Result<bool> {
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

    /// Locks the first free range in `from..end`. A range for a large region begins at a huge page.
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

    /// Shares an object's ranges. The caller holds the catalog locked and has found the ranges
    /// there, or checks afterwards that they still belong to the object.
    pub(in crate::api) fn share(self: &Arc<Self>, leases: &[Lease]) -> Result<SharedLeases> {
        let mut shared = SharedLeases { lease_table: Arc::clone(self), leases: Vec::new() };
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

    /// Downgrades ranges that this process took to shared locks. The caller does this within the
    /// catalog change that records them, so that any process that finds them there can share them.
    pub(in crate::api) fn make_shared(&self, taken: &[Lease]) -> Result<()> {
        for lease in taken {
            // The kernel changes the lock in place, so no other process can take it in between.
            self.file.try_lock(LockKind::Shared, lease.base, lease.bytes)?;
        }
        Ok(())
    }

    /// Releases ranges.
    pub(in crate::api) fn release(&self, leases: &[Lease]) {
        // In a forked child the locks belong to the parent, and the list may be locked forever.
        if at_fork::is_child() {
            return;
        }
        let mut held = self.held();
        for lease in leases {
            let Some(range) = held.get_mut(&lease.base) else { continue };
            range.uses -= 1;
            if range.uses == 0 {
                held.remove(&lease.base);
                // After a failure, the kernel unlocks the range when this process exits.
                let _ = self.file.unlock(lease.base, lease.bytes);
            }
        }
    }

    /// Locks a random token until the returned value is dropped.
    pub(in crate::api) fn lock_token(self: &Arc<Self>) -> Result<MakerToken> {
        loop {
            let token = token_of(random_uuid()?);
            // Locks of this process do not conflict with each other.
            if self.tokens().contains(&token) {
                continue;
            }
            if self.file.try_lock(LockKind::Exclusive, token, 1)? {
                self.tokens().insert(token);
                return Ok(MakerToken { lease_table: Arc::clone(self), token });
            }
        }
    }

    /// Returns true if this or another process holds this token.
    pub(in crate::api) fn token_is_locked(&self, token: u64) -> Result<bool> {
        Ok(self.tokens().contains(&token) || self.file.lock_holder(token, 1)?.is_some())
    }

    fn tokens(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MakerToken {
    /// Returns an id for a new object: the token, then random bits.
    pub(in crate::api) fn new_uuid(&self) -> Result<[u8; 16]> {
        let mut uuid = random_uuid()?;
        uuid[..TOKEN_BYTES].copy_from_slice(&self.token.to_be_bytes()[8 - TOKEN_BYTES..]);
        Ok(uuid)
    }
}

impl Drop for MakerToken {
    fn drop(&mut self) {
        // In a forked child the lock is the parent's, and the list may stay locked.
        if at_fork::is_child() {
            return;
        }
        self.lease_table.tokens().remove(&self.token);
        // After a failure, the kernel unlocks the byte when this process exits.
        let _ = self.lease_table.file.unlock(self.token, 1);
    }
}
