//! Session of an object that threads of this process share, and the rules for its use.
//!
//! Readers read the session's own mapping, which holds the last commit and the writer's stores. A
//! writer closes the lock before its first store, and opens it when there is nothing that readers
//! must not see. Readers may be inside while a commit scans memory, writes its record, flushes,
//! applies and checkpoints, because none of these steps changes a byte that a program can read:
//!
//! * The page-table scan and the write protection that it sets affect only stores.
//! * Sealing a commit writes the superblock in page 0, which programs do not read. The root area
//!   after it stays unchanged, except for the code record of an object whose root is elsewhere.
//!   Allocator metadata change too, but readers have no access to them.
//! * Growth maps a range again in place, from the same file. A page has the same bytes in both
//!   mappings, and a fault in between waits for the kernel's address space lock.
//! * An apply writes to the file what the private pages already hold. A private page is released
//!   only after that, when the page of the file has the same bytes. The same holds for a copy that
//!   replaces the file.
//!
//! Rollback changes the mapping and undoes growth, so it happens with the lock closed.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tracing::warn;

use super::facts::{Facts, PublishedFacts};
use super::held::{self, Held, Released};
use super::lock::{Refused, SlotLock};
use super::options::{Reads, ShareOptions};
use crate::api::session::open::OpenSession;
use crate::at_fork;
use crate::error::{Error, Result};
use crate::format::Superblock;
use crate::object::MemoryInChild;

/// An object open for sharing. Dropping it discards uncommitted changes.
pub(in crate::api) struct SharedCore {
    /// Accessed only by the writer whose turn it is.
    writing: UnsafeCell<Writing>,
    lock: SlotLock,
    options: ShareOptions,
    /// Tells a forked child whether it has the object's memory.
    memory_in_child: MemoryInChild,
    /// The superblock when the object was opened.
    superblock: Box<Superblock>,
    /// Identifies this lock in a thread's list of holdings. No number is used twice.
    number: u64,
    /// Commits search for pointers out of the object, because a raw handle was opened.
    searches_foreign: AtomicBool,
    public: PublishedFacts,
    /// The object and its file, for messages.
    display_name: String,
    path: PathBuf,
}

struct Writing {
    open: OpenSession,
    /// There may be uncommitted stores.
    stored: bool,
    /// The lock is open although a writer has its turn.
    readers_in: bool,
}

// SAFETY: `writing` is accessed through a `Turn`, of which there is one at a time, or by the sole
// owner of the core. The session may be used by one thread after the other.
unsafe impl Send for SharedCore {}
// SAFETY: as above. All other fields are `Sync`.
unsafe impl Sync for SharedCore {}

impl SharedCore {
    /// Wraps a session that nothing else uses yet.
    pub(in crate::api) fn new(
        session: OpenSession,
        options: ShareOptions,
        display_name: String,
        path: PathBuf,
    ) -> SharedCore {
        static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);
        SharedCore {
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            searches_foreign: AtomicBool::new(false),
            public: PublishedFacts::new(&session),
            path,
            memory_in_child: session.memory_in_child(),
            superblock: Box::new(*session.superblock()),
            writing: UnsafeCell::new(Writing { open: session, stored: false, readers_in: false }),
            lock: SlotLock::new(),
            options,
            display_name,
        }
    }

    pub(in crate::api) fn options(&self) -> &ShareOptions {
        &self.options
    }

    /// Refuses code of another build, and makes commits search for pointers out of the object.
    /// Called for each raw handle, and does the work for the first one. Waits for a writer. Readers
    /// may stay.
    pub(super) fn search_for_foreign(&self) -> Result<()> {
        if self.searches_foreign.load(Ordering::Acquire) {
            return Ok(());
        }
        self.upkeep(|open| {
            // Another handle may have come first, and the program may rely on its result.
            if !self.searches_foreign.load(Ordering::Acquire) {
                open.search_for_foreign(&self.options.write)?;
                self.searches_foreign.store(true, Ordering::Release);
            }
            Ok(())
        })
    }

    /// Returns the superblock as of the opening of the object.
    pub(in crate::api) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Returns the facts that need no lock.
    pub(super) fn facts(&self) -> Arc<Facts> {
        self.public.read()
    }

    /// Returns true while threads read or write the object, or wait to.
    pub(super) fn is_in_use(&self) -> bool {
        self.lock.is_in_use()
    }

    /// Begins a read in the calling thread. The same thread ends each successful call once, with
    /// [`end_read`](SharedCore::end_read).
    #[inline]
    pub(in crate::api) fn begin_read(&self) -> Result<()> {
        match held::read_again(self.number) {
            Held::Not => {}
            Held::Reading => return Ok(()),
            Held::Writing => return Err(self.would_deadlock("writes")),
        }
        self.check_memory()?;
        match self.lock.enter(held::thread_number()) {
            Ok(place) => {
                held::note(self.number, Some(place));
                Ok(())
            }
            Err(refused) => Err(self.refused(refused)),
        }
    }

    /// Begins a read if that needs no waiting.
    #[inline]
    pub(super) fn try_begin_read(&self) -> Result<bool> {
        match held::read_again(self.number) {
            Held::Not => {}
            Held::Reading => return Ok(true),
            Held::Writing => return Err(self.would_deadlock("writes")),
        }
        self.check_memory()?;
        let entered = self.lock.try_enter(held::thread_number());
        let place = entered.map_err(|refused| self.refused(refused))?;
        if place.is_some() {
            held::note(self.number, place);
        }
        Ok(place.is_some())
    }

    /// Ends one read of the calling thread. Returns false if the thread does not read.
    #[inline]
    pub(in crate::api) fn end_read(&self) -> bool {
        match held::release(self.number, true) {
            Released::Nothing => return false,
            Released::Last(Some(place)) => self.lock.leave(place),
            Released::OneOfSeveral | Released::Last(None) => {}
        }
        true
    }

    /// Begins a write in the calling thread. Waits for earlier writers, then for readers to leave.
    pub(in crate::api) fn begin_write(&self) -> Result<Turn<'_>> {
        let turn = self.take_turn()?;
        self.lock.close();
        Ok(turn)
    }

    /// Makes all commits durable. Readers may stay.
    pub(super) fn sync(&self) -> Result<()> {
        self.upkeep(OpenSession::sync)
    }

    /// Writes commits to the object file and empties the log. Readers may stay.
    pub(super) fn checkpoint(&self) -> Result<bool> {
        self.upkeep(OpenSession::checkpoint)
    }

    /// Runs a call in a writer's turn with the lock open. For calls that change nothing that
    /// readers see.
    fn upkeep<R>(&self, call: impl FnOnce(&mut OpenSession) -> Result<R>) -> Result<R> {
        let mut turn = self.take_turn()?;
        turn.writing().readers_in = true;
        let result = call(&mut turn.writing().open);
        turn.break_if_unusable();
        result
    }

    fn take_turn(&self) -> Result<Turn<'_>> {
        match held::held(self.number) {
            Held::Not => {}
            Held::Reading => return Err(self.would_deadlock("reads")),
            Held::Writing => return Err(self.would_deadlock("writes")),
        }
        self.lock.take_turn().map_err(|refused| self.refused(refused))?;
        held::note(self.number, None);
        Ok(Turn { core: self, of_this_thread: PhantomData })
    }

    /// Ends the session. No other handle exists.
    pub(in crate::api) fn close(mut self) -> Result<()> {
        self.writing.get_mut().open.end()
    }

    /// Fails in a forked child, also in the thread that had the turn when it forked.
    pub(super) fn refuse_in_child(&self) -> Result<()> {
        at_fork::refuse_in_child(|| self.display_name.clone())
    }

    /// Fails in a forked child that does not have the object's memory.
    #[inline]
    fn check_memory(&self) -> Result<()> {
        match at_fork::is_child() && !self.memory_in_child.is_here() {
            false => Ok(()),
            true => Err(self.refused(Refused::Forked)),
        }
    }

    #[cold]
    fn would_deadlock(&self, how: &'static str) -> Error {
        Error::WouldDeadlock { what: self.display_name.clone(), how }
    }

    #[cold]
    fn refused(&self, refused: Refused) -> Error {
        match refused {
            Refused::Broken(why) => Error::DurabilityUnknown { path: self.path.clone(), why },
            Refused::Forked => Error::Forked { what: self.display_name.clone() },
        }
    }
}

/// Turn of the calling thread as the writer of a shared object.
pub(in crate::api) struct Turn<'a> {
    core: &'a SharedCore,
    /// Must end in the thread that recorded it.
    of_this_thread: PhantomData<*const ()>,
}

impl<'a> Turn<'a> {
    /// Returns the turn that the calling thread already has, for callers that cannot keep a guard.
    pub(super) fn resume(core: &'a SharedCore) -> Option<ManuallyDrop<Turn<'a>>> {
        (held::held(core.number) == Held::Writing)
            .then(|| ManuallyDrop::new(Turn { core, of_this_thread: PhantomData }))
    }

    fn writing(&mut self) -> &mut Writing {
        // SAFETY: there is one turn at a time, and it is borrowed exclusively here.
        unsafe { &mut *self.core.writing.get() }
    }

    /// Returns the session for reading.
    pub(in crate::api) fn session(&self) -> &OpenSession {
        // SAFETY: there is one turn at a time, and it is borrowed here.
        unsafe { &(*self.core.writing.get()).open }
    }

    /// Returns the session for calls that change nothing that readers see.
    pub(super) fn session_mut(&mut self) -> &mut OpenSession {
        &mut self.writing().open
    }

    /// Returns the session for stores to the object. No reader is inside from now on.
    pub(in crate::api) fn storing(&mut self) -> &mut OpenSession {
        self.exclude_readers();
        let writing = self.writing();
        writing.stored = true;
        &mut writing.open
    }

    fn exclude_readers(&mut self) {
        if std::mem::take(&mut self.writing().readers_in) {
            self.core.lock.close();
        }
    }

    pub(in crate::api) fn commit(&mut self) -> Result<bool> {
        if self.core.options.reads == Reads::EarlyRead && !self.writing().readers_in {
            self.writing().readers_in = true;
            self.core.lock.open();
        }
        let committed = self.writing().open.commit();
        if committed.is_ok() {
            self.writing().stored = false;
            self.publish();
        }
        self.break_if_unusable();
        committed
    }

    /// Runs a call that commits and then changes the mapping.
    pub(super) fn with_readers_out<R>(
        &mut self,
        call: impl FnOnce(&mut OpenSession) -> Result<R>,
    ) -> Result<R> {
        let result = call(self.storing());
        if result.is_ok() {
            self.writing().stored = false;
        }
        self.publish();
        self.break_if_unusable();
        result
    }

    /// Returns true if there are uncommitted changes. Scans memory, see
    /// [`OpenSession::has_changes`].
    pub(super) fn has_changes(&mut self) -> bool {
        let writing = self.writing();
        // After a failed flush, nothing can be committed or rolled back.
        let changed = writing.open.has_changes().unwrap_or(false);
        writing.stored = changed;
        changed
    }

    pub(in crate::api) fn rollback(&mut self) -> Result<()> {
        self.exclude_readers();
        let rolled_back = self.writing().open.rollback();
        match &rolled_back {
            Ok(()) => {
                self.writing().stored = false;
                self.publish();
            }
            // The mapping now shows neither the last commit nor the stores since.
            Err(error) => self.core.lock.break_down(error.to_string()),
        }
        self.break_if_unusable();
        rolled_back
    }

    /// Renews the facts that need no lock.
    pub(super) fn publish(&mut self) {
        self.core.public.renew(self.session());
    }

    /// Breaks the lock after a failed flush. It is then unknown whether the mapped state survives a
    /// crash, so no further reader may see it.
    fn break_if_unusable(&mut self) {
        if let Err(error) = self.session().check_usable() {
            let why = match error {
                Error::DurabilityUnknown { why, .. } => why,
                other => other.to_string(),
            };
            self.core.lock.break_down(why);
        }
    }
}

impl Drop for Turn<'_> {
    /// Discards uncommitted changes, also while a panic unwinds, so that readers find the last
    /// commit.
    fn drop(&mut self) {
        if self.writing().stored && self.session().check_usable().is_ok() {
            warn!(object = self.core.display_name, "uncommitted changes are discarded");
            if let Err(error) = self.rollback() {
                warn!(%error, object = self.core.display_name, "cannot roll back changes");
            }
        }
        if !std::mem::take(&mut self.writing().readers_in) {
            self.core.lock.open();
        }
        held::release(self.core.number, false);
        self.core.lock.end_turn();
    }
}
