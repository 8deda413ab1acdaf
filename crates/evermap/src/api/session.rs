//! Writing: one writer's time with an object.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use tracing::warn;

use super::info::ObjectInfo;
use super::inner::{Current, Inner, OpenObject};
use super::options::Verify;
use super::snapshot::{busy_here, root_as};
use crate::alloc::Heap;
use crate::catalog::{self, Found, Lease};
use crate::commit::{LogPolicy, WriteOptions};
use crate::error::Result;
use crate::object::{BackgroundVerification, Writer, lease_of};
use crate::persist::{Mut, Persist};

/// One writer's time with an object, from opening to closing. Dereferences to the root.
///
/// Stores go to this process's own copies of the pages; nothing reaches the file before
/// [`commit`](Session::commit), which makes all of it durable at once. What was not committed when
/// the session ends, by drop, by a kill or by a power cut, never happened.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// let store = evermap::Store::create_new(directory.path().join("store"))?;
/// store.create::<u64, _>("counter", 0)?;
/// let mut counter = store.write::<u64>("counter")?;
/// *counter.root_mut() += 1;
/// counter.commit()?;
/// *counter.root_mut() += 1;
/// counter.rollback()?;
/// counter.close()?;
/// assert_eq!(*store.read::<u64>("counter")?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// References into the object cannot outlive a commit:
///
/// ```compile_fail
/// # let store = evermap::Store::open("store")?;
/// let mut session = store.write::<evermap::PVec<u64>>("numbers")?;
/// let first = &session[0];
/// session.commit()?;
/// println!("{first}");
/// # Ok::<(), evermap::Error>(())
/// ```
pub struct Session<T> {
    verification: Option<BackgroundVerification>,
    /// Everything was compared when the object was opened.
    verified: bool,
    // Declared before `inner`: its mappings go before the object is marked as closed.
    writer: Option<Writer>,
    inner: Arc<Inner>,
    uuid: [u8; 16],
    name: String,
    root: NonNull<T>,
    leases: Vec<Lease>,
    root_type: PhantomData<T>,
}

// SAFETY: a session owns its mapping; the root is reached through it only.
unsafe impl<T: Send> Send for Session<T> {}
// SAFETY: a shared session gives `&T` and the heap, which is thread-safe.
unsafe impl<T: Sync> Sync for Session<T> {}

impl<T: Persist> Session<T> {
    pub(super) fn open(
        inner: &Arc<Inner>,
        name: &str,
        options: &WriteOptions,
    ) -> Result<Session<T>> {
        inner.find_and_open(name, |found| Session::open_found(inner, name, options, found))
    }

    fn open_found(
        inner: &Arc<Inner>,
        name: &str,
        options: &WriteOptions,
        found: &Found,
    ) -> Result<Session<T>> {
        {
            let (mut open, current) = inner.open_object(found.uuid);
            match current {
                Current::Closed => {}
                Current::Writing => return Err(busy_here(inner, name, "written")),
                Current::Reading(shared) => {
                    // The list is unlocked first: the last snapshot's end locks it.
                    drop(open);
                    drop(shared);
                    return Err(busy_here(inner, name, "read"));
                }
            }
            open.insert(found.uuid, OpenObject::Writing);
        }
        let opened = Session::open_writer(inner, name, options, found.uuid);
        if opened.is_err() {
            inner.open_objects().remove(&found.uuid);
        }
        opened
    }

    fn open_writer(
        inner: &Arc<Inner>,
        name: &str,
        options: &WriteOptions,
        uuid: [u8; 16],
    ) -> Result<Session<T>> {
        let environment = inner.environment();
        let patience = inner.options.busy_timeout;
        let mut writer = inner.with_place(name, uuid, |place| {
            Writer::open(&environment, place, LogPolicy::WhileOpen, options, patience)
        })?;
        let root = root_as::<T>(inner, name, writer.head())?;
        if writer.head().name() != name {
            writer.head_mut().set_name(name);
        }
        let verification = match inner.options.verify {
            Verify::Superblock => None,
            Verify::Background => writer.verify_in_background()?,
            Verify::Full => writer.verify().map(|()| None)?,
        };
        let regions = writer.head().regions().iter();
        let leases: Vec<Lease> =
            regions.map(lease_of).map(|(base, bytes)| Lease { base, bytes }).collect();
        inner.book.share(&leases)?;
        Ok(Session {
            verification,
            verified: inner.options.verify == Verify::Full,
            writer: Some(writer),
            inner: Arc::clone(inner),
            uuid,
            name: name.to_string(),
            root,
            leases,
            root_type: PhantomData,
        })
    }

    /// The root, for editing.
    pub fn root_mut(&mut self) -> Mut<'_, T> {
        // SAFETY: the root's type was checked at opening, the mapping lives in the writer, and
        // the exclusive borrow of the session covers the whole object.
        unsafe { Mut::from_raw(self.writer().heap(), self.root) }
    }

    /// The object's allocator, for code that manages its own memory in the object.
    pub fn heap(&self) -> &Heap {
        self.writer().heap()
    }

    /// Makes everything done since the last commit part of the object, all of it or nothing, and
    /// durable at the level that the session was opened with (by default: when this returns).
    /// Returns false when nothing had changed.
    ///
    /// Costs a page-table scan, a comparison of the changed pages and one flush; a second flush
    /// if the object grew, and some more at the first commit of a session. Now and then a commit is
    /// followed by a checkpoint, see [`WriteOptions`].
    ///
    /// # Errors
    /// `DiskFull`, `LogFull` and other errors before the commit point leave everything as it was:
    /// make room and commit again, or roll back. After `DurabilityUnknown` the session is of no more
    /// use; opening the object again finds the last durable commit. `Damaged` when a verification in
    /// the background found damage: nothing was committed.
    pub fn commit(&mut self) -> Result<bool> {
        self.verified()?;
        let new: Vec<Lease> =
            self.writer().new_leases().iter().map(|&(base, bytes)| Lease { base, bytes }).collect();
        if !new.is_empty() {
            // First the catalog, then the object: addresses may be recorded and unused, but never
            // used and unrecorded.
            let all: Vec<Lease> = self.leases.iter().chain(&new).copied().collect();
            let uuid = self.uuid;
            let known =
                self.inner.catalog().change(|catalog| catalog::set_leases(catalog, uuid, &all))?;
            if !known {
                return Err(self.inner.not_found(&self.name));
            }
            // Nobody else is given them from now on, and readers of the commit need to share them.
            self.inner.book.share(&new)?;
        }
        let committed = self.writer_mut().commit()?;
        if committed {
            self.leases.extend(new);
        }
        Ok(committed)
    }

    /// Forgets everything done since the last commit.
    ///
    /// # Errors
    /// When the kernel refuses to give the pages back; the session is of no more use then.
    pub fn rollback(&mut self) -> Result<()> {
        self.writer_mut().rollback()
    }

    /// Ends the session, forgetting what was not committed. Dropping it does the same, but has
    /// nobody to tell about errors.
    ///
    /// # Errors
    /// What was committed is durable whatever this returns; after an error the next opening
    /// finishes the work.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    /// Makes everything committed so far durable, at any level. At level `Commit` it is already.
    ///
    /// # Errors
    /// `DiskFull` and the like: nothing was lost, try again. `DurabilityUnknown` as for
    /// [`commit`](Session::commit).
    pub fn sync(&mut self) -> Result<()> {
        self.writer_mut().sync()
    }

    /// Writes all commits to the object file and empties the log, as a long session does by itself
    /// now and then. False while readers of older commits are in the way.
    ///
    /// # Errors
    /// As [`sync`](Session::sync).
    pub fn checkpoint(&mut self) -> Result<bool> {
        self.writer_mut().checkpoint()
    }

    /// Was every page compared with its checksum? True when that is done, false while it is going
    /// on or when it was not asked for, see [`Verify`].
    ///
    /// # Errors
    /// `Damaged`, with the first bad page.
    pub fn verified(&self) -> Result<bool> {
        self.verification.as_ref().map_or(Ok(self.verified), BackgroundVerification::outcome)
    }

    /// Number of the last commit; at level `Close`, of the last durable one.
    pub fn sequence(&self) -> u64 {
        self.writer().sequence()
    }

    /// What is known about the object, uncommitted allocations included.
    pub fn info(&self) -> Result<ObjectInfo> {
        let writer = self.writer();
        ObjectInfo::of_writer(&self.name, writer)
    }
}

impl<T> Session<T> {
    fn writer(&self) -> &Writer {
        // The writer is taken out only while the session is being dropped.
        self.writer.as_ref().unwrap_or_else(|| unreachable!("a session in use has a writer"))
    }

    fn writer_mut(&mut self) -> &mut Writer {
        self.writer.as_mut().unwrap_or_else(|| unreachable!("a session in use has a writer"))
    }

    fn end(&mut self) -> Result<()> {
        let Some(mut writer) = self.writer.take() else {
            return Ok(());
        };
        // It looks at the file, which is about to be cut.
        self.verification = None;
        let ended = writer.rollback().and_then(|()| writer.close());
        drop(writer);
        self.inner.book.give_up(&self.leases);
        self.inner.open_objects().remove(&self.uuid);
        ended
    }
}

impl<T> Deref for Session<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: as in `root_mut`, shared.
        unsafe { self.root.as_ref() }
    }
}

impl<T> Drop for Session<T> {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            warn!(%error, object = self.name, "closing a session");
        }
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Session<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}
