//! The end of a guest that waits beyond its time.
//!
//! A guest that computes is ended by its engine. One that waits in a call of its host's (for a time, for
//! standard input) is not: the call would have to come back first. This process has nobody but the
//! guest, so it ends with it; what was committed is safe, as it is from a kill.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use crate::failure::Failure;

/// The engine has this long to end the guest itself.
const GRACE: Duration = Duration::from_millis(500);

/// Ends the process when the time is over, unless it was dropped before.
pub struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    /// Watches from now on, for a guest that may run for `time`.
    ///
    /// # Errors
    /// `NotStarted`: no thread can be started.
    pub fn start(module: PathBuf, time: Duration) -> Result<Watchdog, Failure> {
        let (alive, ended) = mpsc::channel();
        let program = module.clone();
        let started = std::thread::Builder::new().spawn(move || {
            let waited = ended.recv_timeout(time.saturating_add(GRACE));
            if waited != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let failure = Failure::GuestEnded { module, why: super::OUT_OF_TIME.to_string() };
            let _: ExitCode = failure.report();
            std::process::exit(i32::from(failure.exit_code()));
        });
        started.map_err(|source| Failure::NotStarted { program, source })?;
        Ok(Watchdog { _alive: alive })
    }
}
