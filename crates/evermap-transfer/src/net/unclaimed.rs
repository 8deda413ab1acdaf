//! Spans that were announced and have not been claimed by a connection.
//!
//! A peer may send any part of an announced extent, in any order, over any connection, but each
//! byte only once. Other data is refused before any of it is stored.

use std::collections::BTreeMap;

use super::wire::Malformed;
use crate::span::Span;

/// Unclaimed spans: end by begin. A map keeps each operation cheap with a million extents.
#[derive(Debug)]
pub(super) struct Unclaimed {
    spans: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Unclaimed {
    /// Creates it from ascending, disjoint extents. Adjacent ones are joined.
    pub(super) fn new(extents: &[Span]) -> Unclaimed {
        let mut spans: BTreeMap<u64, u64> = BTreeMap::new();
        let mut bytes = 0;
        let mut last: Option<Span> = None;
        for extent in extents {
            bytes += extent.bytes();
            let begin = last
                .filter(|last| last.end == extent.begin)
                .map_or(extent.begin, |last| last.begin);
            spans.insert(begin, extent.end);
            last = Some(Span::new(begin, extent.end));
        }
        Unclaimed { spans, bytes }
    }

    /// Claims `span`, all of which must be unclaimed.
    pub(super) fn claim(&mut self, span: Span) -> Result<(), Malformed> {
        let found =
            self.spans.range(..=span.begin).next_back().map(|(begin, end)| Span::new(*begin, *end));
        let Some(around) = found.filter(|around| span.end <= around.end && !span.is_empty()) else {
            return Err(Malformed::Bytes(format!(
                "the peer sends bytes {} to {}, which were not announced or were sent before",
                span.begin, span.end
            )));
        };
        match span.begin == around.begin {
            true => self.spans.remove(&around.begin),
            false => self.spans.insert(around.begin, span.begin),
        };
        if span.end < around.end {
            self.spans.insert(span.end, around.end);
        }
        self.bytes -= span.bytes();
        Ok(())
    }

    /// Returns the unclaimed bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with one flag per byte.
        #[test]
        fn each_byte_can_be_claimed_once(parts in prop::collection::vec((0u64..200, 0u64..60), 0..60)) {
            let mut due = [true; 256];
            due[100..120].fill(false);
            let mut unclaimed = Unclaimed::new(&[Span::new(0, 50), Span::new(50, 100), Span::new(120, 256)]);
            for (begin, length) in parts {
                let span = Span::new(begin, begin + length);
                let flags = due.get_mut(begin as usize..(begin + length) as usize);
                let expected = match flags {
                    Some(flags) if length > 0 && flags.iter().all(|due| *due) => {
                        flags.fill(false);
                        true
                    }
                    _ => false,
                };
                prop_assert_eq!(unclaimed.claim(span).is_ok(), expected, "{:?}", span);
                prop_assert_eq!(unclaimed.bytes(), due.iter().filter(|due| **due).count() as u64);
            }
        }
    }
}
