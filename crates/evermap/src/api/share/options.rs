//! Options for sharing an object. They decide when readers see the writer's stores, so all handles
//! of one object must have the same options.

use crate::commit::WriteOptions;

/// Time from which readers of a shared object see the stores of its writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// From the acknowledgement of the commit. Readers wait for its flush. A state that was read is
    /// never undone, as far as the session's [`Durability`](crate::Durability) guarantees.
    #[default]
    Acknowledged,
    /// From the beginning of the commit. Readers run during the flush.
    ///
    /// Such a state can be undone. If the commit fails (a full disk, a failed flush) or is rolled
    /// back, or the machine stops before the flush ends, the next reader sees the earlier state,
    /// although other readers have seen the newer one and may have acted on it.
    EarlyRead,
}

/// Options for [`Store::share_with`](crate::Store::share_with).
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
    pub(in crate::api) write: WriteOptions,
}

impl ShareOptions {
    /// Returns the defaults: [`Reads::Acknowledged`] and the default [`WriteOptions`].
    pub fn new() -> ShareOptions {
        ShareOptions::default()
    }

    /// Sets the time from which readers see stores. Default: [`Reads::Acknowledged`].
    pub fn reads(mut self, reads: Reads) -> ShareOptions {
        self.reads = reads;
        self
    }

    /// Sets the options of the session. Default: the default [`WriteOptions`].
    pub fn write_options(mut self, options: WriteOptions) -> ShareOptions {
        self.write = options;
        self
    }
}
