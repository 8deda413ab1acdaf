//! Functions of `evermap.h` for objects, their roots and their commits.

use std::ffi::{c_char, c_void};
use std::time::{Duration, SystemTime};

use evermap_core::{
    ActiveProtection, Durability, ForeignPointers, InChildren, Protection, RawShared, Reads,
    WhenLogFull, WriteOptions,
};

use crate::abi::arguments::{array, cut, give_text, options, out, place, refuse_reserved, text};
use crate::abi::failure::{self, Failure, Result};
use crate::abi::types::{
    DESCRIPTION_BUFFER_BYTES, DURABILITY_CLOSE, DURABILITY_COMMIT, DURABILITY_INTERVAL,
    FOREIGN_ALLOW, FOREIGN_REFUSE, FOREIGN_REPORT, IN_CHILDREN_PRIVATE, IN_CHILDREN_READ_ONLY,
    PROTECTION_KEYS, PROTECTION_OFF, PROTECTION_PAGES, READ, SHARE, TAG_BYTES,
    WHEN_LOG_FULL_REFUSE, WHEN_LOG_FULL_REPLACE, WRITE, em_mode, em_object, em_object_info,
    em_status, em_store, em_write_options,
};
use crate::runtime::handles::{look, share, take};
use crate::runtime::object::Object;
use crate::runtime::open::{WriterOptions, change, change_shared, close, open, shared};
use crate::runtime::{addresses, fork, handles, stores};

/// # Safety
/// `given` is null or as the header requires.
unsafe fn write_options(given: *const em_write_options) -> Result<Option<WriterOptions>> {
    // SAFETY: the caller guarantees null or a struct as the header requires.
    let Some(given) = (unsafe { options(given) })? else { return Ok(None) };
    let mut made = WriteOptions::new();
    made = made.in_children(match given.in_children {
        IN_CHILDREN_READ_ONLY => InChildren::ReadOnly,
        IN_CHILDREN_PRIVATE => InChildren::Private,
        other => return Err(Failure::argument(format!("{other} is not an em_in_children"))),
    });
    made = made.durability(match (given.durability, given.interval_ms) {
        (DURABILITY_COMMIT, _) => Durability::Commit,
        (DURABILITY_INTERVAL, 0) => {
            return Err(Failure::argument("the interval of EM_DURABILITY_INTERVAL is 0"));
        }
        (DURABILITY_INTERVAL, milliseconds) => {
            Durability::Interval(Duration::from_millis(milliseconds.into()))
        }
        (DURABILITY_CLOSE, _) => Durability::Close,
        (other, _) => return Err(Failure::argument(format!("{other} is not an em_durability"))),
    });
    made = made.when_log_full(match given.when_log_full {
        WHEN_LOG_FULL_REPLACE => WhenLogFull::Replace,
        WHEN_LOG_FULL_REFUSE => WhenLogFull::Refuse,
        other => return Err(Failure::argument(format!("{other} is not an em_when_log_full"))),
    });
    if given.log_bytes_max != 0 {
        made = made.log_bytes_max(given.log_bytes_max);
    }
    if given.hot_bytes_max != 0 {
        made = made.hot_bytes_max(given.hot_bytes_max);
    }
    if given.checkpoint_after_ms != 0 {
        made = made.checkpoint_after(Duration::from_millis(given.checkpoint_after_ms.into()));
    }
    let protection = match given.protection {
        PROTECTION_OFF => Protection::Off,
        PROTECTION_PAGES => Protection::Pages,
        PROTECTION_KEYS => Protection::Keys,
        other => return Err(Failure::argument(format!("{other} is not an em_protection"))),
    };
    refuse_reserved(given.reserved)?;
    made = made.foreign_pointers(match given.foreign_pointers {
        FOREIGN_REPORT => ForeignPointers::Report,
        FOREIGN_REFUSE => ForeignPointers::Refuse,
        FOREIGN_ALLOW => ForeignPointers::Allow,
        other => return Err(Failure::argument(format!("{other} is not an em_foreign_pointers"))),
    });
    let reads = if given.early_read == 0 { Reads::Acknowledged } else { Reads::EarlyRead };
    let write = made.log_full_pages(given.log_full_pages != 0);
    Ok(Some(WriterOptions { write, protection, reads }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_object_create(store: *mut em_store, name: *const c_char) -> em_status {
    failure::status(|| {
        // SAFETY: the caller passes null or a text.
        let name = unsafe { text(name, "the name") }?;
        Ok(stores::find(store)?.create_raw(name)?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_object_create_sized(
    store: *mut em_store,
    name: *const c_char,
    bytes: u64,
) -> em_status {
    failure::status(|| {
        // SAFETY: the caller passes null or a text.
        let name = unsafe { text(name, "the name") }?;
        Ok(stores::find(store)?.create_raw_sized(name, bytes)?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_object_open(
    store: *mut em_store,
    name: *const c_char,
    mode: em_mode,
    options: *const em_write_options,
    object: *mut *mut em_object,
) -> em_status {
    failure::status(|| {
        let store = stores::find(store)?;
        // SAFETY: the caller passes texts and structs as the header requires.
        let (place, name, options) =
            unsafe { (place(object)?, text(name, "the name")?, write_options(options)?) };
        place.write(open(store, name, mode, options.as_ref())?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn em_object_close(object: *mut em_object) -> em_status {
    failure::status(|| match fork::is_child() {
        true => handles::take_in_child(object)?.map_or(Ok(()), |object| object.close()),
        false => close(object),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn em_object_base(object: *mut em_object) -> *mut c_void {
    failure::value(std::ptr::null_mut(), || Ok(look(object)?.base() as *mut c_void))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_patch(
    object: *mut em_object,
    address: *const c_void,
    bytes: *const c_void,
    size: usize,
) -> em_status {
    failure::status(|| {
        let object = share(object)?;
        if size == 0 {
            return Ok(());
        }
        if bytes.is_null() {
            return Err(Failure::argument("the bytes are NULL"));
        }
        // SAFETY: the caller guarantees that many bytes, and that the object's bytes are not read.
        unsafe {
            let bytes = std::slice::from_raw_parts(bytes.cast::<u8>(), size);
            object.patch(address as usize, bytes)
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_object_name(
    object: *mut em_object,
    buffer: *mut c_char,
    size: usize,
) -> em_status {
    // SAFETY: the caller passes a buffer that is writable for its size.
    failure::status(|| unsafe { give_text(look(object)?.name(), buffer, size) })
}

#[unsafe(no_mangle)]
pub extern "C" fn em_object_of(address: *const c_void) -> *mut em_object {
    // An address outside of all objects is not an error here.
    failure::attempt(|| addresses::find(address as u64)).unwrap_or(0) as *mut em_object
}

#[unsafe(no_mangle)]
pub extern "C" fn em_contains(object: *mut em_object, address: *const c_void, size: usize) -> bool {
    failure::value(false, || {
        let (first, regions) = (address as u64, look(object)?.regions());
        let Some(end) = first.checked_add(size as u64) else { return Ok(false) };
        Ok(regions.iter().any(|&(base, bytes)| first >= base && end <= base + bytes))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn em_root(object: *mut em_object) -> *mut c_void {
    failure::value(std::ptr::null_mut(), || Ok(look(object)?.root_address()? as *mut c_void))
}

#[unsafe(no_mangle)]
pub extern "C" fn em_root_size(object: *mut em_object) -> usize {
    failure::value(0, || Ok(look(object)?.root_bytes()? as usize))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_root_tag(object: *mut em_object, tag: *mut u8) -> em_status {
    failure::status(|| {
        // SAFETY: the caller passes null or room for sixteen bytes.
        let place = unsafe { place(tag.cast::<[u8; TAG_BYTES]>()) }?;
        place.write(look(object)?.root()?.tag);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_root_description(
    object: *mut em_object,
    buffer: *mut c_char,
    size: usize,
) -> em_status {
    failure::status(|| {
        let description = look(object)?.root()?.description;
        // SAFETY: the caller passes a buffer that is writable for its size.
        unsafe { give_text(cut(&description, size), buffer, size) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_set_root(
    object: *mut em_object,
    root: *mut c_void,
    size: usize,
    tag: *const u8,
    description: *const c_char,
) -> em_status {
    failure::status(|| {
        let tag = match tag.is_null() {
            true => [0; TAG_BYTES],
            // SAFETY: not null, so the caller guarantees sixteen bytes.
            false => unsafe { tag.cast::<[u8; TAG_BYTES]>().read() },
        };
        let description = match description.is_null() {
            true => "",
            // SAFETY: not null, so the caller guarantees a text.
            false => unsafe { text(description, "the description") }?,
        };
        // SAFETY: a caller that gives the tag of a Rust type has a value of that type there, as the
        // header requires.
        unsafe { share(object)?.set_root(root as usize, size as u64, tag, description) }
    })
}

/// Writes an optional result.
///
/// # Safety
/// `place` is null or writable.
unsafe fn give<T>(value: T, place: *mut T) {
    if !place.is_null() {
        // SAFETY: the caller guarantees a writable place.
        unsafe { place.write(value) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_commit(object: *mut em_object, changed: *mut bool) -> em_status {
    failure::status(|| {
        let committed = match shared(object)? {
            Some(shared) => change_shared(object, &shared, RawShared::commit)?,
            None => take(object)?.object()?.commit()?,
        };
        // SAFETY: the caller passes null or a writable place.
        unsafe { give(committed, changed) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn em_rollback(object: *mut em_object) -> em_status {
    failure::status(|| match shared(object)? {
        Some(shared) => change_shared(object, &shared, RawShared::rollback),
        None => change(object, Object::rollback),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn em_reserve(object: *mut em_object, bytes: u64) -> em_status {
    failure::status(|| match shared(object)? {
        Some(shared) => change_shared(object, &shared, |shared| shared.reserve(bytes)),
        None => change(object, |object| object.reserve(bytes)),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_release(
    object: *mut em_object,
    bytes_max: u64,
    bytes: *mut u64,
) -> em_status {
    failure::status(|| {
        let given_back = match shared(object)? {
            Some(shared) => change_shared(object, &shared, |shared| shared.release(bytes_max))?,
            None => change(object, |object| object.release(bytes_max))?,
        };
        // SAFETY: the caller passes null or a writable place.
        unsafe { give(given_back, bytes) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_shrink(object: *mut em_object, bytes: *mut u64) -> em_status {
    failure::status(|| {
        let given_back = match shared(object)? {
            Some(shared) => change_shared(object, &shared, RawShared::shrink)?,
            None => change(object, Object::shrink)?,
        };
        // SAFETY: the caller passes null or a writable place.
        unsafe { give(given_back, bytes) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_checkpoint(object: *mut em_object, done: *mut bool) -> em_status {
    failure::status(|| {
        let written = match shared(object)? {
            Some(shared) => shared.checkpoint()?,
            None => take(object)?.object()?.checkpoint()?,
        };
        // SAFETY: the caller passes null or a writable place.
        unsafe { give(written, done) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn em_sync(object: *mut em_object) -> em_status {
    failure::status(|| match shared(object)? {
        Some(shared) => Ok(shared.sync()?),
        None => take(object)?.object()?.sync(),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_refresh(object: *mut em_object, changed: *mut bool) -> em_status {
    failure::status(|| {
        let mut exclusive = take(object)?;
        let refreshed = exclusive.object()?.refresh();
        let regions = exclusive.object()?.regions();
        if regions.is_empty() {
            // The newer commit could not be opened, and the older one was closed.
            addresses::remove(exclusive.number());
            drop(exclusive.close()?);
        } else if !matches!(refreshed, Ok(false)) {
            addresses::change(exclusive.number(), &regions);
        }
        let refreshed = refreshed?;
        // SAFETY: the caller passes null or a writable place.
        unsafe { give(refreshed, changed) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn em_sequence(object: *mut em_object) -> u64 {
    failure::value(0, || Ok(look(object)?.sequence()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_verified(object: *mut em_object, done: *mut bool) -> em_status {
    failure::status(|| {
        // SAFETY: the caller passes null or a writable place.
        let place = unsafe { place(done) }?;
        place.write(share(object)?.verified()?);
        Ok(())
    })
}

fn info_of(object: &Object) -> Result<em_object_info> {
    let info = object.info()?;
    let created = info.created.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let root = object.root()?;
    Ok(em_object_info {
        size: size_of::<em_object_info>(),
        created_ns: created.as_nanos() as u64,
        file_bytes: info.file_bytes,
        base_address: info.base_address,
        sequence: object.sequence(),
        root_bytes: root.bytes,
        regions: info.heap.regions,
        capacity_bytes: info.heap.capacity_bytes,
        backed_bytes: info.heap.backed_bytes,
        blocks: info.heap.blocks,
        allocated_bytes: info.heap.allocated_bytes,
        large_blocks: info.heap.large_blocks,
        large_bytes: info.heap.large_bytes,
        mode: match (object.as_shared(), object.is_writing()) {
            (Some(_), _) => SHARE,
            (None, true) => WRITE,
            (None, false) => READ,
        },
        protection: match object.active() {
            ActiveProtection::Nothing => PROTECTION_OFF,
            ActiveProtection::Pages => PROTECTION_PAGES,
            ActiveProtection::Keys => PROTECTION_KEYS,
        },
        root_tag: root.tag,
        uuid: array(&info.uuid),
        name: array(object.name()),
        root_description: array(cut(&root.description, DESCRIPTION_BUFFER_BYTES)),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_info(object: *mut em_object, info: *mut em_object_info) -> em_status {
    failure::status(|| {
        // SAFETY: the caller passes null or a struct that begins with its size.
        let out = unsafe { out(info) }?;
        let object = look(object)?;
        if object.is_writing() {
            // Only the process of a session updates its counts.
            fork::check()?;
        }
        out.give(info_of(&object)?);
        Ok(())
    })
}
