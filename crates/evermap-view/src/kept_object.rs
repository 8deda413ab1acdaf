//! Opening objects whose file may be damaged.
//!
//! A store compares pages with their checksums only if the program asks for that. So the root is verified here, and
//! its vector has to lie in the object before it is followed. What the vector holds is verified by its users, when they use
//! it: pages by their checksums, fonts, images and responses by the hash of their content.

use evermap::{Error, Persist, RawSnapshot, Snapshot, Store};

/// Why an object can't be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// There is none.
    Missing,
    /// It is damaged; what was found.
    Damaged(String),
    /// It is there, and can't be read.
    Store(Error),
}

/// Opens an object whose root is a `T` that owns one vector, `vector` bytes from its start, and nothing else.
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
    // An object without checksums, from before there were any, has its bounds checked only.
    raw.verify_root().map_err(unusable)?;
    if !lies_inside::<T>(&raw, vector) {
        // The type first: an object of another type is not damaged.
        store.read::<T>(name).map_err(unusable)?;
        return Err(Unusable::Damaged("its root leads out of it".to_string()));
    }
    let opened = store.read::<T>(name).map_err(unusable)?;
    // Somebody may have replaced it in between. The one that was looked at keeps its addresses.
    if (&raw const *opened).cast::<u8>() != raw.root().address.cast_const() {
        return Err(Unusable::Missing);
    }
    Ok(opened)
}

/// Is the root a `T` whose vector lies in the object?
fn lies_inside<T: Persist>(raw: &RawSnapshot, vector: usize) -> bool {
    let root = raw.root();
    let (first, bytes) = (root.address as u64, size_of::<T>() as u64);
    // A root lies before the data, where `contains` does not look.
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
    // SAFETY: `raw` maps the root's bytes for as long as it is borrowed here, and nobody writes them. A vector begins with its
    // address and its length (`docs/persist.md`), both `u64`, which every pattern of bits is; it lies in the root, as was
    // just looked at.
    let [address, length] = unsafe { root.address.add(vector).cast::<[u64; 2]>().read_unaligned() };
    length == 0 || (address != 0 && raw.contains(address as usize, length as usize))
}
