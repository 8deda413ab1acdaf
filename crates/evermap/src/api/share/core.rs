//! One session of an object that threads of this process share, and who may use it when.
//!
//! Readers read the session's own mapping: the last commit, and over it the stores of the writer.
//! A writer closes the lock before its first store and opens it when there is nothing that readers must
//! not see. Readers may be inside while a commit looks at memory, writes its record, flushes, applies
//! and checkpoints, because none of these changes a byte that a program can read:
//!
//! * The scan of the page table and the write protection that it sets concern stores alone.
//! * Sealing a commit writes the head of page 0, which is not the program's; the root area behind it
//!   stays as it is, but for the record of code of an object whose root is not there. Allocator metadata change too: readers have no access to them.
//! * New memory is mapped anew at its place, of the same file: a page has the same bytes in both
//!   mappings, and a fault in between waits for the kernel's lock of the address space.
//! * An apply writes to the file what the private pages hold already. A private page is given back
//!   only after that; the page of the file has the same bytes then. So has the copy of a file that
//!   takes the file's place.
//!
//! Rollback changes the mapping and takes growth back: it happens with the lock closed.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tracing::warn;

use super::facts::{Facts, Public};
use super::held::{self, GivenUp, Held};
use super::lock::{Refused, SlotLock};
use super::options::{Reads, ShareOptions};
use crate::api::application::{ApplicationKey, check_application};
use crate::api::inner::{Current, Inner, OpenObject, lock};
use crate::api::open_session::OpenSession;
use crate::api::snapshot::busy_here;
use crate::at_fork;
use crate::error::{Error, Result};
use crate::format::Superblock;
use crate::object::MemoryInChild;

/// An object that is open for sharing. Dropping it forgets what was not committed.
pub(in crate::api) struct SharedCore {
    /// Only the writer whose turn it is touches it.
    writing: UnsafeCell<Writing>,
    lock: SlotLock,
    options: ShareOptions,
    /// Tells a forked child whether it has the object's memory.
    memory_in_child: MemoryInChild,
    /// The superblock when the object was opened.
    superblock: Box<Superblock>,
    /// Identifies the lock in the list of what a thread holds. No number is used twice.
    number: u64,
    /// Commits look for words that lead out of the object: a raw handle was opened.
    looks: AtomicBool,
    public: Public,
    /// The object and its file, for messages.
    display_name: String,
    path: PathBuf,
}

struct Writing {
    open: OpenSession,
    /// There may be stores that no commit has.
    stored: bool,
    /// The lock is open although a writer has its turn.
    readers_in: bool,
}

// SAFETY: `writing` is reached by a `Turn`, of which there is one at a time, or by whoever has the
// core for itself. The session itself may be used by one thread after the other.
unsafe impl Send for SharedCore {}
// SAFETY: as above; everything else is made for sharing.
unsafe impl Sync for SharedCore {}

impl SharedCore {
    /// Opens an object for sharing, or finds it open. `check` sees a newly mapped object and the path of
    /// its file, and may refuse it.
    pub(in crate::api) fn open(
        inner: &Arc<Inner>,
        name: &str,
        options: &ShareOptions,
        application: Option<ApplicationKey>,
        check: impl Fn(&OpenSession, &Path) -> Result<()>,
    ) -> Result<Arc<SharedCore>> {
        at_fork::refuse_in_child(|| format!("store {}", inner.directory.display()))?;
        // One after the other: the second call finds what the first one opens.
        let _opening = lock(&inner.sharing);
        inner.find_and_open(name, |located| {
            let uuid = located.uuid;
            let (open, current) = inner.open_object(uuid);
            // The list is unlocked first: the end of a snapshot or of a shared object locks it.
            drop(open);
            if let Current::Shared(core) = current {
                check_application(inner, name, &core.superblock, application)?;
                if core.options != *options {
                    return Err(busy_here(inner, name, "shared with other options"));
                }
                return Ok(core);
            }
            let write = &options.write;
            let (session, superblock) = OpenSession::open_located(
                inner,
                name,
                write,
                application,
                located,
                |superblock| Ok(Box::new(*superblock)),
            )?;
            let path = inner.paths(name, uuid).path;
            check(&session, &path)?;
            let memory_in_child = session.memory_in_child();
            static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);
            let core = Arc::new(SharedCore {
                number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
                looks: AtomicBool::new(false),
                public: Public::new(&session),
                path,
                writing: UnsafeCell::new(Writing {
                    open: session,
                    stored: false,
                    readers_in: false,
                }),
                lock: SlotLock::new(),
                memory_in_child,
                options: options.clone(),
                superblock,
                display_name: format!("object `{name}` of store {}", inner.directory.display()),
            });
            inner.open_objects().insert(uuid, OpenObject::Shared(Arc::downgrade(&core)));
            Ok(core)
        })
    }

    /// Refuses code of another build, and has commits look for words that lead out of the object: for
    /// the first raw handle. Readers stay; a writer is waited for.
    pub(super) fn look_for_foreign(&self) -> Result<()> {
        if self.looks.load(Ordering::Acquire) {
            return Ok(());
        }
        self.upkeep(|open| {
            // Another handle may have come first, and the program may rely on what it told that one.
            if !self.looks.load(Ordering::Acquire) {
                open.look_for_foreign(&self.options.write)?;
                self.looks.store(true, Ordering::Release);
            }
            Ok(())
        })
    }

    /// The superblock as it was when the object was opened.
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

    /// Begins to read in the calling thread. Each success is ended once, by
    /// [`end_read`](SharedCore::end_read) in the same thread.
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

    /// Begins to read if that takes no waiting.
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

    /// Ends one read of the calling thread; false when it does not read.
    #[inline]
    pub(in crate::api) fn end_read(&self) -> bool {
        match held::give_up(self.number, true) {
            GivenUp::Nothing => return false,
            GivenUp::Last(Some(place)) => self.lock.leave(place),
            GivenUp::OneOfSeveral | GivenUp::Last(None) => {}
        }
        true
    }

    /// Begins to write in the calling thread: waits for earlier writers, then for readers to leave.
    pub(in crate::api) fn begin_write(&self) -> Result<Turn<'_>> {
        let turn = self.take_turn()?;
        self.lock.close();
        Ok(turn)
    }

    /// Makes what is committed durable. Readers stay.
    pub(super) fn sync(&self) -> Result<()> {
        self.upkeep(OpenSession::sync)
    }

    /// Writes commits to the object file and empties the log. Readers stay.
    pub(super) fn checkpoint(&self) -> Result<bool> {
        self.upkeep(OpenSession::checkpoint)
    }

    /// A writer's turn with the lock open: for calls that change nothing that readers see.
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

    /// Ends the session. Everything else has been dropped.
    pub(in crate::api) fn close(mut self) -> Result<()> {
        self.writing.get_mut().open.end()
    }

    /// Refuses what a child must not do, also in the thread that had the turn when it forked.
    pub(super) fn refuse_in_child(&self) -> Result<()> {
        at_fork::refuse_in_child(|| self.display_name.clone())
    }

    /// Refuses to read in a child that does not have the object's memory.
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

/// The turn of the calling thread as the writer of a shared object.
pub(in crate::api) struct Turn<'a> {
    core: &'a SharedCore,
    /// It ends in the thread that has it noted.
    of_this_thread: PhantomData<*const ()>,
}

impl<'a> Turn<'a> {
    /// The turn that the calling thread has already, for callers that cannot keep a guard.
    pub(super) fn resume(core: &'a SharedCore) -> Option<ManuallyDrop<Turn<'a>>> {
        (held::held(core.number) == Held::Writing)
            .then(|| ManuallyDrop::new(Turn { core, of_this_thread: PhantomData }))
    }

    fn writing(&mut self) -> &mut Writing {
        // SAFETY: there is one turn at a time, and it is borrowed exclusively here.
        unsafe { &mut *self.core.writing.get() }
    }

    /// The session, for looking at.
    pub(in crate::api) fn session(&self) -> &OpenSession {
        // SAFETY: there is one turn at a time, and it is borrowed here.
        unsafe { &(*self.core.writing.get()).open }
    }

    /// The session, for calls that change nothing that readers see.
    pub(super) fn session_mut(&mut self) -> &mut OpenSession {
        &mut self.writing().open
    }

    /// The session, for storing to the object: no reader is inside from now on.
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

    /// Runs a call that commits, and then changes what is mapped.
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

    /// Are there changes that no commit has? Looks at memory, see [`OpenSession::has_changes`].
    pub(super) fn has_changes(&mut self) -> bool {
        let writing = self.writing();
        // After a failed flush there is nothing that could be committed or rolled back.
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
            // What is mapped is neither the last commit nor what was stored.
            Err(error) => self.core.lock.break_down(error.to_string()),
        }
        self.break_if_unusable();
        rolled_back
    }

    /// Renews the facts that need no lock.
    pub(super) fn publish(&mut self) {
        self.core.public.renew(self.session());
    }

    /// After a failed flush nobody can tell whether what is mapped will be there after a crash: no
    /// reader may see it any more.
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
    /// Forgets what was not committed, also while a panic unwinds: readers find the last commit.
    fn drop(&mut self) {
        if self.writing().stored && self.session().check_usable().is_ok() {
            warn!(object = self.core.display_name, "changes that were not committed are forgotten");
            if let Err(error) = self.rollback() {
                warn!(%error, object = self.core.display_name, "changes cannot be taken back");
            }
        }
        if !std::mem::take(&mut self.writing().readers_in) {
            self.core.lock.open();
        }
        held::give_up(self.core.number, false);
        self.core.lock.end_turn();
    }
}
