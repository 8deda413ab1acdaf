//! Opens objects whose file may be damaged.
//!
//! A store verifies page checksums only if the program requests that. So this module verifies the
//! root and checks that the root's vector lies in the object before anything follows it. The
//! vector's content is verified at its first use: pages by their checksums; fonts, images and
//! responses by the hash of their content.

use evermap::{Error, Persist, RawSnapshot, Snapshot, Store};

/// Reasons why an object can't be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// The object does not exist.
    Missing,
    /// The object is damaged, with a description of the damage.
    Damaged(String),
    /// The object exists but can't be read.
    Store(Error),
}

/// Opens an object whose root is a `T` that owns nothing but one vector, `vector` bytes from the
/// root's start.
pub(crate) fn open<T: Persist>(
    store: &Store,
    name: &str,
    vector: usize,
) -> Result<Snapshot<T>, Unusable> {
    let unusable = |error| match error {
        Error::NotFound { .. } => Unusable::Missing,
        error @ Error::Damaged { .. } => Unusable::Damaged(error.to_string()),
        error => Unusable::Store(error),
    };
    let raw = store.read_raw(name).map_err(unusable)?;
    // Objects from before the format had checksums get only the bounds checks.
    raw.verify_root().map_err(unusable)?;
    if !lies_inside::<T>(&raw, vector) {
        // The type is checked first: an object of another type is not damaged.
        store.read::<T>(name).map_err(unusable)?;
        return Err(Unusable::Damaged("its root points outside the object".to_string()));
    }
    let opened = store.read::<T>(name).map_err(unusable)?;
    // Another process may have replaced the object in between. The new object has other addresses.
    if (&raw const *opened).cast::<u8>() != raw.root().address.cast_const() {
        return Err(Unusable::Missing);
    }
    Ok(opened)
}

/// Returns true if the root is a `T` whose vector lies in the object.
fn lies_inside<T: Persist>(raw: &RawSnapshot, vector: usize) -> bool {
    let root = raw.root();
    let (first, bytes) = (root.address as u64, size_of::<T>() as u64);
    // The root lies before the data, in a range that `contains` does not cover.
    let mapped = raw.regions().iter().any(|(base, length)| {
        first >= *base && first.checked_add(bytes).is_some_and(|end| end <= base + length)
    });
    if root.tag != evermap::type_id::<T>().0
        || root.bytes < bytes
        || !first.is_multiple_of(align_of::<T>() as u64)
        || !mapped
        || vector + size_of::<[u64; 3]>() > size_of::<T>()
    {
        return false;
    }
    // SAFETY: `raw` maps the root's bytes while it is borrowed here, and no thread writes to them.
    // A vector begins with its address and its length (`docs/persist.md`). Both are `u64`, so every
    // bit pattern is valid. The checks above ensure that they lie in the root and that the root is
    // mapped.
    let [address, length] = unsafe { root.address.add(vector).cast::<[u64; 2]>().read_unaligned() };
    length == 0 || (address != 0 && raw.contains(address as usize, length as usize))
}
