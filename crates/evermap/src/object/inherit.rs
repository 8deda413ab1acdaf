//! What a forked child has of a writer's session: its memory as of the fork.
//!
//! Before the fork the object is locked for reading once more, through an open file of its own, and
//! the session's mappings are opened to children. After it the parent closes that file, so that the
//! child alone holds the lock: like any reader's it keeps the parent from applying later commits to
//! the pages that the child still shares with the file. Memory that no commit has is made private
//! before, as the file's pages behind the last commit are the parent's to change.
//!
//! Where any of this fails the child does not have the memory: touching it is a fault. Not for files
//! whose pages are storage themselves (DAX), where a page that a child shares would look unchanged to
//! the parent's next commit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::debug;

use super::region_set::{Held, HeldForFork, RegionSet};
use crate::alloc::{HeapLock, HeldHeapLock};
use crate::at_fork::{self, Participant, Participation};
use crate::commit::{InChildren, locks};
use crate::error::{Error, Result};
use crate::storage::File;

/// One session's part in forks.
struct Inheritance {
    stores: InChildren,
    memory: MemoryInChild,
    /// Filled from before a fork to after it, and in the child from then on. Declared before what it
    /// borrows from.
    fork: Mutex<Fork>,
    region_set: Arc<RegionSet>,
    heap: HeapLock,
}

#[derive(Default)]
struct Fork {
    held: Option<OfForkingThread>,
    /// The object, locked for reading.
    reading: Option<Arc<dyn File>>,
}

struct OfForkingThread {
    region_set: HeldForFork<'static>,
    _heap: HeldHeapLock<'static>,
}

// SAFETY: made and dropped by the thread that forks; in a child there is no other.
unsafe impl Send for OfForkingThread {}

impl Inheritance {
    fn fork(&self) -> MutexGuard<'_, Fork> {
        self.fork.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prepare(&self, file: &dyn File, held: &mut [Held]) -> Result<Arc<dyn File>> {
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

fn leave_out(held: &[Held]) {
    for h in held {
        h.mapping.leave_out_of_children(h.record.base, h.record.length);
    }
}

impl Participant for Inheritance {
    fn before(&self) {
        // In the order in which allocations lock them. A thread that changes metadata is done then, and
        // a child finds the lock free.
        let Some(heap) = self.heap.hold() else { return };
        let Some(mut region_set) = self.region_set.hold_for_fork() else { return };
        let reading = match self.prepare(&**region_set.file, &mut region_set.held) {
            Ok(reading) => Some(reading),
            Err(error) => {
                let path = region_set.file.path().display();
                debug!(%error, %path, "a child will not have the session");
                leave_out(&region_set.held);
                None
            }
        };
        // SAFETY: the guards are dropped before what they lock: `fork` is declared before it, and the
        // participant that owns all of it lives while it is called.
        let held = unsafe {
            OfForkingThread {
                region_set: std::mem::transmute::<HeldForFork<'_>, HeldForFork<'static>>(
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
            None => Err(Error::Unsupported { why: "the child does not have it".to_string() }),
        };
        self.memory.0.store(made.is_ok(), Ordering::Relaxed);
        for h in held.iter() {
            let (base, length) = (h.record.base, h.record.length);
            // What a child does not have keeps its addresses.
            let done = match (&made, self.stores) {
                (Err(_), _) => h.mapping.clear(base, length),
                (Ok(()), InChildren::ReadOnly) => h.mapping.protect_read_only(base, length),
                (Ok(()), InChildren::Private) => Ok(()),
            };
            if let Err(error) = done {
                debug!(%error, base, "a child has its parent's session in another way than asked for");
            }
        }
    }
}

/// A session's entry among those that take part in forks.
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
