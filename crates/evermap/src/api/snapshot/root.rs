//! Checks of an object's root: its type, its place, and the pointers in it.

use std::path::Path;
use std::ptr::NonNull;

use crate::api::store_files::StoreFiles;
use crate::error::{Error, Result};
use crate::format::Superblock;
use crate::persist::SchemaDifference;
use crate::persist::{Bounds, Persist, type_description, type_id};

/// Returns the error for an object whose root is not a `T`.
pub(in crate::api) fn schema_mismatch<T: Persist>(
    files: &StoreFiles,
    name: &str,
    superblock: &Superblock,
) -> Error {
    let (stored, expected) = (superblock.schema(), type_description::<T>());
    Error::SchemaMismatch {
        store: files.directory.clone(),
        object: name.to_string(),
        difference: Box::new(SchemaDifference::between(&stored, expected)),
        stored,
        expected: expected.to_string(),
    }
}

/// Returns the root after comparing its type.
pub(in crate::api) fn root_as<T: Persist>(
    files: &StoreFiles,
    name: &str,
    superblock: &Superblock,
) -> Result<NonNull<T>> {
    if superblock.root_type_id != type_id::<T>().0 {
        return Err(schema_mismatch::<T>(files, name, superblock));
    }
    let address = superblock.root_address;
    let fits = superblock.root_bytes >= size_of::<T>() as u64
        && address.is_multiple_of(align_of::<T>() as u64);
    match NonNull::new(address as *mut T) {
        Some(root) if fits => Ok(root),
        _ => Err(Error::Damaged {
            path: files.paths(name, superblock.object_uuid).path,
            what: "the root",
            found: format!("{address:#x} and {} bytes", superblock.root_bytes),
            expected: format!("{} bytes aligned to {}", size_of::<T>(), align_of::<T>()),
        }),
    }
}

/// Refuses a root whose pointers lead out of its object.
///
/// # Safety
/// The regions of the superblock are mapped for reading, and `root` was returned by [`root_as`].
pub(in crate::api) unsafe fn check_root<T: Persist>(
    root: NonNull<T>,
    superblock: &Superblock,
    path: &Path,
) -> Result<()> {
    let data: Vec<(u64, u64)> = superblock
        .regions()
        .iter()
        .map(|region| (region.base + region.meta_length, region.base + region.length))
        .collect();
    // SAFETY: a superblock whose root lies outside its regions is refused when it is read, and the
    // regions are mapped. `root_as` compared the root's bytes and alignment with those of `T`.
    match unsafe { T::is_bounded(root, &Bounds::of(&data)) } {
        true => Ok(()),
        false => Err(Error::Damaged {
            path: path.to_path_buf(),
            what: "a pointer or a length in the root",
            found: "one that leads out of the object".to_string(),
            expected: "pointers into the object's data".to_string(),
        }),
    }
}
