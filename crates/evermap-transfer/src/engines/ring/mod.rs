//! Engines that give the kernel several operations at a time, through a ring.

mod copy;
mod queue;
mod splice;

pub use copy::Uring;
pub use splice::UringSplice;

use super::{Stop, WhyNot};
use crate::span::{Span, Work};

/// Refuses what has no known end: a ring asks for several parts before it knows what came of the first.
fn refuse_open(work: &Work) -> Result<(), Stop> {
    match work.spans().last() {
        Some(last) if last.is_open() => {
            Err(Stop::Refused(WhyNot::new("a ring needs to know where the source ends")))
        }
        _ => Ok(()),
    }
}

/// Of two reasons to stop the one that matters more: a failure before a refusal, and the earlier of equals.
fn graver(before: Option<Stop>, now: Stop) -> Option<Stop> {
    match (before, now) {
        (None, now) => Some(now),
        (Some(Stop::Refused(_)), now @ (Stop::Failed { .. } | Stop::SourceEnded { .. })) => {
            Some(now)
        }
        (before, _) => before,
    }
}

/// A stop for a ring that cannot be used any more.
fn broken(errno: rustix::io::Errno) -> Stop {
    Stop::Refused(WhyNot::new(format!("io_uring says: {errno}")))
}

/// Cuts spans into parts of `bytes_max` at most, which begin at its multiples.
#[derive(Debug)]
struct Parts {
    spans: std::collections::VecDeque<Span>,
    bytes_max: u64,
}

impl Parts {
    fn new(spans: impl IntoIterator<Item = Span>, bytes_max: u64) -> Parts {
        Parts { spans: spans.into_iter().filter(|span| !span.is_empty()).collect(), bytes_max }
    }
}

impl Iterator for Parts {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        let span = self.spans.front_mut()?;
        let until = span.end.min((span.begin / self.bytes_max + 1) * self.bytes_max);
        let part = Span::new(span.begin, until);
        span.begin = until;
        if span.is_empty() {
            self.spans.pop_front();
        }
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_all_there_is() {
        let parts: Vec<Span> =
            Parts::new([Span::new(5, 20), Span::new(24, 32), Span::new(40, 41)], 8).collect();
        let expected = [(5, 8), (8, 16), (16, 20), (24, 32), (40, 41)];
        assert_eq!(parts, expected.map(|(begin, end)| Span::new(begin, end)));
    }
}
