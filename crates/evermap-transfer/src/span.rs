//! What is to be moved, and what has not arrived yet.
//!
//! The account is kept at the target's side: a span leaves [`Work`] when its bytes are in the target, not when
//! they were read. Whatever an engine held when it failed is simply still in the account, and the next engine
//! begins there. So an engine that reads ahead, through a pipe or a ring, loses nothing by being replaced.

pub use evermap_observe::Span;

/// The spans that have not arrived at the target, in ascending order, none empty, none overlapping.
///
/// Offsets are the same in source and target where both are files. Where one of them is a stream, its own position
/// stands for the offset, and spans arrive strictly in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Work {
    spans: Vec<Span>,
}

impl Work {
    /// All of `spans`, which must ascend and not overlap; empty ones are left out.
    pub fn new(spans: impl IntoIterator<Item = Span>) -> Work {
        let spans: Vec<Span> = spans.into_iter().filter(|span| !span.is_empty()).collect();
        debug_assert!(spans.windows(2).all(|pair| pair[0].end <= pair[1].begin));
        Work { spans }
    }

    /// Everything from `begin` to the source's own end.
    pub fn open(begin: u64) -> Work {
        Work { spans: vec![Span::new(begin, Span::OPEN)] }
    }

    /// What has not arrived, in ascending order.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The span to go on with.
    pub fn first(&self) -> Option<Span> {
        self.spans.first().copied()
    }

    /// Whether all has arrived.
    pub fn is_done(&self) -> bool {
        self.spans.is_empty()
    }

    /// The bytes that have not arrived; `None` where the end is not known.
    pub fn bytes(&self) -> Option<u64> {
        match self.spans.last() {
            Some(last) if last.is_open() => None,
            _ => Some(self.spans.iter().map(Span::bytes).sum()),
        }
    }

    /// The first `bytes` of what is left have arrived, all within the first span.
    pub fn arrived(&mut self, bytes: u64) {
        let Some(first) = self.spans.first_mut() else { return };
        debug_assert!(bytes <= first.bytes());
        first.begin += bytes;
        if first.is_empty() {
            self.spans.remove(0);
        }
    }

    /// This part of what is left has arrived, wherever it lies: rings and lanes finish out of order.
    pub fn arrived_at(&mut self, part: Span) {
        if part.is_empty() {
            return;
        }
        // The spans before `part` end before it, those after begin after it: only the ones between change.
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

    /// The source ended at `end`, which was confirmed: nothing behind it will arrive.
    pub fn ended(&mut self, end: u64) {
        self.arrived_at(Span::new(end, Span::OPEN));
    }

    /// Takes up to `bytes_max` from the beginning, as spans of their own; what is taken is still due here until it
    /// is said to have arrived.
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
    fn what_arrives_in_the_middle_leaves_both_sides() {
        let mut work = Work::new([Span::new(0, 100)]);
        work.arrived_at(Span::new(40, 60));
        assert_eq!(work.spans(), [Span::new(0, 40), Span::new(60, 100)]);
        assert_eq!(work.bytes(), Some(80));
    }

    #[test]
    fn an_open_span_ends_where_the_source_does() {
        let mut work = Work::open(10);
        assert_eq!(work.bytes(), None);
        work.arrived(20);
        work.ended(30);
        assert!(work.is_done());
    }

    proptest! {
        /// Against the simplest account there is: one flag a byte.
        #[test]
        fn the_account_is_that_of_single_bytes(parts in prop::collection::vec((0u64..200, 0u64..60), 0..20)) {
            let mut due = [true; 256];
            due[100..120].fill(false);
            let mut work = Work::new([Span::new(0, 100), Span::new(120, 256)]);
            for (begin, length) in parts {
                let part = Span::new(begin, (begin + length).min(256));
                work.arrived_at(part);
                due[part.begin as usize..part.end as usize].fill(false);
            }
            let mut said = [false; 256];
            for span in work.spans() {
                prop_assert!(!span.is_empty());
                said[span.begin as usize..span.end as usize].fill(true);
            }
            prop_assert_eq!(said, due);
        }
    }
}
