//! Native programs: maps objects of the store that `EVERMAP_STORE` names.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use evermap::{Heap, RawSession, RawSnapshot, Store};

use crate::error::{Code, Error, Result};
use crate::root::{RawRoot, View};

/// Environment variable with the store's directory.
const STORE_VARIABLE: &str = "EVERMAP_STORE";

static STORE: Mutex<Option<Store>> = Mutex::new(None);

/// Sets the store in which a native program opens objects from now on, instead of the one in the
/// environment variable `EVERMAP_STORE`. Creates the store if it does not exist.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// evermap_guest::use_store(directory.path().join("store"))?;
/// assert!(!evermap_guest::Heap::open("new")?.has_root()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The errors of opening and creating a store.
pub fn use_store(directory: impl Into<PathBuf>) -> Result<()> {
    let store = Store::open_or_create(directory.into())?;
    *STORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(store);
    Ok(())
}

fn store(object: &str) -> Result<Store> {
    let mut open = STORE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(store) = &*open {
        return Ok(store.clone());
    }
    let Some(directory) = std::env::var_os(STORE_VARIABLE).filter(|value| !value.is_empty()) else {
        let why = format!("{STORE_VARIABLE} is not set; set it to the directory of the store");
        return Err(Error::new(Code::InvalidArgument, object, why));
    };
    let store = Store::open_or_create(directory).map_err(|e| Error::of(&e, object))?;
    Ok(open.insert(store).clone())
}

/// An object open for writing.
pub(crate) struct Writer {
    session: RawSession,
}

impl Writer {
    pub(crate) fn open(name: &str) -> Result<Writer> {
        let store = store(name)?;
        let session = match store.write_raw(name) {
            Err(evermap::Error::NotFound { .. }) => match store.create_raw(name) {
                // Another process can have created it first.
                Ok(()) | Err(evermap::Error::AlreadyExists { .. }) => store.write_raw(name),
                Err(error) => Err(error),
            },
            other => other,
        };
        Ok(Writer { session: session.map_err(|e| Error::of(&e, name))? })
    }

    pub(crate) fn heap(&self) -> Result<&Heap> {
        Ok(self.session.heap())
    }

    /// # Safety
    /// Same requirements as `Heap::set_root_raw`.
    pub(crate) unsafe fn set_root(&mut self, root: &RawRoot) -> Result<()> {
        let address = std::ptr::NonNull::new(root.address);
        let (tag, description) = (root.tag, &root.description);
        // SAFETY: the caller passes a root of the tag's type, as `Heap::set_root_raw` requires.
        let set = unsafe { self.session.set_root(address, root.bytes, tag, description) };
        set.map_err(|e| Error::of(&e, self.session.name()))
    }

    pub(crate) fn commit(&mut self) -> Result<bool> {
        self.session.commit().map_err(|e| Error::of(&e, self.session.name()))
    }

    pub(crate) fn rollback(&mut self) -> Result<()> {
        self.session.rollback().map_err(|e| Error::of(&e, self.session.name()))
    }

    pub(crate) fn close(self) -> Result<()> {
        let name = self.session.name().to_string();
        self.session.close().map_err(|e| Error::of(&e, &name))
    }
}

impl View for Writer {
    fn name(&self) -> &str {
        self.session.name()
    }

    fn root(&self) -> Result<RawRoot> {
        Ok(RawRoot::of(self.session.root()))
    }

    fn contains(&self, address: usize, length: usize) -> bool {
        contains_range(&self.session.regions(), address, length)
    }
}

/// The last commit of an object.
pub(crate) struct Reader {
    snapshot: RawSnapshot,
}

impl Reader {
    pub(crate) fn open(name: &str) -> Result<Reader> {
        let snapshot = store(name)?.read_raw(name).map_err(|e| Error::of(&e, name))?;
        Ok(Reader { snapshot })
    }

    pub(crate) fn close(self) -> Result<()> {
        Ok(())
    }
}

impl View for Reader {
    fn name(&self) -> &str {
        self.snapshot.name()
    }

    fn root(&self) -> Result<RawRoot> {
        Ok(RawRoot::of(self.snapshot.root()))
    }

    fn contains(&self, address: usize, length: usize) -> bool {
        contains_range(&self.snapshot.regions(), address, length)
    }
}

impl RawRoot {
    fn of(root: evermap::RawRoot) -> RawRoot {
        let evermap::RawRoot { address, bytes, tag, description } = root;
        RawRoot { address, bytes, tag, description }
    }
}

/// Returns true if the range lies in a region. Small roots lie before the first chunk, so the whole
/// region counts.
fn contains_range(regions: &[(u64, u64)], address: usize, length: usize) -> bool {
    let (address, length) = (address as u64, length as u64);
    regions.iter().any(|&(base, bytes)| {
        address.checked_sub(base).is_some_and(|at| at <= bytes && bytes - at >= length)
    })
}
