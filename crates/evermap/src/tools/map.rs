//! What lies where in an object of a store that is not open here: its last commit, from its files.

use std::path::Path;

use crate::commit::locks;
use crate::error::Result;
use crate::object::{CONTENT_BYTE, ObjectMap, RegionMap, WRITER_BYTE, hex};

use super::audit::open;
use super::check::CheckOptions;
use super::image::Image;

/// What lies where in an object, as of its last commit: allocated blocks, what is stored, what is in
/// memory. Nothing is mapped at the object's addresses and nobody is kept from writing, so it can be
/// called again and again while the object is in use; only its writer knows which pages changed since
/// the commit, see [`Session::map`](crate::Session::map).
///
/// The object is locked as by a reader meanwhile, for milliseconds: a writer's apply waits for
/// another time.
///
/// Costs a read of the object's log and of the allocator's metadata (1 % of the object), and a look at
/// the page cache.
///
/// # Errors
/// `NoStore`, `NotFound`; `Damaged` when its file is gone; what opening an object for reading returns.
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
        // A writer that applies holds a byte as well, for some milliseconds.
        read: Some(is_held(CONTENT_BYTE)? || is_held(locks::CONTENT_BYTE_SECOND)?),
        regions: regions?,
    };
    map.mark_stored_pages(file)?;
    Ok(map)
}
