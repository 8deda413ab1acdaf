//! Store functions of `evermap.h`.

use std::ffi::{CString, c_char, c_void};
use std::path::Path;
use std::time::Duration;

use evermap_core::{ApplicationKey, Options, Store, Verify, Window};

use crate::abi::arguments::{give_text, options, path, place, text};
use crate::abi::failure::{self, Failure, Result};
use crate::abi::status;
use crate::abi::types::{
    OTHER_BUILDS_OPEN, OTHER_BUILDS_REFUSE, TAG_BYTES, VERIFY_BACKGROUND, VERIFY_FULL,
    VERIFY_SUPERBLOCK, em_name_callback, em_status, em_store, em_store_options,
};
use crate::runtime::reserve;
use crate::runtime::start::prepare;
use crate::runtime::stores::{find, insert, remove};

/// Options for opening or creating a store, and the application's key.
type Choices = (Options, Option<ApplicationKey>);

/// # Safety
/// `given` and its texts are null or as the header requires.
unsafe fn choices(given: *const em_store_options) -> Result<Choices> {
    // SAFETY: the caller guarantees null or a struct as the header requires.
    let Some(given) = (unsafe { options(given) })? else { return Ok(Choices::default()) };
    let mut made = Options::new();
    made = made.other_builds(match given.other_builds {
        OTHER_BUILDS_REFUSE => false,
        OTHER_BUILDS_OPEN => true,
        other => return Err(Failure::argument(format!("{other} is not an em_other_builds"))),
    });
    if given.arena_bytes != 0 {
        made = made.arena_bytes(given.arena_bytes);
    }
    if given.window_base != 0 || given.window_end != 0 {
        made = made.window(Window::new(given.window_base, given.window_end)?);
    }
    made = made.busy_timeout(Duration::from_millis(given.busy_timeout_ms.into()));
    if given.catalog_timeout_ms != 0 {
        made = made.catalog_timeout(Duration::from_millis(given.catalog_timeout_ms.into()));
    }
    made = made.verify(match given.verify {
        VERIFY_SUPERBLOCK => Verify::Superblock,
        VERIFY_BACKGROUND => Verify::Background,
        VERIFY_FULL => Verify::Full,
        other => return Err(Failure::argument(format!("{other} is not an em_verify"))),
    });
    if !given.arena_registry.is_null() {
        // SAFETY: not null, so the caller guarantees a text.
        let file = unsafe { path(given.arena_registry) }?;
        made = made.arena_registry((!file.as_os_str().is_empty()).then(|| file.to_path_buf()));
    }
    let key = match (given.application.is_null(), given.application_key.is_null()) {
        (true, true) => None,
        (false, true) => {
            // SAFETY: not null, so the caller guarantees a text.
            let name = unsafe { text(given.application, "the application") }?;
            Some(ApplicationKey::named(name))
        }
        (true, false) => {
            // SAFETY: not null, so the caller guarantees sixteen bytes.
            let bytes = unsafe { given.application_key.cast::<[u8; TAG_BYTES]>().read() };
            let key = ApplicationKey::from_bytes(bytes);
            Some(key.ok_or_else(|| Failure::argument("an application key must not be all zero"))?)
        }
        (false, false) => {
            return Err(Failure::argument("give the application's name or its key, not both"));
        }
    };
    Ok((made, key))
}

/// # Safety
/// The pointers are as the header requires.
unsafe fn open_by(
    at: *const c_char,
    given: *const em_store_options,
    store: *mut *mut em_store,
    open: impl FnOnce(&Options, &Path) -> evermap_core::Result<Store>,
) -> em_status {
    failure::status(|| {
        prepare()?;
        // SAFETY: the caller guarantees pointers as the header requires.
        let (place, at, (options, key)) = unsafe { (place(store)?, path(at)?, choices(given)?) };
        let opened = open(&options, at)?;
        let opened = key.map_or(opened.clone(), |key| opened.for_application(key));
        place.write(insert(opened)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_store_open(
    path: *const c_char,
    options: *const em_store_options,
    store: *mut *mut em_store,
) -> em_status {
    // SAFETY: the caller passes pointers as the header requires.
    unsafe { open_by(path, options, store, |options, path| options.open(path)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_store_create(
    path: *const c_char,
    options: *const em_store_options,
    store: *mut *mut em_store,
) -> em_status {
    // SAFETY: the caller passes pointers as the header requires.
    unsafe { open_by(path, options, store, |options, path| options.create_new(path)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_store_open_or_create(
    path: *const c_char,
    options: *const em_store_options,
    store: *mut *mut em_store,
) -> em_status {
    // SAFETY: the caller passes pointers as the header requires.
    unsafe { open_by(path, options, store, |options, path| options.open_or_create(path)) }
}

#[unsafe(no_mangle)]
pub extern "C" fn em_store_close(store: *mut em_store) -> em_status {
    failure::status(|| remove(store))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_store_reserve(at: *const c_char) -> em_status {
    failure::status(|| {
        prepare()?;
        // SAFETY: the caller passes null or a text.
        reserve::reserve(unsafe { path(at) }?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_store_list(
    store: *mut em_store,
    callback: em_name_callback,
    context: *mut c_void,
) -> em_status {
    failure::status(|| {
        let call = callback.ok_or_else(|| Failure::argument("the callback is NULL"))?;
        for name in find(store)?.list()? {
            // Names have no control characters.
            let name = CString::new(name).unwrap_or_default();
            // SAFETY: the caller's function, called with the arguments that the header documents.
            if !unsafe { call(name.as_ptr(), context) } {
                break;
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_store_contains(
    store: *mut em_store,
    name: *const c_char,
    contains: *mut bool,
) -> em_status {
    failure::status(|| {
        // SAFETY: the caller passes null or a text, and null or a writable place.
        let (place, name) = unsafe { (place(contains)?, text(name, "the name")?) };
        place.write(find(store)?.contains(name)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_store_remove(store: *mut em_store, name: *const c_char) -> em_status {
    failure::status(|| {
        // SAFETY: the caller passes null or a text.
        let name = unsafe { text(name, "the name") }?;
        Ok(find(store)?.remove(name)?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_store_rename(
    store: *mut em_store,
    from: *const c_char,
    to: *const c_char,
) -> em_status {
    failure::status(|| {
        // SAFETY: the caller passes null or texts.
        let (from, to) = unsafe { (text(from, "the old name")?, text(to, "the new name")?) };
        Ok(find(store)?.rename(from, to)?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_store_object_at(
    store: *mut em_store,
    address: *const c_void,
    buffer: *mut c_char,
    size: usize,
) -> em_status {
    failure::status(|| {
        let name = find(store)?.object_at(address as usize)?.ok_or_else(|| {
            let message = format!("no object of the store has {address:p}");
            Failure::new(status::NOT_FOUND, message)
        })?;
        // SAFETY: the caller passes a buffer that is writable for its size.
        unsafe { give_text(&name, buffer, size) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn em_application_key(name: *const c_char, key: *mut u8) -> em_status {
    failure::status(|| {
        // SAFETY: the caller passes null or a text, and null or room for sixteen bytes.
        let (name, place) =
            unsafe { (text(name, "the name")?, place(key.cast::<[u8; TAG_BYTES]>())?) };
        place.write(ApplicationKey::named(name).bytes());
        Ok(())
    })
}
