//! Open images: numbers for C, as those of stores. Loading and waiting take long, so they do not happen under the table's lock: each
//! image has a lock of its own, shared by who waits, tried and never waited for. Whoever wants an image alone while another
//! thread is inside of it is told so.
//!
//! Where the bytes are does not change while an image is open, and is told without that lock: the program reads and writes there while other
//! threads of it wait.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, TryLockError};

use evermap_load::{Image, Method};

use super::types::evermap_image;
use crate::failure::{Failure, Result};
use crate::handles::closed;
use crate::status;
use crate::table::Table;

static IMAGES: Table<Held> = Table::new(0x7 << 60, "images");
/// No address: the image's bytes cannot be written yet.
const NOT_YET: usize = 0;

/// One that is open.
pub struct Held {
    handle: u64,
    path: PathBuf,
    address: usize,
    length: usize,
    writable: AtomicUsize,
    /// Nothing when it was closed.
    image: RwLock<Option<Image>>,
}

impl Held {
    /// Where the bytes are.
    pub fn address(&self) -> usize {
        self.address
    }

    pub fn length(&self) -> usize {
        self.length
    }

    /// Where they can be written.
    ///
    /// # Errors
    /// What making them private meets; `BUSY`, `CLOSED`.
    pub fn writable(&self) -> Result<usize> {
        match self.writable.load(Ordering::Acquire) {
            NOT_YET => self.alone(|image| {
                let address = image.bytes_mut()?.as_mut_ptr() as usize;
                self.writable.store(address, Ordering::Release);
                Ok(address)
            }),
            address => Ok(address),
        }
    }

    /// A range of C's as one of Rust's.
    ///
    /// # Errors
    /// `OUT_OF_BOUNDS`.
    pub fn range(&self, begin: usize, length: usize) -> Result<Range<usize>> {
        match begin.checked_add(length) {
            Some(end) if end <= self.length => Ok(begin..end),
            _ => {
                let message = format!(
                    "the image of {} has {} bytes, and {length} bytes at {begin} are not in it: ask for less",
                    self.path.display(),
                    self.length
                );
                Err(Failure::new(status::OUT_OF_BOUNDS, message))
            }
        }
    }

    /// Uses it beside others.
    ///
    /// # Errors
    /// What `call` gives; `BUSY`, `CLOSED`.
    pub fn shared<T>(&self, call: impl FnOnce(&Image) -> Result<T>) -> Result<T> {
        let image = match self.image.try_read() {
            Ok(image) => image,
            Err(TryLockError::Poisoned(left)) => left.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(self.busy()),
        };
        call(image.as_ref().ok_or_else(|| closed(self.handle))?)
    }

    /// Uses it while no other thread does.
    ///
    /// # Errors
    /// What `call` gives; `BUSY`, `CLOSED`.
    pub fn alone<T>(&self, call: impl FnOnce(&mut Image) -> Result<T>) -> Result<T> {
        self.slot(|image| call(image.as_mut().ok_or_else(|| closed(self.handle))?))
    }

    fn slot<T>(&self, call: impl FnOnce(&mut Option<Image>) -> Result<T>) -> Result<T> {
        let mut image = match self.image.try_write() {
            Ok(image) => image,
            Err(TryLockError::Poisoned(left)) => left.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(self.busy()),
        };
        call(&mut image)
    }

    #[cold]
    fn busy(&self) -> Failure {
        let message = format!(
            "another thread uses the image of {}; advise, close and the first look for its writable address must be alone with it",
            self.path.display()
        );
        Failure::new(status::BUSY, message)
    }
}

/// # Errors
/// `TOO_MANY_OPEN`; what making the bytes writable meets.
pub fn insert(mut image: Image) -> Result<*mut evermap_image> {
    let (address, length) = (image.as_ptr() as usize, image.len());
    // The one kind that changes when it is written to waits until it is.
    let writable = match image.method() {
        Method::MmapShared => NOT_YET,
        _ => image.bytes_mut()?.as_mut_ptr() as usize,
    };
    let handle = IMAGES.insert(|handle| Held {
        handle,
        path: image.path().into(),
        address,
        length,
        writable: AtomicUsize::new(writable),
        image: RwLock::new(Some(image)),
    })?;
    Ok(handle as *mut evermap_image)
}

/// # Errors
/// `CLOSED`, `FORKED`.
pub fn find(handle: *const evermap_image) -> Result<Arc<Held>> {
    IMAGES.find(handle as u64)
}

/// Ends a handle, and unmaps its image.
///
/// # Errors
/// `CLOSED`, `BUSY`, `FORKED`.
pub fn remove(handle: *const evermap_image) -> Result<()> {
    let held = find(handle)?;
    // Taken out while nobody else is inside: its memory is gone when this returns, whoever still has a hold on the rest.
    let image = held.slot(|image| image.take().ok_or_else(|| closed(held.handle)))?;
    IMAGES.remove(held.handle)?;
    drop(image);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::thread::scope;

    use super::*;

    #[test]
    fn who_wants_an_image_alone_gets_it_when_no_other_thread_is_inside() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [7; 5000]).unwrap();
        let image = evermap_load::Loader::open(file.path()).load().unwrap();
        let handle = insert(image).unwrap() as u64;
        let find = || find(handle as *const evermap_image);
        let held = find().unwrap();
        let elsewhere = |call: &(dyn Fn() -> Result<()> + Sync)| {
            let status = || call().map_or_else(|failure| failure.status, |()| status::OK);
            scope(|scope| scope.spawn(status).join().unwrap())
        };
        let shares = || held.shared(|_| Ok(()));
        let has_alone = || held.alone(|_| Ok(()));
        let closes = || remove(handle as *const evermap_image);
        held.shared(|_| {
            assert_eq!(elsewhere(&shares), status::OK);
            assert_eq!(elsewhere(&has_alone), status::BUSY);
            assert_eq!(elsewhere(&closes), status::BUSY);
            Ok(())
        })
        .unwrap();
        held.alone(|_| {
            assert_eq!(elsewhere(&shares), status::BUSY);
            assert_eq!(elsewhere(&closes), status::BUSY);
            Ok(())
        })
        .unwrap();
        // Who has looked the handle up before it was closed finds nothing either.
        assert_eq!(elsewhere(&closes), status::OK);
        assert_eq!(elsewhere(&shares), status::CLOSED);
        assert_eq!(elsewhere(&has_alone), status::CLOSED);
        assert!(find().is_err_and(|failure| failure.status == status::CLOSED));
    }

    #[test]
    fn a_panic_inside_of_an_image_is_a_failure_and_leaves_it_usable() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let image = evermap_load::Loader::open(file.path()).load().unwrap();
        let handle = insert(image).unwrap();
        let held = find(handle).unwrap();
        let failed = crate::failure::attempt(|| held.alone(|_| -> Result<()> { panic!("inside") }));
        assert!(failed.is_err_and(|failure| failure.status == status::INTERNAL));
        held.shared(|_| Ok(())).unwrap();
        remove(handle).unwrap();
    }
}
