//! Maps the use of an object's pages, for an object of a store that need not be open here.
//!
//! Reads the last commit from the files through an [`Image`].

use std::path::Path;

use crate::commit::locks;
use crate::error::Result;
use crate::object::{CONTENT_BYTE, ObjectMap, RegionMap, WRITER_BYTE, hex};

use super::audit::open;
use super::check::CheckOptions;
use super::image::Image;

/// Returns which pages of an object are allocated, stored and in memory, as of its last commit.
///
/// Nothing is mapped at the object's addresses and writers are not blocked, so it can be called
/// repeatedly while the object is in use. Only the writer knows which pages changed since the
/// commit; see [`Session::map`](crate::Session::map).
///
/// Holds a reader's lock on the object for milliseconds, during which a writer postpones applying
/// its log.
///
/// Reads the object's log and the allocator's metadata (1 % of the object), and queries the page
/// cache.
///
/// # Errors
/// `NoStore`, `NotFound`, `Damaged` if the object's file is missing, and the errors of opening an
/// object for reading.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("store");
/// let store = evermap::Store::create_new(&path)?;
/// store.create::<evermap::PVec<u64>, _>("numbers", [7; 1000])?;
/// let map = evermap::tools::map(&path, "numbers")?;
/// assert_eq!((map.totals().blocks, map.classes()[0].block_bytes), (1, 8192));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn map(directory: impl AsRef<Path>, name: &str) -> Result<ObjectMap> {
    let opened = open(directory.as_ref(), name, &CheckOptions::new())?;
    of_image(&opened.image, name)
}

fn of_image(image: &Image, name: &str) -> Result<ObjectMap> {
    let regions: Result<Vec<RegionMap>> = image
        .regions()
        .map(|(number, record)| {
            RegionMap::read(record, number == 0, &mut |address, bytes| image.read(address, bytes))
        })
        .collect();
    let file = image.file();
    let is_held = |byte| file.lock_holder(byte, 1).map(|holder| holder.is_some());
    let mut map = ObjectMap {
        name: name.to_string(),
        uuid: hex(&image.superblock().object_uuid),
        sequence: image.superblock().commit_sequence,
        uncommitted: false,
        file_bytes: file.length()?,
        log_bytes: image.log_bytes,
        written: is_held(WRITER_BYTE)?,
        // A writer that applies its log also holds one of the bytes, for some milliseconds.
        read: Some(is_held(CONTENT_BYTE)? || is_held(locks::CONTENT_BYTE_SECOND)?),
        regions: regions?,
    };
    map.mark_stored_pages(file)?;
    Ok(map)
}
