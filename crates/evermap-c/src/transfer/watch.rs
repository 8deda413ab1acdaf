//! Runs a transfer in its own thread if the caller wants progress reports or can cancel it:
//! callbacks run in the caller's thread, as the header says, and only that thread reads the
//! caller's flag.

use std::ffi::{c_int, c_void};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use evermap_transfer::Error;

use super::types::{em_progress_callback, em_transfer_options};

/// Interval of progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Progress callback and cancel flag of the caller.
pub struct Watch {
    progress: em_progress_callback,
    context: *mut c_void,
    cancelled: *const c_int,
    /// Cancel flag that the transfer reads.
    flag: Arc<AtomicBool>,
}

impl Watch {
    pub fn new(given: Option<&em_transfer_options>) -> Watch {
        let mut watch = Watch {
            progress: None,
            context: std::ptr::null_mut(),
            cancelled: std::ptr::null(),
            flag: Arc::default(),
        };
        if let Some(given) = given {
            (watch.progress, watch.context) = (given.progress, given.context);
            watch.cancelled = given.cancelled;
        }
        watch
    }

    /// Returns the flag for the transfer.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// Runs `transfer` to its end. `counted` returns the bytes that have arrived and the total.
    ///
    /// # Errors
    /// Errors of `transfer`, and `Io` when no thread can be started.
    pub fn during<T: Send>(
        &self,
        counted: impl Fn() -> (u64, u64),
        transfer: impl FnOnce() -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        if self.progress.is_none() && self.cancelled.is_null() {
            return transfer();
        }
        self.look();
        let result = thread::scope(|scope| {
            // Dropped by the transfer at its end, even after a panic.
            let (done, ended) = channel::<()>();
            let run = move || {
                let _done = done;
                transfer()
            };
            let worker = thread::Builder::new()
                .name("evermap-transfer".into())
                .spawn_scoped(scope, run)
                .map_err(Error::io("start a thread for", "a transfer"))?;
            while ended.recv_timeout(PROGRESS_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                self.look();
                self.tell(counted());
            }
            worker.join().unwrap_or_else(|panic| resume_unwind(panic))
        })?;
        self.tell(counted());
        Ok(result)
    }

    fn look(&self) {
        if self.cancelled.is_null() {
            return;
        }
        // SAFETY: the header requires an int that lives as long as the call and is only stored to
        // atomically or by a signal handler.
        let flag = unsafe { AtomicI32::from_ptr(self.cancelled.cast_mut()) };
        if flag.load(Ordering::Relaxed) != 0 {
            self.flag.store(true, Ordering::Relaxed);
        }
    }

    fn tell(&self, (arrived_bytes, total_bytes): (u64, u64)) {
        let Some(call) = self.progress else { return };
        // SAFETY: the caller's function, called with the arguments that the header documents.
        if !unsafe { call(arrived_bytes, total_bytes, self.context) } {
            self.flag.store(true, Ordering::Relaxed);
        }
    }
}
