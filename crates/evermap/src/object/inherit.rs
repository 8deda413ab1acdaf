//! Gives a forked child a writer's session: its memory as of the fork.
//!
//! Before the fork the session locks the object for reading once more, through a separate open
//! file, and opens its mappings to children. After the fork the parent closes that file, so only
//! the child holds the lock. Like any reader's lock, it keeps the parent from applying later
//! commits to pages that the child shares with the file. Uncommitted memory is made private before
//! the fork, because the parent may change the file after its last commit.
//!
//! If any of this fails, the child does not have the memory and touching it is a fault. That is
//! always so for files whose pages are storage themselves (DAX): a page that a child shares would
//! look unchanged to the parent's next commit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::debug;

use super::region_set::{LockedForFork, MappedRegion, RegionSet};
use crate::alloc::{HeapLock, HeldHeapLock};
use crate::at_fork::{self, Participant, Participation};
use crate::commit::{InChildren, locks};
use crate::error::{Error, Result};
use crate::storage::File;

/// State of one session across forks.
struct Inheritance {
    stores: InChildren,
    memory: MemoryInChild,
    /// Filled from before a fork until after it; in the child it stays filled. Declared before the
    /// fields that it borrows from, so it is dropped first.
    fork: Mutex<Fork>,
    region_set: Arc<RegionSet>,
    heap: HeapLock,
}

#[derive(Default)]
struct Fork {
    held: Option<ForkGuards>,
    /// The object, locked for reading.
    reading: Option<Arc<dyn File>>,
}

struct ForkGuards {
    region_set: LockedForFork<'static>,
    _heap: HeldHeapLock<'static>,
}

// SAFETY: made and dropped by the thread that forks; in a child there is no other.
unsafe impl Send for ForkGuards {}

impl Inheritance {
    fn fork(&self) -> MutexGuard<'_, Fork> {
        self.fork.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prepare(&self, file: &dyn File, held: &mut [MappedRegion]) -> Result<Arc<dyn File>> {
        if file.is_direct() {
            return Err(Error::Unsupported { why: "the file is storage itself".to_string() });
        }
        let reading = file.again()?;
        reading.leave_locks_to_children();
        locks::begin_reading(&*reading, "an object that a child inherits")?;
        self.region_set.make_private(file, held)?;
        for h in held {
            h.mapping.inherit(h.record.base, h.record.length)?;
        }
        Ok(reading)
    }
}

fn leave_out(held: &[MappedRegion]) {
    for h in held {
        h.mapping.leave_out_of_children(h.record.base, h.record.length);
    }
}

impl Participant for Inheritance {
    fn before(&self) {
        // Locked in the same order as by allocations. A thread that changes metadata has finished
        // by then, and the child finds the lock free.
        let Some(heap) = at_fork::hold_for_fork(|| self.heap.try_hold()) else { return };
        let Some(mut region_set) = self.region_set.hold_for_fork() else { return };
        let reading = match self.prepare(&**region_set.file, &mut region_set.held) {
            Ok(reading) => Some(reading),
            Err(error) => {
                let path = region_set.file.path().display();
                debug!(%error, %path, "a child will not inherit the session");
                leave_out(&region_set.held);
                None
            }
        };
        // SAFETY: the guards are dropped before the locks: `fork` is declared first, and the
        // participant that owns all fields lives during the call.
        let held = unsafe {
            ForkGuards {
                region_set: std::mem::transmute::<LockedForFork<'_>, LockedForFork<'static>>(
                    region_set,
                ),
                _heap: std::mem::transmute::<HeldHeapLock<'_>, HeldHeapLock<'static>>(heap),
            }
        };
        *self.fork() = Fork { held: Some(held), reading };
    }

    fn in_parent(&self) {
        let Fork { held, reading } = std::mem::take(&mut *self.fork());
        if let (Some(held), true) = (&held, reading.is_some()) {
            leave_out(&held.region_set.held);
        }
    }

    fn in_child(&self) {
        let mut fork = self.fork();
        let Some(forking) = fork.held.take() else { return };
        let held = &forking.region_set.held;
        let made = match &fork.reading {
            Some(_) => RegionSet::make_gained_own(held),
            None => Err(Error::Unsupported { why: "the child does not inherit it".to_string() }),
        };
        self.memory.0.store(made.is_ok(), Ordering::Relaxed);
        for h in held.iter() {
            let (base, length) = (h.record.base, h.record.length);
            // Memory that the child does not inherit keeps its addresses.
            let done = match (&made, self.stores) {
                (Err(_), _) => h.mapping.clear(base, length),
                (Ok(()), InChildren::ReadOnly) => h.mapping.protect_read_only(base, length),
                (Ok(()), InChildren::Private) => Ok(()),
            };
            if let Err(error) = done {
                debug!(%error, base, "a child inherits a session with wrong access rights");
            }
        }
    }
}

/// A session's registration for forks.
pub(super) struct Inherited {
    memory: MemoryInChild,
    _participation: Participation,
}

/// Tells a forked child whether it has a session's memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryInChild(Arc<AtomicBool>);

impl Inherited {
    pub(super) fn new(
        region_set: &Arc<RegionSet>,
        heap: HeapLock,
        stores: InChildren,
    ) -> Inherited {
        let memory = MemoryInChild::default();
        let participant = Inheritance {
            stores,
            memory: memory.clone(),
            fork: Mutex::default(),
            region_set: Arc::clone(region_set),
            heap,
        };
        Inherited { memory, _participation: at_fork::register(Arc::new(participant)) }
    }

    pub(super) fn memory(&self) -> MemoryInChild {
        self.memory.clone()
    }
}

impl MemoryInChild {
    /// Returns true in a child that has the memory; false in the process that opened the session.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
