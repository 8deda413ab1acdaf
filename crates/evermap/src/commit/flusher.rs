//! Background thread of `Durability::Interval`: flushes the log some time after a record was
//! written.
//!
//! A failed flush must never be retried: the kernel drops the pages it could not write, and a
//! second flush would succeed although they are lost. So all flushes take one lock, and the first
//! failure is remembered.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::error;

use super::log::Log;
use super::progress::Progress;
use crate::at_fork;
use crate::error::{Error, Result};
use crate::storage::File;

/// Flushes a log in the background. Stops when dropped, without another flush.
#[derive(Debug)]
pub(super) struct Flusher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    log: Arc<dyn File>,
    progress: Arc<Progress>,
    interval: Duration,
    state: Mutex<State>,
    wake: Condvar,
    /// Held during a flush, so there is one flush at a time.
    flushing: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of records written, and of those flushed.
    written: u64,
    flushed: u64,
    /// Salt and index of the newest record.
    newest: (u64, u64),
    failed: Option<String>,
    stopped: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Flusher {
    /// Starts the thread.
    pub(super) fn start(log: &Log, interval: Duration) -> Result<Flusher> {
        let shared = Arc::new(Shared {
            log: Arc::clone(log.file()),
            progress: Arc::clone(log.progress()),
            interval,
            state: Mutex::default(),
            wake: Condvar::new(),
            flushing: Mutex::default(),
        });
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("evermap-flusher".to_string())
            .spawn(move || own.run())
            .map_err(|e| Error::from_io(e, "start a thread to flush", shared.log.path()))?;
        Ok(Flusher { shared, thread: Some(thread) })
    }

    /// Notes that a record with this salt and index was written. Its flush begins within the
    /// interval, or after the flush in progress.
    pub(super) fn written(&self, record: (u64, u64)) {
        let mut state = lock(&self.shared.state);
        state.written += 1;
        state.newest = record;
        drop(state);
        self.shared.wake.notify_one();
    }

    /// Returns the error of the first failed flush.
    pub(super) fn failed(&self) -> Option<String> {
        lock(&self.shared.state).failed.clone()
    }

    /// Flushes all written records now.
    pub(super) fn flush(&self) -> Result<()> {
        self.shared.flush();
        match self.failed() {
            None => Ok(()),
            Some(why) => {
                Err(Error::DurabilityUnknown { path: self.shared.log.path().to_path_buf(), why })
            }
        }
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let mut state = lock(&self.state);
            while !state.stopped && state.written == state.flushed {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            // The interval begins with the first record that is not flushed.
            let waited = self.wake.wait_timeout_while(state, self.interval, |s| !s.stopped);
            let stopped = waited.unwrap_or_else(PoisonError::into_inner).0.stopped;
            if stopped {
                return;
            }
            self.flush();
        }
    }

    fn flush(&self) {
        let _one_at_a_time = lock(&self.flushing);
        let (written, (salt, index)) = {
            let state = lock(&self.state);
            if state.failed.is_some() || state.written == state.flushed {
                return;
            }
            (state.written, state.newest)
        };
        let result = self.log.sync_data();
        if result.is_ok() {
            self.progress.flushed(salt, index);
        }
        let mut state = lock(&self.state);
        // Also after a failure: there is nothing more to flush.
        state.flushed = written;
        if let Err(error) = result {
            error!(%error, "the log could not be flushed");
            state.failed = Some(error.to_string());
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        if at_fork::is_child() {
            // A forked child does not have the thread, so it must not wait for it or for its locks.
            std::mem::forget(self.thread.take());
            return;
        }
        lock(&self.shared.state).stopped = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
