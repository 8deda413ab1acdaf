//! Finds the store that a [`Store`](super::Store) handle leads to.
//!
//! A store is a directory, not a path. All of its files are looked up in the directory that was
//! opened, so a process never reads the catalog of one store and an object of another. The path can
//! lead to another directory later: `restore --force`, a rebase and `mv` change it. So each call
//! compares the file at the catalog's path with the catalog that it used, which costs one system
//! call. If the two differ, it opens the store again and runs again.
//!
//! The new store often has the addresses of the old one, and this process can map only one of the
//! two. While it has objects of the old store open and cannot open the new one, it keeps using the
//! old store: reading works, and changes are refused.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tracing::debug;

use super::inner::StoreInner;
use super::options::Options;
use super::store_files::lock;
use crate::at_fork;
use crate::error::{Error, Result};
use crate::layout::CATALOG;
use crate::storage::Storage;

/// Handles of this process. A handle that opens a store again makes the others release the old one.
static HANDLES: Mutex<Vec<Weak<Current>>> = Mutex::new(Vec::new());
/// Locked while a thread opens a store again.
static RENEWING: Mutex<()> = Mutex::new(());

/// Maximum number of runs of a call. Each further run means that a process replaced the store
/// during the call, or that a thread of this process still uses the old store.
const ATTEMPTS_MAX: usize = 200;
/// Pause for threads of this process that use the old store.
const PAUSE: Duration = Duration::from_millis(1);

/// Purpose of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// The call only reads.
    Read,
    /// The call opens an object for writing. Undoing that leaves no change.
    Open,
    /// The call changes the store.
    Change,
}

/// Path of a store, and the store that it led to last.
pub(super) struct Home {
    /// The path that the caller gave.
    path: PathBuf,
    /// Absolute form of `path`, independent of the working directory.
    absolute: PathBuf,
    pub(super) options: Options,
    current: Arc<Current>,
}

/// The store that a handle led to last. Other threads look at it to release a replaced store, so it
/// may outlive its handle for a moment, without the store.
struct Current {
    /// Path of the catalog.
    catalog: PathBuf,
    storage: Arc<dyn Storage>,
    /// `None` while a thread opens the store again, and after a failure to do so.
    store: Mutex<Option<Arc<StoreInner>>>,
}

impl Drop for Home {
    fn drop(&mut self) {
        // Here and not with `Current`: the store is closed when its last handle is dropped, even if
        // another thread is looking at the handle.
        let store = lock(&self.current.store).take();
        drop(store);
    }
}

impl std::fmt::Debug for Home {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Home").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Home {
    /// Opens the store in a directory. See [`StoreInner::open`] for `named`.
    pub(super) fn open(path: &Path, options: &Options, named: bool) -> Result<Arc<Home>> {
        let inner = StoreInner::open(path, options, named)?;
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let home = Arc::new(Home {
            path: path.to_path_buf(),
            options: options.clone(),
            current: Arc::new(Current {
                catalog: absolute.join(CATALOG),
                storage: Arc::clone(&options.storage),
                store: Mutex::new(Some(inner)),
            }),
            absolute,
        });
        let mut handles = lock(&HANDLES);
        handles.retain(|other| other.strong_count() > 0);
        handles.push(Arc::downgrade(&home.current));
        Ok(home)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs a call. Runs it again if the store was replaced in between.
    pub(super) fn run<R>(
        &self,
        purpose: Use,
        call: impl Fn(&Arc<StoreInner>) -> Result<R>,
    ) -> Result<R> {
        at_fork::refuse_in_child(|| format!("store {}", self.path.display()))?;
        let mut inner = self.current()?;
        if purpose == Use::Change && !self.leads_to(&inner) {
            inner = self.wait_for_new_store(inner)?;
        }
        let mut result = call(&inner);
        for _ in 0..ATTEMPTS_MAX {
            if self.leads_to(&inner) {
                return result;
            }
            debug!(path = %self.path.display(), "the store was replaced");
            // The result may hold addresses of the old store.
            drop(result);
            if purpose == Use::Read {
                let (next, is_new) = self.renew(inner)?;
                inner = next;
                result = call(&inner);
                if is_new {
                    continue;
                }
                if result.is_ok() {
                    return result;
                }
                std::thread::sleep(PAUSE);
            } else {
                inner = self.wait_for_new_store(inner)?;
                result = call(&inner);
            }
        }
        result
    }

    /// Refuses to go on with a store that was replaced.
    pub(super) fn check(&self, inner: &StoreInner) -> Result<()> {
        match self.leads_to(inner) {
            true => Ok(()),
            false => Err(self.busy("another process replaced it during this call")),
        }
    }

    fn leads_to(&self, inner: &StoreInner) -> bool {
        self.current.leads_to(inner)
    }

    fn current(&self) -> Result<Arc<StoreInner>> {
        if let Some(inner) = &*lock(&self.current.store) {
            return Ok(Arc::clone(inner));
        }
        let _renewing = lock(&RENEWING);
        self.reopen()
    }

    fn reopen(&self) -> Result<Arc<StoreInner>> {
        let mut current = lock(&self.current.store);
        if let Some(inner) = &*current {
            return Ok(Arc::clone(inner));
        }
        let inner = StoreInner::open(&self.absolute, &self.options, false)?;
        Ok(Arc::clone(current.insert(inner)))
    }

    /// Returns the store that replaced this one.
    ///
    /// # Errors
    /// `Busy` while this process has objects of the old one open.
    fn wait_for_new_store(&self, mut inner: Arc<StoreInner>) -> Result<Arc<StoreInner>> {
        for _ in 0..ATTEMPTS_MAX {
            let (next, is_new) = self.renew(inner)?;
            if is_new {
                return Ok(next);
            }
            inner = next;
            std::thread::sleep(PAUSE);
        }
        Err(self.busy("this process has objects open of the store that was replaced"))
    }

    fn busy(&self, holder: &str) -> Error {
        Error::Busy { what: format!("store {}", self.path.display()), holder: holder.to_string() }
    }

    /// Opens the store that the path leads to now and returns it with true. Returns the old store
    /// and false if this process still uses the old one, and the two overlap.
    fn renew(&self, inner: Arc<StoreInner>) -> Result<(Arc<StoreInner>, bool)> {
        let _renewing = lock(&RENEWING);
        let current = lock(&self.current.store).clone();
        if let Some(current) = current.filter(|current| !Arc::ptr_eq(current, &inner)) {
            return Ok((current, true));
        }
        let old = Arc::downgrade(&inner);
        drop(inner);
        let handles: Vec<Arc<Current>> = lock(&HANDLES).iter().filter_map(Weak::upgrade).collect();
        for handle in &handles {
            handle.release_replaced(&old);
        }
        match self.reopen() {
            Err(refused @ Error::AddressTaken { .. }) => {
                let old = old.upgrade().ok_or(refused)?;
                Ok((Arc::clone(lock(&self.current.store).get_or_insert(old)), false))
            }
            opened => opened.map(|inner| (inner, true)),
        }
    }
}

impl Current {
    /// Returns true if the path leads to this store, or to no store at all.
    fn leads_to(&self, inner: &StoreInner) -> bool {
        let found = self.storage.file_identity(&self.catalog);
        found.map_or(true, |found| found == inner.identity())
    }

    /// Releases a store that the path no longer leads to.
    fn release_replaced(&self, old: &Weak<StoreInner>) {
        let mut current = lock(&self.store);
        let is_old = current.as_ref().is_some_and(|inner| {
            std::ptr::eq(Arc::as_ptr(inner), old.as_ptr()) && !self.leads_to(inner)
        });
        let old = if is_old { current.take() } else { None };
        // Dropping a store locks the list of open stores.
        drop(current);
        drop(old);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_store_is_closed_with_its_handle_while_another_thread_looks_at_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store");
        drop(super::super::store::Store::create_new(&path).unwrap());
        let home = Home::open(&path, &Options::new(), false).unwrap();
        let store = Arc::downgrade(&home.current().unwrap());
        // A thread that opens a replaced store again holds this for every handle.
        let current = Arc::clone(&home.current);
        drop(home);
        assert!(store.upgrade().is_none());
        assert!(lock(&current.store).is_none());
    }
}
