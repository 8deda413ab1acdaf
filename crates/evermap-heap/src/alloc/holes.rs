//! Free chunks whose disk space was released.
//!
//! A hole is a free chunk with a separate state in the chunk map: its pages may have lost their
//! disk blocks. These are reserved again before the chunk is used, so a full disk is an error of
//! that allocation. Holes are marked in one commit and punched after it (`Writer::give_back`).
//! Between the two, and after a crash, a hole may still have its disk blocks.

use super::region::Region;
use crate::format::{CHUNK_BYTES, CHUNK_FREE, CHUNK_HOLE};

/// Returns true if a chunk in this state holds nothing.
#[inline]
pub fn is_free(state: u8) -> bool {
    state == CHUNK_FREE || state == CHUNK_HOLE
}

/// Marks runs of at least `chunks_min` free chunks as holes, as far as the file backs them. Returns
/// all holes of the region as (address, bytes).
pub(super) fn mark(region: &mut Region, chunks_min: usize) -> Vec<(u64, u64)> {
    let backed = ((region.backed() / CHUNK_BYTES) as usize).min(region.chunks());
    let map = region.map()[..backed].to_vec();
    let mut holes = Vec::new();
    let mut from = 0;
    for run in map.chunk_by(|a, b| is_free(*a) == is_free(*b)) {
        if is_free(run[0]) && run.len() >= chunks_min {
            region.set_map(from, run.len(), CHUNK_HOLE);
        }
        from += run.len();
    }
    from = 0;
    for run in region.map()[..backed].chunk_by(|a, b| a == b) {
        if run[0] == CHUNK_HOLE {
            holes.push((region.chunk_address(from), run.len() as u64 * CHUNK_BYTES));
        }
        from += run.len();
    }
    holes
}

/// Bytes of free, backed chunks that are not holes, in runs of at least `chunks_min` chunks.
pub(super) fn free_bytes(region: &Region, chunks_min: usize) -> u64 {
    let backed = ((region.backed() / CHUNK_BYTES) as usize).min(region.chunks());
    let map = &region.map()[..backed];
    let runs = map.chunk_by(|a, b| is_free(*a) == is_free(*b));
    let worth = runs.filter(|run| is_free(run[0]) && run.len() >= chunks_min);
    worth.map(|run| run.iter().filter(|s| **s == CHUNK_FREE).count() as u64 * CHUNK_BYTES).sum()
}
