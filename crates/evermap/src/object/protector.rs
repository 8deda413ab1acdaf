//! Keeps an object's memory write-protected except while a scope is open.
//!
//! There are two mechanisms. With a memory protection key, a thread opens the object for itself by
//! writing a register. Without one, the first scope makes the pages writable for the whole process
//! with `mprotect`, and the last scope protects them again.
//!
//! An embedder may have put the object under its own key. Its threads then set their own rights,
//! and a scope grants none. The library takes them only during its own work.
//!
//! The rest of the crate does not know which mechanism is used: the program in its scope and the
//! library in a commit both hold an [`Opened`]. The object gains memory only inside of a scope, so
//! that memory is mapped writable, under the key if there is one.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::{error, info};

use super::region_set::RegionSet;
use crate::address::{Access, AccessKey, Key};
use crate::at_fork;
use crate::error::Result;

/// Write protection that the caller asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// No protection.
    #[default]
    Off,
    /// With `mprotect`: the pages are writable, for all threads, while the process has a scope
    /// open.
    Pages,
    /// With a memory protection key, for each thread separately. Falls back to
    /// [`Pages`](Protection::Pages) if no key is available.
    Keys,
}

/// Write protection that an object has in effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ActiveProtection {
    /// No protection.
    #[default]
    Nothing,
    /// With `mprotect`: a scope opens the object for all threads.
    Pages,
    /// With a memory protection key: a scope opens the object for the thread that made it, and for
    /// threads started inside of it.
    Keys,
}

/// The protection of one object during one writer's session.
pub(crate) struct Protector {
    way: Way,
    /// Embedder's key, which covers the whole object.
    embedder: Option<AccessKey>,
}

enum Way {
    Nothing,
    Keys(Arc<Key>),
    Pages(Mutex<Pages>),
}

struct Pages {
    /// `None` after the end of the session.
    region_set: Option<Arc<RegionSet>>,
    scopes: usize,
}

/// Permission to store into the object, for this thread at least, until it is dropped.
#[must_use]
pub(crate) struct Opened<'a> {
    protector: Option<&'a Protector>,
    /// Embedder's key, and this thread's rights before.
    entered: Option<(&'a AccessKey, Access)>,
    /// Not `Send`: each thread must restore its own rights.
    of_this_thread: PhantomData<*const ()>,
}

impl Protector {
    /// Write-protects the object's memory. Returns `None` if no protection is asked for. A page has
    /// only one key, so an embedder's key takes precedence.
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
                    Some(_) => Err("the embedder has put the object under its own key"),
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

    /// Puts the object under an embedder's key.
    pub(super) fn of_embedder(
        key: &AccessKey,
        region_set: &RegionSet,
    ) -> Result<Option<Arc<Protector>>> {
        region_set.set_protection_key(key.key())?;
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

    /// Opens the object until the value is dropped. Scopes nest.
    pub(crate) fn open(&self) -> Result<Opened<'_>> {
        self.begin()?;
        Ok(Opened { protector: Some(self), entered: None, of_this_thread: PhantomData })
    }

    /// Like [`open`](Protector::open), for the library's own work: also enters an embedder's key.
    pub(crate) fn open_for_library(&self) -> Result<Opened<'_>> {
        let entered = self.embedder.as_ref().map(|key| (key, key.open()));
        let mut opened = Opened { protector: None, entered, of_this_thread: PhantomData };
        self.begin()?;
        opened.protector = Some(self);
        Ok(opened)
    }

    /// Enters an embedder's key, for work of the library that only reads. Does not make the object
    /// writable.
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
                    // If this fails, part of the memory may stay open. Protection is best effort.
                    region_set.open_to_stores()?;
                }
                pages.scopes += 1;
            }
        }
        Ok(())
    }

    /// Undoes one [`begin`](Protector::begin), of this thread if there is a key. Returns false in a
    /// forked child, and if no `begin` is left; without a protection mechanism it returns true.
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
            error!(%error, "cannot write-protect an object again");
        }
        true
    }

    /// Notes the end of the session: later calls change the protection of no page.
    pub(super) fn retire(&self) {
        if let Way::Pages(pages) = &self.way {
            lock(pages).region_set = None;
        }
    }
}

impl Way {
    fn of_key(key: Arc<Key>, region_set: &RegionSet) -> Result<Way> {
        region_set.set_protection_key(&key)?;
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
    /// For an object that is not protected.
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
