//! Spans that have not arrived at the target yet.
//!
//! A span leaves [`Work`] when its bytes are in the target, not when they were read. Bytes that an
//! engine holds when it fails are still in `Work`, and the next engine starts there. So an engine
//! that reads ahead, through a pipe or a ring, can be replaced without loss.

pub use evermap_observe::Span;

/// Spans that have not arrived at the target: ascending, non-empty, disjoint.
///
/// Between files, offsets are the same in source and target. If one end is a stream, offsets are
/// its position, and spans arrive in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Work {
    spans: Vec<Span>,
}

impl Work {
    /// Creates work from `spans`, which must ascend and not overlap. Empty spans are dropped.
    pub fn new(spans: impl IntoIterator<Item = Span>) -> Work {
        let spans: Vec<Span> = spans.into_iter().filter(|span| !span.is_empty()).collect();
        debug_assert!(spans.windows(2).all(|pair| pair[0].end <= pair[1].begin));
        Work { spans }
    }

    /// Creates work from `begin` to the end of the source.
    pub fn open(begin: u64) -> Work {
        Work { spans: vec![Span::new(begin, Span::OPEN)] }
    }

    /// Returns the remaining spans in ascending order.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Returns the first remaining span.
    pub fn first(&self) -> Option<Span> {
        self.spans.first().copied()
    }

    /// Returns true if no span remains.
    pub fn is_done(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the remaining bytes, or `None` if the end is unknown.
    pub fn bytes(&self) -> Option<u64> {
        match self.spans.last() {
            Some(last) if last.is_open() => None,
            _ => Some(self.spans.iter().map(Span::bytes).sum()),
        }
    }

    /// Removes the first `bytes`, which must lie within the first span.
    pub fn arrived(&mut self, bytes: u64) {
        let Some(first) = self.spans.first_mut() else { return };
        debug_assert!(bytes <= first.bytes());
        first.begin += bytes;
        if first.is_empty() {
            self.spans.remove(0);
        }
    }

    /// Removes `part` from the remaining spans. Rings and lanes finish out of order.
    pub fn arrived_at(&mut self, part: Span) {
        if part.is_empty() {
            return;
        }
        // Only the spans that overlap `part` change.
        let from = self.spans.partition_point(|span| span.end <= part.begin);
        let to = self.spans.partition_point(|span| span.begin < part.end);
        let left: Vec<Span> = self.spans[from..to]
            .iter()
            .flat_map(|span| {
                let before = Span::new(span.begin, span.end.min(part.begin));
                let after = Span::new(span.begin.max(part.end), span.end);
                [before, after]
            })
            .filter(|span| !span.is_empty())
            .collect();
        self.spans.splice(from..to, left);
    }

    /// Removes everything after `end`, where the source was confirmed to end.
    pub fn ended(&mut self, end: u64) {
        self.arrived_at(Span::new(end, Span::OPEN));
    }

    /// Returns the first `bytes_max` remaining bytes as spans. They remain in the work until they
    /// arrive.
    pub fn take(&self, bytes_max: u64) -> Vec<Span> {
        let mut left = bytes_max;
        let mut taken = Vec::new();
        for span in &self.spans {
            if left == 0 {
                break;
            }
            let bytes = span.bytes().min(left);
            taken.push(Span::new(span.begin, span.begin + bytes));
            left -= bytes;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn arrival_in_the_middle_leaves_both_sides() {
        let mut work = Work::new([Span::new(0, 100)]);
        work.arrived_at(Span::new(40, 60));
        assert_eq!(work.spans(), [Span::new(0, 40), Span::new(60, 100)]);
        assert_eq!(work.bytes(), Some(80));
    }

    #[test]
    fn open_span_ends_at_the_end_of_the_source() {
        let mut work = Work::open(10);
        assert_eq!(work.bytes(), None);
        work.arrived(20);
        work.ended(30);
        assert!(work.is_done());
    }

    proptest! {
        /// Compares with one flag per byte.
        #[test]
        fn work_matches_one_flag_per_byte(parts in prop::collection::vec((0u64..200, 0u64..60), 0..20)) {
            let mut due = [true; 256];
            due[100..120].fill(false);
            let mut work = Work::new([Span::new(0, 100), Span::new(120, 256)]);
            for (begin, length) in parts {
                let part = Span::new(begin, (begin + length).min(256));
                work.arrived_at(part);
                due[part.begin as usize..part.end as usize].fill(false);
            }
            let mut remaining = [false; 256];
            for span in work.spans() {
                prop_assert!(!span.is_empty());
                remaining[span.begin as usize..span.end as usize].fill(true);
            }
            prop_assert_eq!(remaining, due);
        }
    }
}
