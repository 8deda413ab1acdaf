//! Options of a check, which other tools use as well.

use std::sync::Arc;
use std::time::Duration;

use crate::storage::{Disk, Storage};

/// Progress callback: bytes done and total bytes.
type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// Options of a check.
///
/// ```
/// let options = evermap::tools::CheckOptions::new().repair(true);
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("store");
/// # drop(evermap::Store::create_new(&path)?);
/// let report = evermap::tools::check(&path, &options)?;
/// assert!(report.is_clean() && report.actions.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CheckOptions {
    pub(in crate::tools) storage: Arc<dyn Storage>,
    pub(in crate::tools) timeout: Duration,
    pub(in crate::tools) repair: bool,
    pub(in crate::tools) accept_data: bool,
    pub(in crate::tools) quarantine: bool,
    pub(in crate::tools) is_cache: fn(&str) -> bool,
    pub(in crate::tools) progress: Option<Progress>,
}

impl Default for CheckOptions {
    fn default() -> Self {
        CheckOptions {
            storage: Arc::new(Disk::default()),
            timeout: Duration::from_secs(10),
            repair: false,
            accept_data: false,
            quarantine: false,
            is_cache: |_| false,
            progress: None,
        }
    }
}

impl std::fmt::Debug for CheckOptions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CheckOptions")
            .field("repair", &self.repair)
            .field("accept_data", &self.accept_data)
            .field("quarantine", &self.quarantine)
            .finish_non_exhaustive()
    }
}

impl CheckOptions {
    /// Defaults: only check, change nothing.
    pub fn new() -> CheckOptions {
        CheckOptions::default()
    }

    /// Checks files of another storage than the real disk.
    #[cfg(test)]
    pub(crate) fn on(mut self, storage: Arc<dyn Storage>) -> CheckOptions {
        self.storage = storage;
        self
    }

    /// Sets whether to repair what can be repaired without loss. Files to be changed are copied to
    /// `repair-<time>` in the store's directory first; files to be removed are moved there.
    /// Default: no.
    pub fn repair(mut self, repair: bool) -> CheckOptions {
        self.repair = repair;
        self
    }

    /// With [`repair`](CheckOptions::repair): accepts the contents of pages that do not match their
    /// checksums, and recomputes the checksums. Only use it after inspecting the data, because a
    /// check cannot know whether a page or its checksum is right.
    pub fn accept_data(mut self, accept: bool) -> CheckOptions {
        self.accept_data = accept;
        self
    }

    /// With [`repair`](CheckOptions::repair): moves damaged objects out of the store. Their files
    /// are kept with the copies.
    pub fn quarantine(mut self, quarantine: bool) -> CheckOptions {
        self.quarantine = quarantine;
        self
    }

    /// Sets the function that decides by an object's name whether it is a cache, which its program
    /// can rebuild. With [`repair`](CheckOptions::repair), damaged caches are moved out of the
    /// store, and their files are kept with the copies. Default: no object is a cache.
    pub fn caches(mut self, is_cache: fn(&str) -> bool) -> CheckOptions {
        self.is_cache = is_cache;
        self
    }

    /// Sets how long a repair waits for the store or for readers of an object, and how long a
    /// backup waits for the catalog. Reading an object waits at most two seconds, whatever this is.
    /// Default: ten seconds.
    pub fn busy_timeout(mut self, timeout: Duration) -> CheckOptions {
        self.timeout = timeout;
        self
    }

    /// Calls `progress` from time to time with the bytes read so far and the total bytes.
    pub fn on_progress(
        mut self,
        progress: impl Fn(u64, u64) + Send + Sync + 'static,
    ) -> CheckOptions {
        self.progress = Some(Arc::new(progress));
        self
    }
}
