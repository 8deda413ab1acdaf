//! Loads of many files together.

use std::ops::Deref;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::Result;
use crate::image::{Image, Progress};
use crate::loader::Loader;
use crate::share::Share;
use crate::sys::thread;

/// Maximum number of concurrent loads. Loads of small files mostly wait for the disk.
const LOADS_MAX: usize = 8;

/// Images of many files, loaded together by several threads, in the order of their loaders. The
/// loads share one memory budget. Large files load on demand, a few streaming at a time. Other
/// files are complete when the set is returned.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let paths = ["a", "b"].map(|name| directory.path().join(name));
/// # for path in &paths { std::fs::write(path, "text").unwrap(); }
/// use evermap_load::{ImageSet, Loader};
///
/// let set = ImageSet::load(paths.iter().map(Loader::open))?;
/// assert_eq!(set.len(), 2);
/// assert_eq!(&set.get(&paths[1]).unwrap()[..], b"text");
/// set.wait()?;
/// # Ok::<(), evermap_load::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct ImageSet {
    images: Vec<Image>,
}

impl ImageSet {
    /// Loads all files, or none.
    ///
    /// # Errors
    ///
    /// The error of the first loader, in order, that fails. See [`Loader::load`].
    pub fn load(loaders: impl IntoIterator<Item = Loader>) -> Result<ImageSet> {
        let images = ImageSet::load_each(loaders).into_iter().collect::<Result<_>>()?;
        Ok(ImageSet { images })
    }

    /// Loads every file that can be loaded. Returns an image or an error for each loader, in order.
    pub fn load_each(loaders: impl IntoIterator<Item = Loader>) -> Vec<Result<Image>> {
        let loaders: Vec<Loader> = loaders.into_iter().collect();
        let workers = LOADS_MAX.min(loaders.len()).max(1);
        let loading = Loading {
            share: Share::among(workers),
            outcomes: loaders.iter().map(|_| OnceLock::new()).collect(),
            loaders,
            next: AtomicUsize::new(0),
        };
        std::thread::scope(|scope| {
            for _ in 1..workers {
                let builder = std::thread::Builder::new().name("evermap-load".into());
                // The calling thread is one worker; failed spawns are ignored.
                let start = || builder.spawn_scoped(scope, || loading.work());
                if thread::without_signals(start).is_err() {
                    break;
                }
            }
            loading.work();
        });
        let outcomes = loading.outcomes.into_iter();
        outcomes.filter_map(OnceLock::into_inner).collect()
    }

    /// Returns the image loaded by this path.
    pub fn get(&self, path: impl AsRef<Path>) -> Option<&Image> {
        let path = path.as_ref();
        self.images.iter().find(|image| image.path() == path)
    }

    /// Returns the image loaded by this path, for writing.
    pub fn get_mut(&mut self, path: impl AsRef<Path>) -> Option<&mut Image> {
        let path = path.as_ref();
        self.images.iter_mut().find(|image| image.path() == path)
    }

    /// Iterates over all images, for writing.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, Image> {
        self.images.iter_mut()
    }

    /// Waits until all images are complete.
    ///
    /// # Errors
    ///
    /// Waits for all images, then returns the first error. See [`Image::wait`].
    pub fn wait(&self) -> Result<()> {
        let outcomes: Vec<Result<()>> = self.images.iter().map(Image::wait).collect();
        outcomes.into_iter().collect()
    }

    /// Returns the total progress of all loads.
    pub fn progress(&self) -> Progress {
        let mut sum = Progress { loaded_bytes: 0, total_bytes: 0 };
        for image in &self.images {
            let progress = image.progress();
            sum.loaded_bytes += progress.loaded_bytes;
            sum.total_bytes += progress.total_bytes;
        }
        sum
    }
}

/// Dereferences to the images, in the order of their loaders.
impl Deref for ImageSet {
    type Target = [Image];

    fn deref(&self) -> &[Image] {
        &self.images
    }
}

impl IntoIterator for ImageSet {
    type Item = Image;
    type IntoIter = std::vec::IntoIter<Image>;

    fn into_iter(self) -> Self::IntoIter {
        self.images.into_iter()
    }
}

impl<'s> IntoIterator for &'s ImageSet {
    type Item = &'s Image;
    type IntoIter = std::slice::Iter<'s, Image>;

    fn into_iter(self) -> Self::IntoIter {
        self.images.iter()
    }
}

struct Loading {
    share: Share,
    loaders: Vec<Loader>,
    outcomes: Vec<OnceLock<Result<Image>>>,
    /// Index of the next loader.
    next: AtomicUsize,
}

impl Loading {
    fn work(&self) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(loader) = self.loaders.get(number) else { return };
            let _ = self.outcomes[number].set(loader.load_as(&self.share));
        }
    }
}
