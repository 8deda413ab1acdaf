//! Engines that submit several operations at a time through io_uring.

mod copy;
mod queue;
mod splice;

pub use copy::Uring;
pub use splice::UringSplice;

use super::{Refusal, Stop};
use crate::span::{Span, Work};

/// Refuses spans without a known end: several parts are queued before the first completes.
fn refuse_open(work: &Work) -> Result<(), Stop> {
    match work.spans().last() {
        Some(last) if last.is_open() => {
            Err(Stop::Refused(Refusal::new("io_uring copies need a source with a known end")))
        }
        _ => Ok(()),
    }
}

/// Returns the more severe reason to stop: a failure before a refusal, otherwise the earlier one.
fn more_severe(before: Option<Stop>, now: Stop) -> Option<Stop> {
    match (before, now) {
        (None, now) => Some(now),
        (Some(Stop::Refused(_)), now @ (Stop::Failed { .. } | Stop::SourceEnded { .. })) => {
            Some(now)
        }
        (before, _) => before,
    }
}

/// Returns the refusal for a ring that failed.
fn ring_failed(errno: rustix::io::Errno) -> Stop {
    Stop::Refused(Refusal::new(format!("io_uring failed: {errno}")))
}

/// Splits spans into parts of `bytes_max` at most, aligned to `bytes_max`.
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
    fn parts_cover_the_spans_and_are_aligned() {
        let parts: Vec<Span> =
            Parts::new([Span::new(5, 20), Span::new(24, 32), Span::new(40, 41)], 8).collect();
        let expected = [(5, 8), (8, 16), (16, 20), (24, 32), (40, 41)];
        assert_eq!(parts, expected.map(|(begin, end)| Span::new(begin, end)));
    }
}
