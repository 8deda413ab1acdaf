//! Keeps an object's memory closed to stores except while somebody has it open.
//!
//! Two ways. With a memory protection key a thread opens the object for itself by writing a
//! register. Without, the first who opens it makes its pages writable for the whole process by
//! `mprotect`, and the last who closes it takes that back.
//!
//! An object may also belong to an embedder, who put it under a key of its own: threads come and go
//! with their rights to it, and a scope gives none. The library's own work gets them for its time.
//!
//! Nothing else in the crate knows which way it is: whoever stores, the program in its scope or the
//! library in a commit, holds an [`Opened`]. Memory that the object gains meanwhile comes from
//! inside of a scope: it is mapped writable, under the key if there is one.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::{error, info};

use super::region_set::RegionSet;
use crate::address::{Access, AccessKey, Key};
use crate::at_fork;
use crate::error::Result;

/// How an object's memory is kept closed to stores, where that is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// Not at all.
    #[default]
    Off,
    /// By `mprotect` when the first scope of the process opens and the last one ends.
    Pages,
    /// By a memory protection key, for each thread by itself, where one is to be had; else as
    /// [`Pages`](Protection::Pages).
    Keys,
}

/// How an object's memory is kept closed to stores in truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ActiveProtection {
    /// Not at all.
    #[default]
    Nothing,
    /// By `mprotect`: a scope opens the object for all threads.
    Pages,
    /// By a memory protection key: a scope opens the object for the thread that made it, and for
    /// threads that are started inside of it.
    Keys,
}

/// The protection of one object during one writer's session.
pub(crate) struct Protector {
    way: Way,
    /// An embedder's, over the whole object.
    embedder: Option<AccessKey>,
}

enum Way {
    Nothing,
    Keys(Arc<Key>),
    Pages(Mutex<Pages>),
}

struct Pages {
    /// `None` when the session has ended: there is nothing left to open.
    region_set: Option<Arc<RegionSet>>,
    scopes: usize,
}

/// The right to store into the object: of this thread, at least, until it is dropped.
#[must_use]
pub(crate) struct Opened<'a> {
    protector: Option<&'a Protector>,
    /// An embedder's key, and this thread's right to it before.
    entered: Option<(&'a AccessKey, Access)>,
    /// A thread's right is given back by that thread.
    of_this_thread: PhantomData<*const ()>,
}

impl Protector {
    /// Closes the object's memory; `None` when nothing is to be protected. A page has one key: that
    /// of the embedder, if there is one.
    pub(super) fn new(
        protection: Protection,
        region_set: &Arc<RegionSet>,
        embedder: Option<AccessKey>,
    ) -> Result<Option<Arc<Protector>>> {
        let way = match protection {
            Protection::Off if embedder.is_none() => return Ok(None),
            Protection::Off => Way::Nothing,
            Protection::Keys => {
                let key = match embedder {
                    Some(_) => Err("the embedder has put the object under a key of its own"),
                    None => Key::take(),
                };
                match key {
                    Ok(key) => Way::of_key(Arc::new(key), region_set)?,
                    Err(why) => {
                        info!(why, "no memory protection key: mprotect instead");
                        Way::of_pages(region_set)?
                    }
                }
            }
            Protection::Pages => Way::of_pages(region_set)?,
        };
        let protector = Protector { way, embedder };
        info!(active = ?protector.active(), base = region_set.base(), "write protection");
        Ok(Some(Arc::new(protector)))
    }

    /// For an object that an embedder puts under a key of its own.
    pub(super) fn of_embedder(
        key: &AccessKey,
        region_set: &RegionSet,
    ) -> Result<Option<Arc<Protector>>> {
        region_set.guard_by(key.key())?;
        info!(key = key.number(), base = region_set.base(), "under an embedder's key");
        Ok(Some(Arc::new(Protector { way: Way::Nothing, embedder: Some(key.clone()) })))
    }

    /// The embedder's key.
    pub(super) fn embedder(&self) -> Option<AccessKey> {
        self.embedder.clone()
    }

    pub(crate) fn active(&self) -> ActiveProtection {
        match self.way {
            Way::Nothing => ActiveProtection::Nothing,
            Way::Keys(_) => ActiveProtection::Keys,
            Way::Pages(_) => ActiveProtection::Pages,
        }
    }

    /// Opens the object, until the value is dropped. Scopes nest.
    pub(crate) fn open(&self) -> Result<Opened<'_>> {
        self.begin()?;
        Ok(Opened { protector: Some(self), entered: None, of_this_thread: PhantomData })
    }

    /// The same for work of the library's own, which an embedder's key does not keep out.
    pub(crate) fn open_for_library(&self) -> Result<Opened<'_>> {
        let entered = self.embedder.as_ref().map(|key| (key, key.open()));
        let mut opened = Opened { protector: None, entered, of_this_thread: PhantomData };
        self.begin()?;
        opened.protector = Some(self);
        Ok(opened)
    }

    /// The same for work that only reads.
    pub(crate) fn open_for_reading(&self) -> Opened<'_> {
        let entered = self.embedder.as_ref().map(|key| (key, key.open()));
        Opened { protector: None, entered, of_this_thread: PhantomData }
    }

    /// Opens the object until [`end`](Protector::end): for callers without scopes.
    pub(crate) fn begin(&self) -> Result<()> {
        at_fork::refuse_in_child(|| "the object".to_string())?;
        match &self.way {
            Way::Nothing => {}
            Way::Keys(key) => key.open(),
            Way::Pages(pages) => {
                let mut pages = lock(pages);
                if let (0, Some(region_set)) = (pages.scopes, &pages.region_set) {
                    // Some of it may be open now; nobody relies on its being closed.
                    region_set.open_to_stores()?;
                }
                pages.scopes += 1;
            }
        }
        Ok(())
    }

    /// Undoes one [`begin`](Protector::begin), of this thread where there is a key; false when
    /// there was none.
    pub(crate) fn end(&self) -> bool {
        if at_fork::is_child() {
            return false;
        }
        let pages = match &self.way {
            Way::Nothing => return true,
            Way::Keys(key) => return key.close(),
            Way::Pages(pages) => pages,
        };
        let mut pages = lock(pages);
        let Some(left) = pages.scopes.checked_sub(1) else { return false };
        pages.scopes = left;
        if let (0, Some(region_set)) = (left, &pages.region_set)
            && let Err(error) = region_set.close_to_stores()
        {
            error!(%error, "an object stays open to stores");
        }
        true
    }

    /// The session ends: who still holds a pass opens nothing any more.
    pub(super) fn retire(&self) {
        if let Way::Pages(pages) = &self.way {
            lock(pages).region_set = None;
        }
    }
}

impl Way {
    fn of_key(key: Arc<Key>, region_set: &RegionSet) -> Result<Way> {
        region_set.guard_by(&key)?;
        Ok(Way::Keys(key))
    }

    fn of_pages(region_set: &Arc<RegionSet>) -> Result<Way> {
        region_set.close_to_stores()?;
        Ok(Way::Pages(Mutex::new(Pages { region_set: Some(Arc::clone(region_set)), scopes: 0 })))
    }
}

fn lock(pages: &Mutex<Pages>) -> MutexGuard<'_, Pages> {
    pages.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Opened<'_> {
    /// Of an object that is not protected.
    pub(crate) fn always() -> Opened<'static> {
        Opened { protector: None, entered: None, of_this_thread: PhantomData }
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        if let Some(protector) = self.protector {
            protector.end();
        }
        if let Some((key, before)) = self.entered {
            key.close(before);
        }
    }
}
