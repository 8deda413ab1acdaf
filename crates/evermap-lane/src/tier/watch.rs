//! What whoever moves files can see of it, and how it is stopped.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::error::{Error, Result};

/// How often it is asked whether to go on.
pub(super) const TICK: Duration = Duration::from_millis(20);
/// How long another process that is at the same file is waited for, unless said.
const PATIENCE: Duration = Duration::from_secs(600);

/// How far a file is: its bytes are copied once and read twice, and all three count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// So many are done.
    pub done_bytes: u64,
    /// Of so many.
    pub total_bytes: u64,
}

/// What has just been done, and is durable as far as it has to be, on the way of a file to the tier or back.
///
/// Whoever is killed after any of them has lost nothing: `docs/lane.md`, section 7, says what is left and what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Step {
    /// Going: it is in the journal that the file is to go.
    Recorded,
    /// Going: nobody else has it open.
    Leased,
    /// Going: a copy is on the tier, under its working name.
    Copied,
    /// Going: the copy was read back, and the file is what it was.
    Hashed,
    /// Going: the copy has its name.
    Named,
    /// Going: it is in the journal what the copy is.
    Vouched,
    /// Going: a link to the copy is beside the file.
    Linked,
    /// Going: nobody else has the file open, and it is what it was.
    Closed,
    /// Going: link and file have exchanged their names.
    Exchanged,
    /// Going: durably.
    Flushed,
    /// Going: it is in the journal that it is there.
    Placed,
    /// Back: it is in the journal that it is to come back, and how.
    Returning,
    /// Back: nobody else has the copy open.
    BackLeased,
    /// Back, if the copy was written to: it is beside the path.
    BackCopied,
    /// Back, if the copy was written to: it was read back, and is in the journal.
    BackVouched,
    /// Back: the path leads to the file again.
    BackExchanged,
    /// Back: durably.
    BackFlushed,
    /// Back: the link is gone, and an original that has been replaced.
    Unlinked,
    /// Back: the copy is gone.
    CopyRemoved,
    /// Back: the journal has nothing of it any more.
    Returned,
    /// The original is to be dropped: it is in the journal.
    Dropping,
    /// It is gone.
    Dropped,
    /// It is in the journal that it is.
    Committed,
}

impl Step {
    /// All of a file's way to the tier, in order.
    pub const GOING: [Self; 11] = [
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
    /// All of its way back, in order; without [`Self::BackCopied`] and [`Self::BackVouched`] where the original only takes its place again.
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
    /// All of dropping the original, in order.
    pub const COMMIT: [Self; 3] = [Self::Dropping, Self::Dropped, Self::Committed];
}

type OnProgress = dyn Fn(&Path, Progress) + Send + Sync;
type OnStep = dyn Fn(&Path, Step) + Send + Sync;

/// Looks on while files are moved, and can stop it. The default sees nothing and never stops.
#[derive(Clone)]
pub struct Watch {
    cancelled: Arc<AtomicBool>,
    on_progress: Option<Arc<OnProgress>>,
    on_step: Option<Arc<OnStep>>,
    patience: Duration,
}

impl Default for Watch {
    fn default() -> Self {
        Self { cancelled: Arc::default(), on_progress: None, on_step: None, patience: PATIENCE }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("cancelled", &self.cancelled).finish_non_exhaustive()
    }
}

impl Watch {
    /// Set to true, by another thread or a signal handler, it ends what is going on with [`Error::Cancelled`], soon, and puts things back.
    #[must_use]
    pub fn cancelled_by(mut self, cancelled: Arc<AtomicBool>) -> Self {
        self.cancelled = cancelled;
        self
    }

    /// Called with the file and how far it is, about 50 times a second, from a thread of its own.
    #[must_use]
    pub fn on_progress(mut self, call: impl Fn(&Path, Progress) + Send + Sync + 'static) -> Self {
        self.on_progress = Some(Arc::new(call));
        self
    }

    /// Called after each step of a switch with the file's path.
    #[must_use]
    pub fn on_step(mut self, call: impl Fn(&Path, Step) + Send + Sync + 'static) -> Self {
        self.on_step = Some(Arc::new(call));
        self
    }

    /// How long another process that is at the same file is waited for; ten minutes, unless said. Then it is [`Error::Busy`].
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
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

    /// Tries until it is there, it is cancelled, or patience is over.
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
            if begin.elapsed() >= self.patience {
                return Err(Error::Busy { path: path.into() });
            }
            std::thread::sleep(TICK);
        }
    }
}
