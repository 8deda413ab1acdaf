//! Looks after connections while engines move bytes on them.
//!
//! Engines block in the kernel, where no flag reaches them and no time runs out. So a thread looks up ten times a
//! second whether something still moves, whether somebody has cancelled, and whether the other end has given
//! up; if so it shuts the sockets down, which ends every call on them.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::socket::Socket;
use crate::error::{Error, Result};
use crate::meter::Meter;

const TURN: Duration = Duration::from_millis(100);

/// How often an end that is at work and has nothing to say gives a sign.
pub(super) const SIGN_EVERY: Duration = Duration::from_secs(1);

/// Called with the bytes that have arrived, and all there are (0 where that is not known).
pub(super) type OnProgress = dyn Fn(u64, u64) + Send + Sync;

/// What the watch saw before it shut the sockets down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nothing moved for so long.
    Idle(Duration),
    /// Somebody has cancelled.
    Cancelled,
    /// The other end closed, or said that it has given up.
    Words,
    /// More has arrived than may.
    TooMuch,
}

/// Which way bytes go, and so which half of a socket is shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Sending,
    Receiving,
}

/// What is watched.
pub(super) struct Watched<'a> {
    pub sockets: &'a [Socket],
    /// The one on which the other end would say that it gave up.
    pub words: Option<&'a Socket>,
    pub direction: Direction,
    pub meter: &'a Meter,
    pub idle: Duration,
    pub total_bytes: u64,
    /// More than this may not arrive.
    pub most_bytes: u64,
    pub on_progress: Option<&'a OnProgress>,
    /// Called about ten times a second while something moves.
    pub on_moved: Option<&'a (dyn Fn() + Sync)>,
}

impl Watched<'_> {
    /// Runs `body` and watches meanwhile.
    pub(super) fn during<T>(&self, body: impl FnOnce() -> T) -> Result<(T, Option<Seen>)> {
        let (stop, stopped) = channel::<()>();
        std::thread::scope(|scope| {
            let watch = start(scope, move || self.run(&stopped))?;
            let result = body();
            drop(stop);
            Ok((result, watch.join().unwrap_or(None)))
        })
    }

    fn run(&self, stopped: &Receiver<()>) -> Option<Seen> {
        let mut state = self.state();
        let mut moved = Instant::now();
        loop {
            if stopped.recv_timeout(TURN.min(self.idle)) != Err(RecvTimeoutError::Timeout) {
                return None;
            }
            if let Some(progress) = self.on_progress {
                progress(self.meter.arrived_bytes(), self.total_bytes);
            }
            let now = self.state();
            // A sender that has nothing on its way waits for its own source, and no peer is to blame.
            let waits_for_itself = self.direction == Direction::Sending
                && now.1.iter().all(|(_, unsent)| *unsent == 0);
            if now != state || waits_for_itself {
                (state, moved) = (now, Instant::now());
                if let Some(on_moved) = self.on_moved {
                    on_moved();
                }
            }
            if let Some(seen) = self.look(moved) {
                self.sockets.iter().for_each(|socket| self.direction.shut(socket));
                return Some(seen);
            }
        }
    }

    fn look(&self, moved: Instant) -> Option<Seen> {
        if self.meter.is_cancelled() {
            return Some(Seen::Cancelled);
        }
        if self.words.is_some_and(Socket::has_given_up) {
            return Some(Seen::Words);
        }
        if self.meter.arrived_bytes() > self.most_bytes {
            return Some(Seen::TooMuch);
        }
        (moved.elapsed() >= self.idle).then_some(Seen::Idle(self.idle))
    }

    /// Changes whenever bytes move. A call may take a whole pipe's bytes to a slow peer before it returns; meanwhile the
    /// sockets' queues change.
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

impl Seen {
    /// As an error about `socket`, where it is one of its own.
    pub(super) fn error(self, socket: &Socket) -> Option<Error> {
        match self {
            Seen::Idle(time) => Some(socket.error(format!(
                "nothing moved for {time:?}; nothing was kept: see whether the other end still runs and the network is up"
            ))),
            Seen::Cancelled => Some(Error::Cancelled { left: "nothing is left behind".into() }),
            // Whoever asked for a bound knows which error that is.
            Seen::Words | Seen::TooMuch => None,
        }
    }
}

/// A thread of a transfer's own. The system may have none to give.
pub(super) fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    std::thread::Builder::new()
        .spawn_scoped(scope, body)
        .map_err(Error::io("start a thread for", "a transfer"))
}

/// Does something that takes long and is silent, and calls `sign` about every second meanwhile. The first sign that
/// fails is the last one.
pub(super) fn with_signs<T>(
    mut sign: impl FnMut() -> Result<()> + Send,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let (stop, stopped) = channel::<()>();
    std::thread::scope(|scope| {
        let signs = start(scope, move || {
            while stopped.recv_timeout(SIGN_EVERY) == Err(RecvTimeoutError::Timeout) {
                sign()?;
            }
            Ok(())
        })?;
        let result = work();
        drop(stop);
        let signs = signs.join().unwrap_or(Ok(()));
        result.and_then(|result| signs.map(|()| result))
    })
}
