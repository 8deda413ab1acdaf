//! Whose stream it is: of many images that come on demand at once, a few are streamed at a time, in order.
//!
//! All of them at once would take a staging area and a share of the device each, and the first would be complete when the last is. Windows
//! that somebody waits for wait for no turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Streams at a time: one keeps a device busy; another does while the first one ends.
const STREAMS_MAX: usize = 2;

/// The turns of one set of loads.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    given: AtomicUsize,
    over: AtomicUsize,
}

/// A load's turn. By default it comes at once, and for no other.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    number: usize,
    is_over: AtomicBool,
}

impl Turns {
    /// The next one.
    pub(crate) fn next(self: &Arc<Turns>) -> Turn {
        let number = self.given.fetch_add(1, Ordering::Relaxed);
        Turn { turns: self.clone(), number, is_over: AtomicBool::new(false) }
    }

    /// How many were given.
    pub(crate) fn given(&self) -> usize {
        self.given.load(Ordering::Relaxed)
    }
}

impl Turn {
    /// It may stream.
    pub(crate) fn has_come(&self) -> bool {
        self.number < self.turns.over.load(Ordering::Acquire) + STREAMS_MAX
    }

    /// It has nothing more to stream. Only the first call counts.
    pub(crate) fn is_over(&self) {
        if !self.is_over.swap(true, Ordering::AcqRel) {
            self.turns.over.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Turn {
    /// A load that could not begin has nothing to stream.
    fn drop(&mut self) {
        Turn::is_over(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_stream_at_a_time_and_the_next_when_one_is_over() {
        let turns = Arc::new(Turns::default());
        let all: Vec<Turn> = (0..4).map(|_| turns.next()).collect();
        let come = |all: &[Turn]| all.iter().map(Turn::has_come).collect::<Vec<_>>();
        assert_eq!(come(&all), [true, true, false, false]);
        all[1].is_over();
        all[1].is_over();
        assert_eq!(come(&all), [true, true, true, false]);
        drop(turns.next());
        assert_eq!(come(&all), [true; 4]);
        assert!(Turn::default().has_come());
    }
}
