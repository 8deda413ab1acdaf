//! The store that a [`Store`](super::Store) handle leads to.
//!
//! A store is its directory, and not the path of it: all of its files are looked up in the directory
//! that was opened, so a process never reads the catalog of one store and an object of another. What
//! the path leads to can change: `restore --force`, a rebase and `mv` put another directory there.
//! So each call compares the file that the path of the catalog leads to with the catalog that it used,
//! which costs one system call. If the two differ, the call opens the store anew and runs again.
//!
//! The new store often has the addresses of the old one, and this process can map only one of the two.
//! While it has objects of the old store open, it goes on with that store if it cannot open the new one:
//! reading works, and changes are refused.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tracing::debug;

use super::inner::{CATALOG, Inner, lock};
use super::options::Options;
use crate::at_fork;
use crate::error::{Error, Result};

/// Handles of this process, so that one that renews its store can have the others let go of the old one.
static HOMES: Mutex<Vec<Weak<Home>>> = Mutex::new(Vec::new());
/// Locked while a thread opens a store anew.
static RENEWING: Mutex<()> = Mutex::new(());

/// A call runs at most so many times. Each further run needs a process that replaced the store during the
/// call, or a thread of this process that still uses the old store.
const ATTEMPTS_MAX: usize = 200;
/// Pause for threads of this process that use the old store.
const PAUSE: Duration = Duration::from_millis(1);

/// Purpose of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Looks at it.
    Read,
    /// Opens an object for writing: nothing has changed when that is undone.
    Open,
    /// Changes it.
    Change,
}

/// The path of a store, and the store that it led to last.
pub(super) struct Home {
    /// The path that the caller gave.
    path: PathBuf,
    /// Does not depend on the working directory.
    absolute: PathBuf,
    catalog: PathBuf,
    pub(super) options: Options,
    /// `None` while a thread opens the store anew, and after that failed.
    current: Mutex<Option<Arc<Inner>>>,
}

impl std::fmt::Debug for Home {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Home").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Home {
    /// Opens the store in a directory. `named` as for [`Inner::open`].
    pub(super) fn open(path: &Path, options: &Options, named: bool) -> Result<Arc<Home>> {
        let inner = Inner::open(path, options, named)?;
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let home = Arc::new(Home {
            path: path.to_path_buf(),
            catalog: absolute.join(CATALOG),
            absolute,
            options: options.clone(),
            current: Mutex::new(Some(inner)),
        });
        let mut homes = lock(&HOMES);
        homes.retain(|other| other.strong_count() > 0);
        homes.push(Arc::downgrade(&home));
        Ok(home)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs a call, again if the store was replaced while it ran.
    pub(super) fn run<R>(
        &self,
        purpose: Use,
        call: impl Fn(&Arc<Inner>) -> Result<R>,
    ) -> Result<R> {
        at_fork::refuse_in_child(|| format!("store {}", self.path.display()))?;
        let mut inner = self.current()?;
        if purpose == Use::Change && !self.leads_to(&inner) {
            inner = self.changeable(inner)?;
        }
        let mut result = call(&inner);
        for _ in 0..ATTEMPTS_MAX {
            if self.leads_to(&inner) {
                return result;
            }
            debug!(path = %self.path.display(), "the store was replaced");
            // It may hold addresses of the old store.
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
                inner = self.changeable(inner)?;
                result = call(&inner);
            }
        }
        result
    }

    /// Refuses to go on with a store that was replaced.
    pub(super) fn check(&self, inner: &Inner) -> Result<()> {
        match self.leads_to(inner) {
            true => Ok(()),
            false => Err(self.busy("another process replaced it during this call")),
        }
    }

    /// Does the path lead to this store? If it leads to no store at all, nothing took its place.
    fn leads_to(&self, inner: &Inner) -> bool {
        let found = self.options.storage.file_identity(&self.catalog);
        found.map_or(true, |found| found == inner.identity())
    }

    fn current(&self) -> Result<Arc<Inner>> {
        if let Some(inner) = &*lock(&self.current) {
            return Ok(Arc::clone(inner));
        }
        let _renewing = lock(&RENEWING);
        self.reopen()
    }

    fn reopen(&self) -> Result<Arc<Inner>> {
        let mut current = lock(&self.current);
        if let Some(inner) = &*current {
            return Ok(Arc::clone(inner));
        }
        let inner = Inner::open(&self.absolute, &self.options, false)?;
        Ok(Arc::clone(current.insert(inner)))
    }

    /// The store that took the place of this one.
    ///
    /// # Errors
    /// `Busy` while this process has objects of the old one open.
    fn changeable(&self, mut inner: Arc<Inner>) -> Result<Arc<Inner>> {
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

    /// Opens the store that the path leads to now, and returns true; or returns the old one and false
    /// while this process uses that and it has the addresses of the new one.
    fn renew(&self, inner: Arc<Inner>) -> Result<(Arc<Inner>, bool)> {
        let _renewing = lock(&RENEWING);
        let current = lock(&self.current).clone();
        if let Some(current) = current.filter(|current| !Arc::ptr_eq(current, &inner)) {
            return Ok((current, true));
        }
        let old = Arc::downgrade(&inner);
        drop(inner);
        let homes: Vec<Arc<Home>> = lock(&HOMES).iter().filter_map(Weak::upgrade).collect();
        for home in &homes {
            home.let_go(&old);
        }
        match self.reopen() {
            Err(refused @ Error::AddressTaken { .. }) => {
                let old = old.upgrade().ok_or(refused)?;
                Ok((Arc::clone(lock(&self.current).get_or_insert(old)), false))
            }
            opened => opened.map(|inner| (inner, true)),
        }
    }

    /// Forgets a store that the path no longer leads to.
    fn let_go(&self, old: &Weak<Inner>) {
        let mut current = lock(&self.current);
        let is_old = current.as_ref().is_some_and(|inner| {
            std::ptr::eq(Arc::as_ptr(inner), old.as_ptr()) && !self.leads_to(inner)
        });
        let old = if is_old { current.take() } else { None };
        // The end of a store locks the list of open stores.
        drop(current);
        drop(old);
    }
}
