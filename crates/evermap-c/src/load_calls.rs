//! What `evermap_load.h` says of loading; what it says of images is in [`crate::image_calls`].

use std::ffi::{c_char, c_void};

use crate::arguments::{out, path, place};
use crate::failure;
use crate::fork;
use crate::load::types::*;
use crate::load::wishes::loader;
use crate::load::{images, report};
use crate::types::em_status;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn evermap_load(
    file: *const c_char,
    given: *const em_load_options,
    image: *mut *mut evermap_image,
) -> em_status {
    failure::status(|| {
        fork::check()?;
        fork::watch();
        // SAFETY: passed on from the caller.
        let (file, image) = unsafe { (path(file)?, place(image)?) };
        // SAFETY: as above.
        let loaded = unsafe { loader(file, given) }?.load()?;
        image.write(images::insert(file, loaded)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn evermap_load_probe(
    file: *const c_char,
    given: *const em_load_options,
    facts: *mut em_load_facts,
    callback: em_load_choice_callback,
    context: *mut c_void,
) -> em_status {
    failure::status(|| {
        fork::check()?;
        // SAFETY: passed on from the caller.
        let file = unsafe { path(file) }?;
        // SAFETY: as above.
        let place = if facts.is_null() { None } else { Some(unsafe { out(facts) }?) };
        // SAFETY: as above.
        let (found, choices) = unsafe { loader(file, given) }?.probe()?;
        report::tell(&choices, callback, context);
        if let Some(place) = place {
            place.give(report::facts(&found));
        }
        Ok(())
    })
}
