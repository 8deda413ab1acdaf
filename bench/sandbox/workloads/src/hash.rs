//! Hash function of all workloads: XXH3, which Evermap's maps use as well.
//!
//! The standard library's maps use it through [`Xxh3`], so that programs with files and with heaps
//! hash alike. It runs once over the bytes of a key: the standard `Hash` of strings and arrays
//! would add a length or an end mark, and so a second call.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The standard library's map with this hash.
pub type Map<K, V> = HashMap<K, V, Xxh3>;

/// Builds hashers with a fixed seed, so that runs are comparable.
#[derive(Clone, Copy, Debug, Default)]
pub struct Xxh3;

impl BuildHasher for Xxh3 {
    type Hasher = Xxh3Hasher;

    fn build_hasher(&self) -> Xxh3Hasher {
        Xxh3Hasher(0x5EED)
    }
}

/// Hasher; its state is the seed of the next call.
#[derive(Clone, Copy, Debug)]
pub struct Xxh3Hasher(u64);

impl Hasher for Xxh3Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Key whose bytes are borrowed from the read buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Word<'a>(pub &'a [u8]);

impl Hash for Word<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.0);
    }
}

// Written by hand: the derived version treats a byte slice as a sequence of numbers, which cannot
// be borrowed.
impl Serialize for Word<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Word<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowed;

        impl<'de> Visitor<'de> for Borrowed {
            type Value = Word<'de>;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("the bytes of a word")
            }

            fn visit_borrowed_bytes<E: Error>(self, bytes: &'de [u8]) -> Result<Word<'de>, E> {
                Ok(Word(bytes))
            }
        }

        deserializer.deserialize_bytes(Borrowed)
    }
}

/// Key with a fixed number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<const BYTES: usize>(pub [u8; BYTES]);

impl<const BYTES: usize> Hash for Key<BYTES> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0);
    }
}

/// Checksum on which the variants of a program must agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum(u64);

impl Checksum {
    /// Adds these bytes; the boundaries of calls matter.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    /// Adds a number.
    pub fn add_number(&mut self, number: u64) {
        self.add(&number.to_le_bytes());
    }

    /// Returns the checksum of everything added.
    pub fn value(self) -> u64 {
        self.0
    }
}

/// Returns the checksum of one piece.
pub fn checksum_of(bytes: &[u8]) -> u64 {
    let mut checksum = Checksum::default();
    checksum.add(bytes);
    checksum.value()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_key_is_hashed_by_one_call_over_its_bytes() {
        let expected = xxh3_64_with_seed(b"abcdefghijabcdefghij", 0x5EED);
        assert_eq!(Xxh3.hash_one(Key(*b"abcdefghijabcdefghij")), expected);
        assert_eq!(Xxh3.hash_one(Word(b"abcdefghijabcdefghij")), expected);
    }

    #[test]
    fn a_word_is_borrowed_from_its_buffer() {
        let written = postcard::to_stdvec(&Word(b"heap")).unwrap();
        let read: Word<'_> = postcard::from_bytes(&written).unwrap();
        assert_eq!(read, Word(b"heap"));
        assert!(written.as_ptr_range().contains(&read.0.as_ptr()));
    }
}
