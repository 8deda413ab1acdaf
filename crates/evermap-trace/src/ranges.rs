//! Set of numbers stored as ranges: records which parts of a file were touched. The cost does not
//! depend on the lengths of the ranges.

use std::collections::BTreeMap;

/// Set of ranges that neither overlap nor touch.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    /// Maps the begin of each range to its end.
    ranges: BTreeMap<u64, u64>,
    total: u64,
}

impl Ranges {
    /// Adds all numbers from `begin` to before `end`. Returns how many of them were new. Each added
    /// range is merged into another at most once, so the amortized cost is logarithmic.
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

    /// Returns the count of numbers in the set.
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
        fn ranges_count_like_a_set(added in prop::collection::vec((0..200_u64, 0..40_u64), 0..60)) {
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
    fn growing_ranges_merge_into_one() {
        let mut ranges = Ranges::default();
        for n in 0..1_000 {
            ranges.add(n, u64::MAX - n);
        }
        assert_eq!((ranges.total(), ranges.ranges.len()), (u64::MAX, 1));
    }
}
