//! Options for opening and creating stores.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::address::Window;
use crate::commit::WriteOptions;
use crate::storage::{Disk, Storage};

/// Default size of an arena, in bytes of addresses.
pub const ARENA_BYTES_DEFAULT: u64 = 64 << 30;

/// Amount of checking when an object is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Checks what opening needs: superblock, regions, root, log. Takes some microseconds.
    #[default]
    Superblock,
    /// Like `Superblock`, and a thread compares every page with its checksum in the background. The
    /// next `commit`, `refresh` or `verified` returns what it finds.
    Background,
    /// Compares every page with its checksum before the object is open. This is as fast as reading
    /// the object, some 0.2 s per GiB from the page cache.
    Full,
}

/// File to use as the arena registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RegistryChoice {
    /// The user's file.
    OfUser,
    At(PathBuf),
    Without,
}

/// Options for opening and creating stores. The defaults suit most programs.
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
    /// The disk, or a simulated one in tests.
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
            // Catalog changes take milliseconds. A longer wait means that the other process is
            // stopped.
            catalog_timeout: Duration::from_secs(10),
            verify: Verify::Superblock,
            write: WriteOptions::default(),
            other_builds: false,
        }
    }
}

impl Options {
    /// Returns the defaults.
    pub fn new() -> Options {
        Options::default()
    }

    /// Sets the part of the address space in which a store takes a *new* arena: when it is created,
    /// and when its arenas are used up. Existing arenas stay where they are.
    pub fn window(mut self, window: Window) -> Options {
        self.window = window;
        self
    }

    /// Sets the size of each new arena, rounded up to 1 GiB. A store takes its first arena when it
    /// is created, and another one when its arenas are used up. Addresses cost nothing until
    /// something is mapped there.
    pub fn arena_bytes(mut self, bytes: u64) -> Options {
        self.arena_bytes = bytes.max(1).next_multiple_of(crate::address::ARENA_ALIGN_BYTES);
        self
    }

    /// Sets the file in which stores record their addresses, or turns it off. Default:
    /// `$XDG_STATE_HOME/evermap/arenas`, or else `~/.local/state/evermap/arenas`.
    ///
    /// Two stores whose addresses overlap cannot be open in one process at the same time. At random
    /// places, one pair in 283 overlaps. So a new arena is placed where no store in the file has
    /// one. If the file cannot be used (it belongs to another user, the disk is full, another
    /// process holds it for a second), the arena gets a random place, and a `tracing` event at
    /// debug level reports it. A moved or copied store is not known under its new directory. Its
    /// old place is used only if no other is left. A file that is not a registry is left unchanged.
    /// Opening a store does not touch the file.
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

    /// Sets how long to wait for an object that is open elsewhere in a conflicting way. Default: no
    /// wait, [`Error::Busy`](crate::Error::Busy) at once.
    pub fn busy_timeout(mut self, timeout: Duration) -> Options {
        self.busy_timeout = timeout;
        self
    }

    /// Sets how long to wait for another process that changes the catalog. Default: ten seconds.
    pub fn catalog_timeout(mut self, timeout: Duration) -> Options {
        self.catalog_timeout = timeout;
        self
    }

    /// Sets how much of an object is checked when it is opened. Default: [`Verify::Superblock`].
    pub fn verify(mut self, verify: Verify) -> Options {
        self.verify = verify;
        self
    }

    /// Sets the default options for sessions of this store.
    pub fn write_options(mut self, options: WriteOptions) -> Options {
        self.write = options;
        self
    }

    /// Allows opening raw objects with pointers into a program or library of which this process has
    /// another build, or has it at another address. Calling through such a pointer then runs
    /// unrelated code. Default: false, which returns
    /// [`Error::OtherBuild`](crate::Error::OtherBuild).
    pub fn other_builds(mut self, open: bool) -> Options {
        self.other_builds = open;
        self
    }
}
