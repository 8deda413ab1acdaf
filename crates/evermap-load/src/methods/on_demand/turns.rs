//! Turns of streams: in a set of on-demand loads, a few stream at a time, in order.
//!
//! Streaming all at once would take a staging area for each and divide the device, so the first
//! load would complete with the last. Windows that threads wait for do not wait for a turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Number of concurrent streams: one keeps a device busy, and the other does while the first ends.
const STREAMS_MAX: usize = 2;

/// Turns of one set of loads.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    given: AtomicUsize,
    over: AtomicUsize,
}

/// Turn of a load. By default it comes at once.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    number: usize,
    is_over: AtomicBool,
}

impl Turns {
    /// Returns the next turn.
    pub(crate) fn next(self: &Arc<Turns>) -> Turn {
        let number = self.given.fetch_add(1, Ordering::Relaxed);
        Turn { turns: self.clone(), number, is_over: AtomicBool::new(false) }
    }

    /// Returns the number of turns given.
    pub(crate) fn given(&self) -> usize {
        self.given.load(Ordering::Relaxed)
    }
}

impl Turn {
    /// Returns true if the load may stream.
    pub(crate) fn has_come(&self) -> bool {
        self.number < self.turns.over.load(Ordering::Acquire) + STREAMS_MAX
    }

    /// Ends the turn, when nothing is left to stream. Later calls have no effect.
    pub(crate) fn end(&self) {
        if !self.is_over.swap(true, Ordering::AcqRel) {
            self.turns.over.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Turn {
    /// Ends the turn of a load that failed to start.
    fn drop(&mut self) {
        Turn::end(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_loads_stream_at_a_time_and_the_next_starts_when_one_ends() {
        let turns = Arc::new(Turns::default());
        let all: Vec<Turn> = (0..4).map(|_| turns.next()).collect();
        let come = |all: &[Turn]| all.iter().map(Turn::has_come).collect::<Vec<_>>();
        assert_eq!(come(&all), [true, true, false, false]);
        all[1].end();
        all[1].end();
        assert_eq!(come(&all), [true, true, true, false]);
        drop(turns.next());
        assert_eq!(come(&all), [true; 4]);
        assert!(Turn::default().has_come());
    }
}
