//! Callbacks and cancellation for file moves.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::error::{Error, Result};

/// Interval between checks for cancellation.
pub(super) const TICK: Duration = Duration::from_millis(20);
/// Default wait for another process that holds the same file.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(600);

/// Progress of one file. The bytes are copied once and read twice; all three passes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes done.
    pub done_bytes: u64,
    /// Total bytes.
    pub total_bytes: u64,
}

/// Steps of a switch, each reported when it is complete and as durable as it has to be.
///
/// A kill after any step loses nothing. Section 7 of `docs/lane.md` lists the recovery after each
/// step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Step {
    /// Placing: the journal records the intended move.
    Recorded,
    /// Placing: no other process has the file open.
    Leased,
    /// Placing: a copy is on the tier, under a temporary name.
    Copied,
    /// Placing: the copy was read back and matches the file, which is unchanged.
    Hashed,
    /// Placing: the copy has its final name.
    Named,
    /// Placing: the journal records the identity and hash of the copy.
    Vouched,
    /// Placing: a link to the copy is next to the file.
    Linked,
    /// Placing: no other process has the file open, and it is unchanged.
    Closed,
    /// Placing: link and file have exchanged their names.
    Exchanged,
    /// Placing: the exchange is durable.
    Flushed,
    /// Placing: the journal records that the file is placed.
    Placed,
    /// Back: the journal records that the file is to return, and how.
    Returning,
    /// Back: no other process has the copy open.
    BackLeased,
    /// Back, by copying: the contents are next to the path.
    BackCopied,
    /// Back, by copying: the contents were read back, and the journal records their identity.
    BackVouched,
    /// Back: the path leads to the file again.
    BackExchanged,
    /// Back: the exchange is durable.
    BackFlushed,
    /// Back: the link is removed, and the original if the copy replaced it.
    Unlinked,
    /// Back: the copy is removed.
    CopyRemoved,
    /// Back: the journal no longer has the file.
    Returned,
    /// Commit: the journal records that the original is to be dropped.
    Dropping,
    /// Commit: the original is removed.
    Dropped,
    /// Commit: the journal records the removal.
    Committed,
}

impl Step {
    /// All steps of placing a file, in order.
    pub const PLACE: [Self; 11] = [
        Self::Recorded,
        Self::Leased,
        Self::Copied,
        Self::Hashed,
        Self::Named,
        Self::Vouched,
        Self::Linked,
        Self::Closed,
        Self::Exchanged,
        Self::Flushed,
        Self::Placed,
    ];
    /// All steps back, in order. [`Self::BackCopied`] and [`Self::BackVouched`] are skipped if the
    /// original takes its place again.
    pub const BACK: [Self; 9] = [
        Self::Returning,
        Self::BackLeased,
        Self::BackCopied,
        Self::BackVouched,
        Self::BackExchanged,
        Self::BackFlushed,
        Self::Unlinked,
        Self::CopyRemoved,
        Self::Returned,
    ];
    /// All steps of dropping the original, in order.
    pub const COMMIT: [Self; 3] = [Self::Dropping, Self::Dropped, Self::Committed];
}

type OnProgress = dyn Fn(&Path, Progress) + Send + Sync;
type OnStep = dyn Fn(&Path, Step) + Send + Sync;

/// Callbacks, cancellation and timeout for file moves. The default has no callbacks and is never
/// cancelled.
#[derive(Clone)]
pub struct Watch {
    cancelled: Arc<AtomicBool>,
    on_progress: Option<Arc<OnProgress>>,
    on_step: Option<Arc<OnStep>>,
    timeout: Duration,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            cancelled: Arc::default(),
            on_progress: None,
            on_step: None,
            timeout: TIMEOUT_DEFAULT,
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("cancelled", &self.cancelled).finish_non_exhaustive()
    }
}

impl Watch {
    /// Sets a flag that cancels the operation when it becomes true. The operation soon ends with
    /// [`Error::Cancelled`] and undoes what it began. Another thread or a signal handler may set
    /// the flag.
    #[must_use]
    pub fn cancelled_by(mut self, cancelled: Arc<AtomicBool>) -> Self {
        self.cancelled = cancelled;
        self
    }

    /// Sets a callback for the file and its progress. A separate thread calls it about 50 times a
    /// second.
    #[must_use]
    pub fn on_progress(mut self, call: impl Fn(&Path, Progress) + Send + Sync + 'static) -> Self {
        self.on_progress = Some(Arc::new(call));
        self
    }

    /// Sets a callback for the file's path and each completed step of a switch.
    #[must_use]
    pub fn on_step(mut self, call: impl Fn(&Path, Step) + Send + Sync + 'static) -> Self {
        self.on_step = Some(Arc::new(call));
        self
    }

    /// Sets how long to wait for another process that holds the same file (default: ten minutes).
    /// After that, the operation fails with [`Error::Busy`].
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    pub(super) fn check(&self, path: &Path) -> Result<()> {
        if self.is_cancelled() { Err(Error::Cancelled { path: path.into() }) } else { Ok(()) }
    }

    pub(super) fn progress(&self, path: &Path, done_bytes: u64, total_bytes: u64) {
        if let Some(call) = &self.on_progress {
            call(path, Progress { done_bytes: done_bytes.min(total_bytes), total_bytes });
        }
    }

    pub(super) fn step(&self, path: &Path, step: Step) {
        if let Some(call) = &self.on_step {
            call(path, step);
        }
    }

    /// Repeats `attempt` until it returns a value, the operation is cancelled, or the timeout
    /// passes.
    pub(super) fn until<T>(
        &self,
        path: &Path,
        mut attempt: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let begin = Instant::now();
        loop {
            if let Some(there) = attempt()? {
                return Ok(there);
            }
            self.check(path)?;
            if begin.elapsed() >= self.timeout {
                return Err(Error::Busy { path: path.into() });
            }
            std::thread::sleep(TICK);
        }
    }
}
