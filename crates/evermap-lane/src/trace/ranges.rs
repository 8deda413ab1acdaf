//! A set of numbers as ranges: how much of a file has been touched, at a cost that does not grow with the ranges' lengths.

use std::collections::BTreeMap;

/// Ranges that neither overlap nor touch.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// Begin to end.
    ranges: BTreeMap<u64, u64>,
    total: u64,
}

impl Ranges {
    /// Adds all from `begin` to before `end`; how many of them were not there. Each range that was ever added is merged away at most once:
    /// the cost is logarithmic, amortised.
    pub fn add(&mut self, mut begin: u64, mut end: u64) -> u64 {
        if begin >= end {
            return 0;
        }
        let before = self.total;
        let wanted = ..=end;
        while let Some((&first, &last)) = self.ranges.range(wanted).next_back() {
            if last < begin {
                break;
            }
            self.ranges.remove(&first);
            self.total -= last - first;
            begin = begin.min(first);
            end = end.max(last);
        }
        self.ranges.insert(begin, end);
        self.total += end - begin;
        self.total - before
    }

    /// How many numbers are in it.
    pub fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_count_as_a_set_does(added in prop::collection::vec((0..200_u64, 0..40_u64), 0..60)) {
            let mut ranges = Ranges::default();
            let mut set = BTreeSet::new();
            for (begin, length) in added {
                let new = (begin..begin + length).filter(|&number| set.insert(number)).count();
                prop_assert_eq!(ranges.add(begin, begin + length), new as u64);
                prop_assert_eq!(ranges.total(), set.len() as u64);
            }
        }
    }

    #[test]
    fn ranges_of_any_length_cost_the_same() {
        let mut ranges = Ranges::default();
        for n in 0..1_000 {
            ranges.add(n, u64::MAX - n);
        }
        assert_eq!((ranges.total(), ranges.ranges.len()), (u64::MAX, 1));
    }
}
