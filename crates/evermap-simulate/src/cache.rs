//! Exact LRU caches of several capacities, simulated in one pass over the references.
//!
//! LRU caches have the inclusion property: a larger cache holds all pages of a smaller one (Mattson
//! and others, *Evaluation techniques for storage hierarchies*, 1970). So one list, most recent
//! reference first, represents all of them, with a marker at the last page of each capacity. A
//! reference moves its page to the front and moves each marker that it passes by one page. The cost
//! is constant for each capacity and independent of the length of the list.

/// Index of no page: end of the list, or not in any cache.
const NONE: u32 = u32::MAX;

/// LRU caches over pages `0..footprint`.
///
/// Invariant: `last[k]` is the page at position `capacities[k]` of the list, or `NONE` while the
/// list is shorter. The `level` of a page is the number of capacities that do not hold it.
#[derive(Clone, Debug)]
pub(crate) struct Caches {
    /// In pages, ascending, each above 0.
    capacities: Vec<u32>,
    last: Vec<u32>,
    pages: Vec<Page>,
    newest: u32,
    oldest: u32,
    length: u32,
}

/// Links and level of a page, in one struct because moving a marker needs both.
#[derive(Clone, Copy, Debug)]
struct Page {
    newer: u32,
    older: u32,
    level: u32,
}

/// Maximum number of capacities.
pub(crate) const CAPACITIES_MAX: usize = 255;

impl Caches {
    /// Creates empty caches. Capacities are in pages, ascending and above 0; at most
    /// [`CAPACITIES_MAX`].
    pub(crate) fn new(footprint: u32, capacities: &[u32]) -> Self {
        debug_assert!(capacities.is_sorted_by(|a, b| a < b) && capacities.first() != Some(&0));
        debug_assert!(capacities.len() <= CAPACITIES_MAX);
        let page = Page { newer: NONE, older: NONE, level: capacities.len() as u32 };
        Self {
            last: vec![NONE; capacities.len()],
            pages: vec![page; footprint as usize],
            newest: NONE,
            oldest: NONE,
            length: 0,
            capacities: capacities.to_vec(),
        }
    }

    /// References a page. Returns how many of the capacities miss it, which are the smallest ones.
    /// Afterwards all capacities hold it.
    pub(crate) fn reference(&mut self, page: u32) -> usize {
        let Page { newer, level, .. } = self.pages[page as usize];
        let level = level as usize;
        if page == self.newest {
            return level;
        }
        // Each capacity that misses the page evicts its last page.
        for last in &mut self.last[..level] {
            if *last != NONE {
                let pushed_out = &mut self.pages[*last as usize];
                pushed_out.level += 1;
                // With a capacity of one, the new page is also the last.
                *last = if pushed_out.newer == NONE { page } else { pushed_out.newer };
            }
        }
        if let Some(last) = self.last.get_mut(level)
            && *last == page
        {
            *last = newer;
        }
        let is_new = newer == NONE;
        if is_new {
            self.length += 1
        } else {
            self.unlink(page)
        }
        self.push(page);
        if is_new {
            // The list may just have reached the length of a capacity.
            let full = self.capacities.iter().position(|&capacity| capacity == self.length);
            if let Some(k) = full {
                self.last[k] = self.oldest;
            }
        }
        level
    }

    /// Removes a page from the list. The page must not be the first.
    fn unlink(&mut self, page: u32) {
        let Page { newer, older, .. } = self.pages[page as usize];
        self.pages[newer as usize].older = older;
        match older {
            NONE => self.oldest = newer,
            older => self.pages[older as usize].newer = newer,
        }
    }

    /// Inserts a page at the front, where every capacity holds it.
    fn push(&mut self, page: u32) {
        self.pages[page as usize] = Page { newer: NONE, older: self.newest, level: 0 };
        match self.newest {
            NONE => self.oldest = page,
            newest => self.pages[newest as usize].newer = page,
        }
        self.newest = page;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::{Purpose, Random};

    /// Reference implementation for one capacity.
    fn plain_misses(pages: &[u32], capacity: usize) -> Vec<bool> {
        let mut held: Vec<u32> = Vec::new();
        pages
            .iter()
            .map(|page| {
                let found = held.iter().position(|held| held == page);
                found.map(|place| held.remove(place));
                held.insert(0, *page);
                held.truncate(capacity);
                found.is_none()
            })
            .collect()
    }

    proptest! {
        #[test]
        fn each_capacity_misses_like_a_plain_lru_cache(
            pages in prop::collection::vec(0_u32..24, 0..400),
            capacities in prop::collection::btree_set(1_u32..30, 0..8),
        ) {
            let capacities: Vec<u32> = capacities.into_iter().collect();
            let mut caches = Caches::new(24, &capacities);
            let levels: Vec<usize> = pages.iter().map(|&page| caches.reference(page)).collect();
            for (k, &capacity) in capacities.iter().enumerate() {
                let misses: Vec<bool> = levels.iter().map(|&level| level > k).collect();
                prop_assert_eq!(misses, plain_misses(&pages, capacity as usize), "{}", capacity);
            }
        }

        #[test]
        fn a_larger_cache_never_misses_more(
            pages in prop::collection::vec(0_u32..64, 0..600),
            sizes in (1_u32..64, 1_u32..64),
        ) {
            let (small, large) = (sizes.0.min(sizes.1), sizes.0.max(sizes.1) + 1);
            let mut caches = Caches::new(64, &[small, large]);
            let levels: Vec<usize> = pages.iter().map(|&page| caches.reference(page)).collect();
            let of = |k| levels.iter().filter(|&&level| level > k).count();
            prop_assert!(of(1) <= of(0));
        }
    }

    #[test]
    fn uniform_references_miss_with_the_share_of_pages_not_held() {
        let (footprint, count) = (4_096, 200_000);
        let capacities = [410, 2_048, 3_277];
        let mut caches = Caches::new(footprint, &capacities);
        for page in Random::of(5, Purpose::WarmPages).order(footprint) {
            caches.reference(page);
        }
        let mut random = Random::of(5, Purpose::Pages);
        let mut misses = [0_u32; 3];
        for _ in 0..count {
            let level = caches.reference(random.below(footprint));
            misses.iter_mut().take(level).for_each(|count| *count += 1);
        }
        for (capacity, misses) in capacities.into_iter().zip(misses) {
            // Each reference misses with this probability, independent of the others, so the count
            // is binomial.
            let p = 1.0 - f64::from(capacity) / f64::from(footprint);
            let (mean, deviation) =
                (f64::from(count) * p, (f64::from(count) * p * (1.0 - p)).sqrt());
            let off = (f64::from(misses) - mean) / deviation;
            assert!(
                off.abs() < 4.0,
                "{capacity}: {misses}, {mean} expected, off by {off} deviations"
            );
        }
    }
}
