//! Free chunks. They are looked up in the chunk map until the first large block is allocated; from
//! then on they are kept as runs in two trees, by length for the best fit and by place for joining
//! neighbours.
//!
//! All of this is volatile and derived from the chunk map. A heap without large blocks builds no
//! trees. Building them reads the map once, 16 KiB per GiB.

use std::collections::{BTreeMap, BTreeSet};

use super::holes::is_free;
use super::region::Region;
use crate::format::{CHUNK_BYTES, CHUNK_FREE, CHUNK_HOLE};

/// Runs tried for an alignment before taking one that is long enough at any position.
const TRIES_MAX: usize = 64;

/// The free chunks of all regions.
#[derive(Debug)]
pub(super) struct FreeChunks {
    /// First chunk of each region that may be free.
    from: Vec<usize>,
    runs: Option<Runs>,
}

#[derive(Debug, Default)]
struct Runs {
    /// Region and first chunk -> length. Adjacent runs are joined.
    by_place: BTreeMap<(usize, usize), usize>,
    /// All runs as (length, region, first chunk).
    by_length: BTreeSet<(usize, usize, usize)>,
}

impl FreeChunks {
    pub(super) fn new(regions: usize) -> FreeChunks {
        FreeChunks { from: vec![0; regions], runs: None }
    }

    /// Adds a region whose chunks are all free.
    pub(super) fn add_region(&mut self, chunks: usize) {
        let region = self.from.len();
        self.from.push(0);
        if let Some(runs) = &mut self.runs {
            runs.give(region, 0, chunks);
        }
    }

    /// Finds `count` free chunks at a multiple of `align_bytes`: region and first chunk.
    pub(super) fn find(
        &mut self,
        regions: &[Region],
        count: usize,
        align_bytes: u64,
    ) -> Option<(usize, usize)> {
        if let (None, 1, CHUNK_BYTES) = (&self.runs, count, align_bytes) {
            return regions.iter().zip(&mut self.from).enumerate().find_map(
                |(at, (region, from))| {
                    let map = region.map().get(*from..)?;
                    let found = memchr::memchr2(CHUNK_FREE, CHUNK_HOLE, map);
                    *from = found.map_or(region.chunks(), |chunk| *from + chunk);
                    Some((at, found.map(|_| *from)?))
                },
            );
        }
        self.runs.get_or_insert_with(|| Runs::of(regions)).find(regions, count, align_bytes)
    }

    /// Marks chunks as used.
    pub(super) fn take(&mut self, region: usize, chunk: usize, count: usize) {
        if self.from[region] == chunk {
            self.from[region] = chunk + count;
        }
        if let Some(runs) = &mut self.runs {
            runs.take(region, chunk, count);
        }
    }

    /// Marks chunks as free again.
    pub(super) fn give(&mut self, region: usize, chunk: usize, count: usize) {
        self.from[region] = self.from[region].min(chunk);
        if let Some(runs) = &mut self.runs {
            runs.give(region, chunk, count);
        }
    }
}

impl Runs {
    fn of(regions: &[Region]) -> Runs {
        let mut runs = Runs::default();
        for (at, region) in regions.iter().enumerate() {
            let map = region.map();
            let mut from = 0;
            while let Some(start) = memchr::memchr2(CHUNK_FREE, CHUNK_HOLE, &map[from..]) {
                let start = from + start;
                let taken = map[start..].iter().position(|state| !is_free(*state));
                from = taken.map_or(map.len(), |length| start + length);
                runs.insert(at, start, from - start);
            }
        }
        runs
    }

    fn insert(&mut self, region: usize, start: usize, length: usize) {
        if length > 0 {
            self.by_place.insert((region, start), length);
            self.by_length.insert((length, region, start));
        }
    }

    fn remove(&mut self, region: usize, start: usize) -> Option<usize> {
        let length = self.by_place.remove(&(region, start))?;
        self.by_length.remove(&(length, region, start));
        Some(length)
    }

    /// Finds the shortest run that fits; among equals the first.
    fn find(&self, regions: &[Region], count: usize, align: u64) -> Option<(usize, usize)> {
        let fits = |&(length, region, start): &(usize, usize, usize)| {
            let address = regions[region].chunk_address(start);
            let lead = (address.checked_next_multiple_of(align)? - address) / CHUNK_BYTES;
            (lead as usize + count <= length).then_some((region, start + lead as usize))
        };
        let found = self.by_length.range((count, 0, 0)..).take(TRIES_MAX).find_map(fits);
        found.or_else(|| {
            let enough = count.saturating_add((align / CHUNK_BYTES) as usize);
            self.by_length.range((enough, 0, 0)..).next().and_then(fits)
        })
    }

    fn take(&mut self, region: usize, chunk: usize, count: usize) {
        let place = self.by_place.range(..=(region, chunk)).next_back();
        let Some((&(of, start), _)) = place.filter(|((of, _), _)| *of == region) else { return };
        let Some(length) = self.remove(of, start) else { return };
        let end = start + length;
        self.insert(region, start, chunk.min(end) - start);
        self.insert(region, chunk + count, end.saturating_sub(chunk + count));
    }

    fn give(&mut self, region: usize, chunk: usize, count: usize) {
        let (mut start, mut end) = (chunk, chunk + count);
        let before = self.by_place.range(..(region, chunk)).next_back();
        if let Some((&(of, at), &length)) = before
            && of == region
            && at + length == chunk
        {
            self.remove(region, at);
            start = at;
        }
        if let Some(length) = self.remove(region, end) {
            end += length;
        }
        self.insert(region, start, end - start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_joined_split_and_never_overlap() {
        let seed = std::env::var("EVERMAP_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
        println!("EVERMAP_SEED={seed}");
        let mut random: u64 = seed;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) as usize % below
        };
        const CHUNKS: usize = 200;
        let mut runs = Runs::default();
        let mut free = [[false; CHUNKS]; 2];
        for _ in 0..3000 {
            let (region, start) = (next(2), next(CHUNKS));
            let length = 1 + next(12.min(CHUNKS - start));
            let part = &mut free[region][start..start + length];
            if part.iter().all(|f| *f) {
                runs.take(region, start, length);
                part.fill(false);
            } else if part.iter().all(|f| !*f) {
                runs.give(region, start, length);
                part.fill(true);
            }
            let mut expected = Vec::new();
            for (region, free) in free.iter().enumerate() {
                for start in 0..CHUNKS {
                    if free[start] && (start == 0 || !free[start - 1]) {
                        let length = free[start..].iter().take_while(|f| **f).count();
                        expected.push(((region, start), length));
                    }
                }
            }
            assert_eq!(runs.by_place.iter().map(|(p, l)| (*p, *l)).collect::<Vec<_>>(), expected);
            let mut lengths: Vec<_> =
                expected.iter().map(|((region, start), l)| (*l, *region, *start)).collect();
            lengths.sort();
            assert_eq!(runs.by_length.iter().copied().collect::<Vec<_>>(), lengths);
        }
    }
}
