//! Choices for sharing an object.

use crate::commit::WriteOptions;

/// The moment from which readers of a shared object see the stores of its writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// The acknowledgement of the commit: readers wait while it is flushed. A state that was seen never
    /// goes back, as far as the session's [`Durability`](crate::Durability) promises.
    #[default]
    Acknowledged,
    /// The beginning of the commit: readers run beside the flush.
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
    /// Returns the defaults: [`Reads::Acknowledged`], and those of [`WriteOptions`].
    pub fn new() -> ShareOptions {
        ShareOptions::default()
    }

    /// Sets the moment from which readers see stores. Default: [`Reads::Acknowledged`].
    pub fn reads(mut self, reads: Reads) -> ShareOptions {
        self.reads = reads;
        self
    }

    /// Sets the choices of the session. Default: those of [`WriteOptions`].
    pub fn write_options(mut self, options: WriteOptions) -> ShareOptions {
        self.write = options;
        self
    }
}
