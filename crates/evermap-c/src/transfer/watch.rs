//! A transfer runs in a thread of its own when its caller wants to be told how far it is or to end it: callbacks run in the
//! caller's thread, as the header says, and the caller's flag is an int that nobody else looks at.

use std::ffi::{c_int, c_void};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use evermap_transfer::Error;

use super::types::{em_progress_callback, em_transfer_options};

/// How often the caller is told.
const TURN: Duration = Duration::from_millis(100);

/// Who is told, and who may end it.
pub struct Watch {
    progress: em_progress_callback,
    context: *mut c_void,
    cancelled: *const c_int,
    /// What the transfer looks at.
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

    /// For the transfer to look at.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// Runs `transfer` to its end; `counted` says how many bytes have arrived, and how many there are.
    ///
    /// # Errors
    /// What it gives, and `Io` when there is no thread for it.
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
            // What the transfer drops at its end, however it ends.
            let (done, ended) = channel::<()>();
            let run = move || {
                let _done = done;
                transfer()
            };
            let worker = thread::Builder::new()
                .name("evermap-transfer".into())
                .spawn_scoped(scope, run)
                .map_err(Error::io("start a thread for", "a transfer"))?;
            while ended.recv_timeout(TURN) == Err(RecvTimeoutError::Timeout) {
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
        // SAFETY: an int of the caller's that lives as long as the call, and is only stored to atomically or by
        // a signal handler, by the header's word.
        let flag = unsafe { AtomicI32::from_ptr(self.cancelled.cast_mut()) };
        if flag.load(Ordering::Relaxed) != 0 {
            self.flag.store(true, Ordering::Relaxed);
        }
    }

    fn tell(&self, (arrived_bytes, total_bytes): (u64, u64)) {
        let Some(call) = self.progress else { return };
        // SAFETY: a function of the caller's, with what the header says it gets.
        if !unsafe { call(arrived_bytes, total_bytes, self.context) } {
            self.flag.store(true, Ordering::Relaxed);
        }
    }
}
