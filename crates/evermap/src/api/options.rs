//! How a store is opened or made.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::registry::RegistryChoice;
use crate::address::Window;
use crate::commit::WriteOptions;
use crate::storage::{Disk, Storage};

/// Bytes of addresses a store takes at creation when not told otherwise.
pub const ARENA_BYTES_DEFAULT: u64 = 64 << 30;

/// How much of an object is checked when it is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// What is needed to open it: superblock, regions, root, log. Some microseconds.
    #[default]
    Superblock,
    /// The same; a thread compares every page with its checksum meanwhile. What it finds is
    /// returned by the next `commit`, `refresh` or `verified`.
    Background,
    /// Every page is compared with its checksum before the object is open: as fast as it can be
    /// read, some 0.2 s a GiB from the page cache.
    Full,
}

/// Choices for opening and making stores. The defaults suit almost everybody.
///
/// ```
/// use std::time::Duration;
/// let options = evermap::Options::new().busy_timeout(Duration::from_millis(200));
/// let directory = tempfile::tempdir()?;
/// let store = options.create_new(directory.path().join("store"))?;
/// assert!(store.list()?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// Where files are: the disk, or a simulated one in tests.
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) window: Window,
    pub(crate) arena_bytes: u64,
    pub(crate) arena_registry: RegistryChoice,
    pub(crate) busy_timeout: Duration,
    pub(crate) catalog_timeout: Duration,
    pub(crate) verify: Verify,
    pub(crate) write: WriteOptions,
    pub(crate) other_builds: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            storage: Arc::new(Disk::default()),
            window: Window::default(),
            arena_bytes: ARENA_BYTES_DEFAULT,
            arena_registry: RegistryChoice::OfUser,
            busy_timeout: Duration::ZERO,
            // Catalog changes take milliseconds; who waits longer waits for a stopped process.
            catalog_timeout: Duration::from_secs(10),
            verify: Verify::Superblock,
            write: WriteOptions::default(),
            other_builds: false,
        }
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Options {
        Options::default()
    }

    /// Where in the address space a *new* store takes its arena; an existing one has its own.
    pub fn window(mut self, window: Window) -> Options {
        self.window = window;
        self
    }

    /// Bytes of addresses a new store takes at first (rounded up to 1 GiB). It takes more when
    /// these are used up. Addresses cost nothing until something lies there.
    pub fn arena_bytes(mut self, bytes: u64) -> Options {
        self.arena_bytes = bytes.max(1).next_multiple_of(crate::address::ARENA_ALIGN_BYTES);
        self
    }

    /// The file in which stores note the addresses they have, or none. Default:
    /// `$XDG_STATE_HOME/evermap/arenas`, or else `~/.local/state/evermap/arenas`.
    ///
    /// Two stores whose addresses overlap cannot be open in one process at a time. At random places
    /// that is so for one pair in 283; so a new arena goes where no store in the file has one.
    /// Where the file cannot be used (another user's, a full disk, another process holds it for a
    /// second) a random place is taken, with nothing but a `tracing` event at debug level to say
    /// so. A store that was moved or copied is not known by its new directory; its old place is
    /// given to others only when there is no other left. A file that is no registry is left as it
    /// is. Opening a store does not touch it.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// let registry = directory.path().join("arenas");
    /// let options = evermap::Options::new().arena_registry(Some(registry.clone()));
    /// options.create_new(directory.path().join("one"))?;
    /// options.create_new(directory.path().join("two"))?;
    /// assert_eq!(std::fs::read_to_string(registry)?.lines().count(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn arena_registry(mut self, file: Option<PathBuf>) -> Options {
        self.arena_registry = file.map_or(RegistryChoice::Without, RegistryChoice::At);
        self
    }

    /// How long to wait for an object that somebody else has open in a way that excludes ours.
    /// Default: not at all, [`Error::Busy`](crate::Error::Busy) at once.
    pub fn busy_timeout(mut self, timeout: Duration) -> Options {
        self.busy_timeout = timeout;
        self
    }

    /// How long to wait for another process that changes the catalog. Default: ten seconds.
    pub fn catalog_timeout(mut self, timeout: Duration) -> Options {
        self.catalog_timeout = timeout;
        self
    }

    /// How much of an object is checked when it is opened. Default: [`Verify::Superblock`].
    pub fn verify(mut self, verify: Verify) -> Options {
        self.verify = verify;
        self
    }

    /// What sessions of this store use when they are not told otherwise.
    pub fn write_options(mut self, options: WriteOptions) -> Options {
        self.write = options;
        self
    }

    /// Opens raw objects with pointers into a program or library also where this process has another
    /// build of it, or has it elsewhere. Calling through such a pointer then runs whatever is there.
    /// Default: false, [`Error::OtherBuild`](crate::Error::OtherBuild).
    pub fn other_builds(mut self, open: bool) -> Options {
        self.other_builds = open;
        self
    }
}
