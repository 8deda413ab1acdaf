//! Monitors connections while engines move bytes on them.
//!
//! Engines block in the kernel, where they see neither flags nor timeouts. So a thread checks ten
//! times a second for progress, for cancellation, and whether the peer gave up. To stop, it shuts
//! down the sockets, which ends all calls on them.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::socket::Socket;
use crate::error::{Error, Result};
use crate::meter::Meter;

const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Interval of keep-alive messages from a busy end.
pub(super) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Callback with the bytes arrived and the total (0 if unknown).
pub(super) type OnProgress = dyn Fn(u64, u64) + Send + Sync;

/// Reason for which the watch shut down the sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopCause {
    /// No progress for this time.
    Idle(Duration),
    /// The transfer was cancelled.
    Cancelled,
    /// The peer closed the connection or sent a failure.
    GaveUp,
    /// More bytes arrived than allowed.
    TooMuch,
}

/// Direction of the data, which determines the side of the socket to shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Sending,
    Receiving,
}

/// Parameters of a watch.
pub(super) struct Watched<'a> {
    pub sockets: &'a [Socket],
    /// Connection on which the peer would send a failure.
    pub control: Option<&'a Socket>,
    pub direction: Direction,
    pub meter: &'a Meter,
    pub idle: Duration,
    pub total_bytes: u64,
    /// Maximum number of bytes that may arrive.
    pub bytes_max: u64,
    pub on_progress: Option<&'a OnProgress>,
    /// Called about ten times a second while data moves.
    pub on_moved: Option<&'a (dyn Fn() + Sync)>,
}

impl Watched<'_> {
    /// Runs `body` while watching.
    pub(super) fn during<T>(&self, body: impl FnOnce() -> T) -> Result<(T, Option<StopCause>)> {
        let (stop, stopped) = channel::<()>();
        std::thread::scope(|scope| {
            let watch = start(scope, move || self.run(&stopped))?;
            let result = body();
            drop(stop);
            Ok((result, watch.join().unwrap_or(None)))
        })
    }

    fn run(&self, stopped: &Receiver<()>) -> Option<StopCause> {
        let mut state = self.state();
        let mut moved = Instant::now();
        loop {
            if stopped.recv_timeout(POLL_INTERVAL.min(self.idle)) != Err(RecvTimeoutError::Timeout)
            {
                return None;
            }
            if let Some(progress) = self.on_progress {
                progress(self.meter.arrived_bytes(), self.total_bytes);
            }
            let now = self.state();
            // A sender without unsent data waits for its own source, not for the peer.
            let waits_for_itself = self.direction == Direction::Sending
                && now.1.iter().all(|(_, unsent)| *unsent == 0);
            if now != state || waits_for_itself {
                (state, moved) = (now, Instant::now());
                if let Some(on_moved) = self.on_moved {
                    on_moved();
                }
            }
            if let Some(cause) = self.check(moved) {
                self.sockets.iter().for_each(|socket| self.direction.shut(socket));
                return Some(cause);
            }
        }
    }

    fn check(&self, moved: Instant) -> Option<StopCause> {
        if self.meter.is_cancelled() {
            return Some(StopCause::Cancelled);
        }
        if self.control.is_some_and(Socket::has_given_up) {
            return Some(StopCause::GaveUp);
        }
        if self.meter.arrived_bytes() > self.bytes_max {
            return Some(StopCause::TooMuch);
        }
        (moved.elapsed() >= self.idle).then_some(StopCause::Idle(self.idle))
    }

    /// Returns a value that changes when bytes move. The sockets' queues are included because one
    /// call may take a whole pipe of bytes to a slow peer.
    fn state(&self) -> (u64, Vec<(u64, u64)>) {
        (self.meter.arrived_bytes(), self.sockets.iter().map(Socket::queued_bytes).collect())
    }
}

impl Direction {
    pub(super) fn shut(self, socket: &Socket) {
        match self {
            Direction::Sending => socket.end_sending(),
            Direction::Receiving => socket.end_receiving(),
        }
    }
}

impl StopCause {
    /// Converts this into an error about `socket`, if it has one.
    pub(super) fn error(self, socket: &Socket) -> Option<Error> {
        match self {
            StopCause::Idle(time) => Some(socket.error(format!(
                "no progress for {time:?}; nothing was kept: check that the peer is running and the network is up"
            ))),
            StopCause::Cancelled => Some(Error::Cancelled { left: "no partial file remains".into() }),
            // The caller builds these errors.
            StopCause::GaveUp | StopCause::TooMuch => None,
        }
    }
}

/// Starts a thread. Fails if the system's limit is reached.
pub(super) fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    std::thread::Builder::new()
        .spawn_scoped(scope, body)
        .map_err(Error::io("start a thread for", "the transfer"))
}

/// Runs a long operation. During it, calls `keep_alive` about every second, until a call fails.
/// Returns that error if the operation itself succeeded.
pub(super) fn with_keep_alive<T>(
    mut keep_alive: impl FnMut() -> Result<()> + Send,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let (stop, stopped) = channel::<()>();
    std::thread::scope(|scope| {
        let keep_alives = start(scope, move || {
            while stopped.recv_timeout(KEEP_ALIVE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                keep_alive()?;
            }
            Ok(())
        })?;
        let result = work();
        drop(stop);
        let keep_alives = keep_alives.join().unwrap_or(Ok(()));
        result.and_then(|result| keep_alives.map(|()| result))
    })
}
