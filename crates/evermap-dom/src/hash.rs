//! The two hash functions of the crate.
//!
//! [`stored`] is part of the block format: ids, class tokens and names are sorted by it inside a
//! block, so it may never change without a new format version. [`Seeded`] is for tables that live
//! only while a document is parsed; it is keyed per process, so that a page can't be written to
//! make all its names collide.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, RandomState};
use std::sync::OnceLock;

const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// The hash that blocks store. Stable for ever: changing it means a new format version.
pub(crate) const fn stored(bytes: &[u8]) -> u32 {
    fold_ascii(bytes, false)
}

/// The hash that blocks store for ids and classes of quirks-mode documents, where those compare
/// without regard to ASCII case.
pub(crate) const fn stored_ignoring_case(bytes: &[u8]) -> u32 {
    fold_ascii(bytes, true)
}

const fn fold_ascii(bytes: &[u8], lower: bool) -> u32 {
    let mut hash = (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let mut at = 0;
    while at < bytes.len() {
        let mut word = 0u64;
        let mut lane = 0;
        while lane < 8 && at < bytes.len() {
            let byte = if lower { bytes[at].to_ascii_lowercase() } else { bytes[at] };
            word |= (byte as u64) << (8 * lane);
            lane += 1;
            at += 1;
        }
        hash = (hash.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
    }
    (hash ^ (hash >> 32)) as u32
}

/// A fast hash keyed once per process, for tables that are never stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seeded(u64, u64);

impl Seeded {
    pub(crate) fn new() -> Seeded {
        static KEYS: OnceLock<(u64, u64)> = OnceLock::new();
        let (a, b) = *KEYS.get_or_init(|| {
            let state = RandomState::new();
            (state.hash_one(1u8) | 1, state.hash_one(2u8) | 1)
        });
        Seeded(a, b)
    }

    #[inline]
    pub(crate) fn hash(self, bytes: &[u8]) -> u32 {
        let mut hash = self.0 ^ bytes.len() as u64;
        let (chunks, rest) = bytes.as_chunks::<8>();
        for chunk in chunks {
            hash = folded(hash ^ u64::from_le_bytes(*chunk), self.1);
        }
        if !rest.is_empty() {
            let mut word = [0u8; 8];
            word[..rest.len()].copy_from_slice(rest);
            hash = folded(hash ^ u64::from_le_bytes(word), self.1);
        }
        let hash = folded(hash, MULTIPLIER);
        hash as u32
    }
}

/// A 64 x 64 bit multiplication folded to 64 bits: the step of wyhash and foldhash.
#[inline]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// A hasher for maps keyed by offsets that this crate chose, so input cannot cause collisions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OffsetHasher(u64);

impl std::hash::Hasher for OffsetHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = folded(self.0 ^ u64::from(byte), MULTIPLIER);
        }
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.0 = folded(u64::from(number) ^ 0xA5A5_5A5A, MULTIPLIER);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// A map from offsets to numbers.
pub(crate) type OffsetMap = HashMap<u32, u32, BuildHasherDefault<OffsetHasher>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_hash_never_changes() {
        assert_eq!(stored(b""), stored_ignoring_case(b""));
        assert_eq!(stored(b"main"), 3_652_627_468);
        assert_eq!(stored(b"navigation-bar"), 1_962_751_828);
        assert_eq!(stored_ignoring_case(b"MaiN"), stored(b"main"));
    }
}
