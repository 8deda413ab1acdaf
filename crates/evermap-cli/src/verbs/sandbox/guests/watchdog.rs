//! Ends a guest that still waits after its time limit.
//!
//! The engine ends a guest that computes, but not one that waits in a host call (for a time, or for
//! standard input), because the call would have to return first. This process runs only the guest,
//! so the watchdog ends the process. Commits are safe, as after a kill.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use crate::failure::Failure;

/// Time for the engine to end the guest itself.
const GRACE: Duration = Duration::from_millis(500);

/// Ends the process after the time limit, unless it was dropped before.
pub struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    /// Starts watching a guest that may run for `time`.
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
