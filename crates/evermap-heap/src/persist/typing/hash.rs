//! The hash of persistent maps.
//!
//! The hash decides where an entry's index cell lies in a file, so it must be the same in every
//! run, version and machine. The standard library's `Hash` doesn't guarantee the bytes that it
//! feeds. The rule, which is part of the file format:
//!
//! * the hash of a value is a fold: `state' = XXH3_64(bytes, seed = state)`;
//! * a scalar gives its little-endian bytes (`bool` one byte 0 or 1, `char` its code point as
//!   `u32`);
//! * a string, and a slice or vector of `u8`, gives its bytes;
//! * any other slice or vector gives its length as a `u64`, then its elements one after the other;
//!   an array is hashed like the slice of its elements;
//! * a derived struct gives its fields in order of declaration, a derived enum its value as the
//!   integer that represents it;
//! * the first state of a map is the map's own seed.
//!
//! Folding with the seed makes `("ab", "c")` and `("a", "bc")` different. XXH3 is the 64-bit
//! variant
//! with a seed of the xxHash specification 0.8, which is frozen.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::persist::{PBox, PString, PVec};

/// A key's hash, the same in every run and on every machine.
///
/// Use `#[derive(PersistHash)]` for structs and fieldless enums. To implement it by hand, fold the
/// parts that equality compares. Equal values must have equal hashes, also in their borrowed forms
/// (`PString` and `str`). Otherwise lookups miss entries, but nothing worse happens.
///
/// ```
/// use evermap::{PMap, PString, Persist, PersistHash, Plain, Scratch};
///
/// #[derive(Clone, Copy, PartialEq, Eq, Persist, Plain, PersistHash)]
/// #[repr(C)]
/// struct Cell { x: i32, y: i32 }
///
/// let object = Scratch::<PMap<Cell, PString>>::new([(Cell { x: 1, y: 2 }, "a")])?;
/// assert_eq!(object.root().get(&Cell { x: 1, y: 2 }).map(|name| name.as_str()), Some("a"));
/// # Ok::<(), evermap::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be hashed for a persistent map",
    label = "`{Self}` doesn't implement `PersistHash`",
    note = "your own type: add `#[derive(PartialEq, Eq, evermap::PersistHash)]` to it",
    note = "floating-point numbers are no keys: they aren't `Eq`"
)]
pub trait PersistHash {
    /// Folds the value into `state`.
    fn persist_hash(&self, state: u64) -> u64;

    /// Folds a slice of values into `state`.
    #[doc(hidden)]
    fn persist_hash_slice(slice: &[Self], state: u64) -> u64
    where
        Self: Sized,
    {
        let state = (slice.len() as u64).persist_hash(state);
        slice.iter().fold(state, |state, value| value.persist_hash(state))
    }
}

macro_rules! integers {
    ($($integer:ident)*) => {$(
        impl PersistHash for $integer {
            #[inline]
            fn persist_hash(&self, state: u64) -> u64 {
                xxh3_64_with_seed(&self.to_le_bytes(), state)
            }
        }
    )*};
}

integers!(u16 u32 u64 u128 i8 i16 i32 i64 i128);

impl PersistHash for u8 {
    #[inline]
    fn persist_hash(&self, state: u64) -> u64 {
        xxh3_64_with_seed(&[*self], state)
    }

    // With a constant length, the compiler selects the XXH3 code path.
    #[inline]
    fn persist_hash_slice(slice: &[u8], state: u64) -> u64 {
        xxh3_64_with_seed(slice, state)
    }
}

impl PersistHash for bool {
    fn persist_hash(&self, state: u64) -> u64 {
        u8::from(*self).persist_hash(state)
    }
}

impl PersistHash for char {
    fn persist_hash(&self, state: u64) -> u64 {
        u32::from(*self).persist_hash(state)
    }
}

impl PersistHash for str {
    fn persist_hash(&self, state: u64) -> u64 {
        self.as_bytes().persist_hash(state)
    }
}

impl PersistHash for PString {
    fn persist_hash(&self, state: u64) -> u64 {
        self.as_str().persist_hash(state)
    }
}

impl<T: PersistHash> PersistHash for [T] {
    fn persist_hash(&self, state: u64) -> u64 {
        T::persist_hash_slice(self, state)
    }
}

impl<T: PersistHash, const N: usize> PersistHash for [T; N] {
    fn persist_hash(&self, state: u64) -> u64 {
        self.as_slice().persist_hash(state)
    }
}

impl<T: PersistHash> PersistHash for PVec<T> {
    fn persist_hash(&self, state: u64) -> u64 {
        self.as_slice().persist_hash(state)
    }
}

impl<T: PersistHash> PersistHash for PBox<T> {
    fn persist_hash(&self, state: u64) -> u64 {
        (**self).persist_hash(state)
    }
}

impl<T: PersistHash + ?Sized> PersistHash for &T {
    fn persist_hash(&self, state: u64) -> u64 {
        (**self).persist_hash(state)
    }
}
