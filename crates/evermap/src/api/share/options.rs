//! How an object is shared.

use crate::commit::WriteOptions;

/// From when on readers of a shared object see what its writer stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// When the commit is acknowledged: readers wait while it is flushed. A state that was seen never
    /// goes back, as far as the session's [`Durability`](crate::Durability) promises.
    #[default]
    Acknowledged,
    /// When the writer begins its commit: readers run beside the flush.
    ///
    /// Such a state can go back. If the commit fails (a full disk, a failed flush), is rolled back, or
    /// the machine stops before the flush is done, the next reader sees the state before it, although
    /// others have seen the newer one and may have told of it.
    EarlyRead,
}

/// Choices for [`Store::share_with`](crate::Store::share_with).
///
/// ```
/// use evermap::{Reads, ShareOptions};
/// # let directory = tempfile::tempdir()?;
/// let store = evermap::Store::create_new(directory.path().join("store"))?;
/// store.create::<u64, _>("hits", 0)?;
/// let options = ShareOptions::new().reads(Reads::EarlyRead);
/// let hits = store.share_with::<u64>("hits", &options)?;
/// assert_eq!(*hits.read()?, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareOptions {
    pub(super) reads: Reads,
    pub(super) write: WriteOptions,
}

impl ShareOptions {
    /// The defaults: [`Reads::Acknowledged`], and those of [`WriteOptions`].
    pub fn new() -> ShareOptions {
        ShareOptions::default()
    }

    /// From when on readers see what was stored. Default: [`Reads::Acknowledged`].
    pub fn reads(mut self, reads: Reads) -> ShareOptions {
        self.reads = reads;
        self
    }

    /// Choices of the session. Default: those of the store.
    pub fn write_options(mut self, options: WriteOptions) -> ShareOptions {
        self.write = options;
        self
    }
}
