//! Bounds of an object's data, for the pointers in its root.
//!
//! A root is typed, and its pointers are followed, as soon as an object is open. In a damaged file,
//! such a pointer could lead anywhere. So each pointer in the root itself is compared with the
//! bounds of the object's data before safe code can access the root. The values that these pointers
//! lead to lie in data pages, which have checksums.

use std::ptr::NonNull;

use super::Persist;

/// Ranges of addresses that a pointer of an object may lead to.
///
/// Only needed to implement [`Persist`] by hand: see [`Persist::is_bounded`].
#[derive(Debug)]
pub struct Bounds<'a> {
    ranges: &'a [(u64, u64)],
}

impl<'a> Bounds<'a> {
    /// Creates bounds from the (first address, end) of the data in each region of an object.
    #[doc(hidden)]
    #[inline]
    pub fn of(ranges: &'a [(u64, u64)]) -> Bounds<'a> {
        Bounds { ranges }
    }

    /// Returns true if `bytes` bytes from `address` lie in the object's data, in one region.
    pub fn contain(&self, address: u64, bytes: u64) -> bool {
        address.checked_add(bytes).is_some_and(|end| {
            self.ranges.iter().any(|&(first, last)| first <= address && end <= last)
        })
    }

    /// Returns true if `count` values of type `T` may lie at `address`.
    pub fn contain_row<T>(&self, address: *const T, count: u64) -> bool {
        let bytes = (size_of::<T>() as u64).checked_mul(count);
        address.is_aligned()
            && bytes.is_some_and(|bytes| self.contain(address.addr() as u64, bytes))
    }
}

/// Like [`Persist::is_bounded`], for `len` adjacent values.
///
/// # Safety
/// `first` is aligned and the bytes of all values may be read. They need not be valid values.
pub(crate) unsafe fn are_bounded<T: Persist>(
    first: NonNull<T>,
    len: usize,
    bounds: &Bounds<'_>,
) -> bool {
    // SAFETY: the value is one of the `len` values that the caller lets be read.
    (0..len).all(|index| unsafe { T::is_bounded(first.add(index), bounds) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_lies_in_one_region_or_is_refused() {
        let bounds = Bounds::of(&[(4096, 8192), (8192, 12288), (65536, 65537)]);
        for (address, bytes) in [(4096, 0), (4096, 4096), (8191, 1), (8192, 4096), (65536, 1)] {
            assert!(bounds.contain(address, bytes), "{address} {bytes}");
        }
        for (address, bytes) in
            [(4095, 1), (8191, 2), (12288, 1), (0, 0), (u64::MAX, 2), (65536, u64::MAX)]
        {
            assert!(!bounds.contain(address, bytes), "{address} {bytes}");
        }
        assert!(bounds.contain_row(std::ptr::without_provenance::<u64>(4096), 512));
        assert!(!bounds.contain_row(std::ptr::without_provenance::<u64>(4097), 1));
        assert!(!bounds.contain_row(std::ptr::without_provenance::<u64>(4096), u64::MAX));
    }
}
