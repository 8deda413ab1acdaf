//! Where in the window a new arena goes: anywhere that meets nothing of a list, by chance.
//!
//! By chance, because the list knows only what this user and this machine have told it: two stores
//! made on two machines are apart as well as the size of the window allows. All places that are
//! left have the same chance, and one that is left is always found.

use super::{ARENA_ALIGN_BYTES, Window, random_u64};
use crate::error::{Error, Result};

impl Window {
    /// A random base, aligned to 1 GiB, for an arena of `length` bytes that meets none of the
    /// ranges `taken` (base and length, in any order); `None` when there is no such place.
    ///
    /// Places that are whole lengths from the window's beginning come first: arenas of one length
    /// then fill the window without gaps (at random GiBs it is full at three quarters), and two
    /// that do not know of each other meet half as often, for they meet in all or in nothing.
    pub(crate) fn free_base(&self, length: u64, taken: &[(u64, u64)]) -> Result<Option<u64>> {
        let Some(room) = (self.end() - self.base()).checked_sub(length) else {
            return Err(Error::OutOfAddresses {
                what: "an arena".to_string(),
                bytes: length,
                why: format!("the window {:#x}..{:#x} is smaller", self.base(), self.end()),
            });
        };
        for step in [length.next_multiple_of(ARENA_ALIGN_BYTES), ARENA_ALIGN_BYTES] {
            let places = Places { base: self.base(), step, count: room / step + 1 };
            if let Some(base) = places.choose(length, taken)? {
                return Ok(Some(base));
            }
        }
        Ok(None)
    }
}

/// Bases that may be chosen: number n is `base + n * step`.
struct Places {
    base: u64,
    step: u64,
    count: u64,
}

impl Places {
    fn choose(&self, length: u64, taken: &[(u64, u64)]) -> Result<Option<u64>> {
        let free = self.free_runs(length, taken);
        let count: u64 = free.iter().map(|(from, to)| to - from).sum();
        if count == 0 {
            return Ok(None);
        }
        let mut number = random_u64()? % count;
        for (from, to) in free {
            if number < to - from {
                return Ok(Some(self.base + (from + number) * self.step));
            }
            number -= to - from;
        }
        Ok(None)
    }

    /// Runs of numbers, from and to, of the places where `length` bytes meet nothing.
    fn free_runs(&self, length: u64, taken: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut lost: Vec<(u64, u64)> = taken
            .iter()
            .filter(|(_, bytes)| *bytes > 0)
            .map(|&(start, bytes)| {
                // The first place whose end lies behind the range's start, and the first behind it.
                let before = start.checked_sub(self.base).and_then(|at| at.checked_sub(length));
                let from = before.map_or(0, |bytes| bytes / self.step + 1);
                let end = start.saturating_add(bytes).saturating_sub(self.base);
                (from, end.div_ceil(self.step).min(self.count))
            })
            .filter(|(from, to)| from < to)
            .collect();
        lost.sort_unstable();
        let mut free = Vec::new();
        let mut next = 0;
        for (from, to) in lost {
            if from > next {
                free.push((next, from));
            }
            next = next.max(to);
        }
        if next < self.count {
            free.push((next, self.count));
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = ARENA_ALIGN_BYTES;
    const BASE: u64 = 0x2000_0000_0000;

    fn window(places: u64) -> Window {
        Window::new(BASE, BASE + places * GIB).unwrap()
    }

    #[test]
    fn every_place_of_a_window_is_given_out_its_last_one_too() {
        let mut taken = Vec::new();
        while let Some(base) = window(7).free_base(GIB, &taken).unwrap() {
            taken.push((base, GIB));
        }
        taken.sort_unstable();
        assert!(taken.iter().map(|t| t.0).eq((0..7).map(|n| BASE + n * GIB)));
    }

    #[test]
    fn arenas_of_one_length_fill_the_window_without_gaps() {
        let mut taken = Vec::new();
        while let Some(base) = window(35).free_base(5 * GIB, &taken).unwrap() {
            taken.push((base, 5 * GIB));
        }
        assert_eq!(taken.len(), 7);
    }

    #[test]
    fn a_window_smaller_than_the_arena_is_refused() {
        assert_eq!(window(3).free_base(3 * GIB, &[]).unwrap(), Some(BASE));
        let refused = window(3).free_base(4 * GIB, &[]);
        assert!(matches!(refused, Err(Error::OutOfAddresses { .. })));
    }

    proptest! {
        #[test]
        fn a_place_meets_nothing_that_is_taken_and_is_found_where_there_is_one(
            gib in 1u64..5,
            taken in proptest::collection::vec(
                // Around the window, across its ends, and at the ends of what a number can be.
                prop_oneof![
                    (BASE - 8 * GIB..BASE + 24 * GIB, 0u64..6 * GIB),
                    (any::<u64>(), any::<u64>()),
                    (0u64..1, any::<u64>()),
                ],
                0..5,
            ),
        ) {
            let (window, length) = (window(16), gib * GIB);
            let meets = |base: u64| {
                taken.iter().any(|&(start, bytes)| {
                    bytes > 0 && base < start.saturating_add(bytes) && start < base + length
                })
            };
            let possible = (0..=16 - gib).map(|n| BASE + n * GIB).any(|base| !meets(base));
            let found = window.free_base(length, &taken).unwrap();
            prop_assert_eq!(found.is_some(), possible);
            if let Some(base) = found {
                prop_assert!(!meets(base) && window.contains(base, length));
            }
        }
    }
}
