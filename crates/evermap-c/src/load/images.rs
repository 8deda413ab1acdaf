//! Handle table for open images.
//!
//! Loading and waiting take long, so they do not happen under the table's lock. Each image has its
//! own lock, which callers share and which is only tried, never waited for. A call that needs
//! exclusive use while another thread uses the image fails with `BUSY`, and so does every call
//! while another thread has exclusive use.
//!
//! The address of the bytes does not change while an image is open, and is returned without that
//! lock: the program reads and writes there while other threads of it wait.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, TryLockError};

use evermap_load::{Image, Method};

use super::types::evermap_image;
use crate::abi::failure::{Failure, Result};
use crate::abi::status;
use crate::runtime::handles::closed;
use crate::runtime::table::Table;

static IMAGES: Table<OpenImage> = Table::new(0x7 << 60, "images");
/// The image's bytes cannot be written yet.
const NOT_YET: usize = 0;

/// An open image.
pub struct OpenImage {
    handle: u64,
    path: PathBuf,
    address: usize,
    length: usize,
    writable: AtomicUsize,
    /// `None` after the image was closed.
    image: RwLock<Option<Image>>,
}

impl OpenImage {
    /// Returns the address of the bytes.
    pub fn address(&self) -> usize {
        self.address
    }

    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns the address at which the bytes can be written.
    ///
    /// # Errors
    /// Errors of making the bytes private; `BUSY`, `CLOSED`.
    pub fn writable(&self) -> Result<usize> {
        match self.writable.load(Ordering::Acquire) {
            NOT_YET => self.exclusive(|image| {
                let address = image.bytes_mut()?.as_mut_ptr() as usize;
                self.writable.store(address, Ordering::Release);
                Ok(address)
            }),
            address => Ok(address),
        }
    }

    /// Converts a range from C.
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

    /// Runs a call with shared use of the image.
    ///
    /// # Errors
    /// Errors of `call`; `BUSY`, `CLOSED`.
    pub fn shared<T>(&self, call: impl FnOnce(&Image) -> Result<T>) -> Result<T> {
        let image = match self.image.try_read() {
            Ok(image) => image,
            Err(TryLockError::Poisoned(left)) => left.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(self.busy()),
        };
        call(image.as_ref().ok_or_else(|| closed(self.handle))?)
    }

    /// Runs a call with exclusive use of the image.
    ///
    /// # Errors
    /// Errors of `call`; `BUSY`, `CLOSED`.
    pub fn exclusive<T>(&self, call: impl FnOnce(&mut Image) -> Result<T>) -> Result<T> {
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
            "another thread uses the image of {}; advise, close and the first call for its writable address need it exclusively",
            self.path.display()
        );
        Failure::new(status::BUSY, message)
    }
}

/// Stores an image and returns its handle.
///
/// # Errors
/// `TOO_MANY_OPEN`; errors of making the bytes writable.
pub fn insert(mut image: Image) -> Result<*mut evermap_image> {
    let (address, length) = (image.as_ptr() as usize, image.len());
    // An image loaded by `mmap-shared` is made private by the first call for its writable address.
    let writable = match image.method() {
        Method::MmapShared => NOT_YET,
        _ => image.bytes_mut()?.as_mut_ptr() as usize,
    };
    let handle = IMAGES.insert(|handle| OpenImage {
        handle,
        path: image.path().into(),
        address,
        length,
        writable: AtomicUsize::new(writable),
        image: RwLock::new(Some(image)),
    })?;
    Ok(handle as *mut evermap_image)
}

/// Returns the image of a handle.
///
/// # Errors
/// `CLOSED`, `FORKED`.
pub fn find(handle: *const evermap_image) -> Result<Arc<OpenImage>> {
    IMAGES.find(handle as u64)
}

/// Closes a handle and unmaps its image.
///
/// # Errors
/// `CLOSED`, `BUSY`, `FORKED`.
pub fn remove(handle: *const evermap_image) -> Result<()> {
    let entry = find(handle)?;
    // The image is removed under exclusive use: its memory is unmapped when this returns, even if
    // another thread still holds the entry.
    let image = entry.slot(|image| image.take().ok_or_else(|| closed(entry.handle)))?;
    IMAGES.remove(entry.handle)?;
    drop(image);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::thread::scope;

    use super::*;

    #[test]
    fn exclusive_use_requires_that_no_other_thread_uses_the_image() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [7; 5000]).unwrap();
        let image = evermap_load::Loader::open(file.path()).load().unwrap();
        let handle = insert(image).unwrap() as u64;
        let find = || find(handle as *const evermap_image);
        let entry = find().unwrap();
        let elsewhere = |call: &(dyn Fn() -> Result<()> + Sync)| {
            let status = || call().map_or_else(|failure| failure.status, |()| status::OK);
            scope(|scope| scope.spawn(status).join().unwrap())
        };
        let shares = || entry.shared(|_| Ok(()));
        let has_alone = || entry.exclusive(|_| Ok(()));
        let closes = || remove(handle as *const evermap_image);
        entry
            .shared(|_| {
                assert_eq!(elsewhere(&shares), status::OK);
                assert_eq!(elsewhere(&has_alone), status::BUSY);
                assert_eq!(elsewhere(&closes), status::BUSY);
                Ok(())
            })
            .unwrap();
        entry
            .exclusive(|_| {
                assert_eq!(elsewhere(&shares), status::BUSY);
                assert_eq!(elsewhere(&closes), status::BUSY);
                Ok(())
            })
            .unwrap();
        // A lookup that raced with close also finds nothing.
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
        let entry = find(handle).unwrap();
        let failed = crate::abi::failure::attempt(|| {
            entry.exclusive(|_| -> Result<()> { panic!("inside") })
        });
        assert!(failed.is_err_and(|failure| failure.status == status::INTERNAL));
        entry.shared(|_| Ok(())).unwrap();
        remove(handle).unwrap();
    }
}
