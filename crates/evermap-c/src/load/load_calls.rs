//! Loading functions of `evermap_load.h`; its image functions are in [`crate::load::image_calls`].

use std::ffi::{c_char, c_void};

use evermap_load::{Image, ImageSet, Loader};

use crate::abi::arguments::{out, path, place};
use crate::abi::failure::{self, Failure, Result};
use crate::abi::status;
use crate::abi::types::em_status;
use crate::load::options::loader;
use crate::load::types::*;
use crate::load::{images, report};
use crate::runtime::{fork, start};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn evermap_load(
    file: *const c_char,
    given: *const em_load_options,
    image: *mut *mut evermap_image,
) -> em_status {
    failure::status(|| {
        fork::check()?;
        start::watch();
        // SAFETY: the caller passes null or a text, and null or a writable place.
        let (file, image) = unsafe { (path(file)?, place(image)?) };
        // SAFETY: the caller passes options as the header requires.
        let loaded = unsafe { loader(file, given) }?.load()?;
        image.write(images::insert(loaded)?);
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
        // SAFETY: the caller passes null or a text.
        let file = unsafe { path(file) }?;
        // SAFETY: the caller passes null or a struct that begins with its size.
        let place = if facts.is_null() { None } else { Some(unsafe { out(facts) }?) };
        // SAFETY: the caller passes options as the header requires.
        let (found, choices) = unsafe { loader(file, given) }?.probe()?;
        report::tell(&choices, callback, context);
        if let Some(place) = place {
            place.give(report::facts(&found));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn evermap_load_all(
    files: *const em_load_file,
    count: usize,
    images: *mut *mut evermap_image,
    statuses: *mut em_status,
) -> em_status {
    failure::status(|| {
        fork::check()?;
        start::watch();
        if count == 0 {
            return Ok(());
        }
        if files.is_null() || images.is_null() {
            return Err(Failure::argument("the list of files or of images is NULL"));
        }
        // SAFETY: not null, so the caller guarantees `count` files.
        let loaders = unsafe { loaders(files, count) }?;
        let loaded = ImageSet::load_each(loaders);
        let opened: Vec<_> = loaded.into_iter().map(open).collect();
        if statuses.is_null() && opened.iter().any(Result::is_err) {
            return Err(close_all(opened));
        }
        let mut first = None;
        for (number, outcome) in opened.into_iter().enumerate() {
            let (image, status) = match outcome {
                Ok(image) => (image, status::OK),
                Err(failure) => {
                    let status = failure.status;
                    first.get_or_insert(failure);
                    (std::ptr::null_mut(), status)
                }
            };
            // SAFETY: the caller guarantees that the lists have room for `count` entries.
            unsafe {
                images.add(number).write(image);
                if !statuses.is_null() {
                    statuses.add(number).write(status);
                }
            }
        }
        first.map_or(Ok(()), Err)
    })
}

/// # Safety
/// `files` points to `count` files as the header requires.
unsafe fn loaders(files: *const em_load_file, count: usize) -> Result<Vec<Loader>> {
    let loader_of = |number| {
        // SAFETY: the caller guarantees `count` files as the header requires.
        unsafe {
            let file = files.add(number).read();
            loader(path(file.path)?, file.options)
        }
    };
    (0..count).map(loader_of).collect()
}

fn open(loaded: evermap_load::Result<Image>) -> Result<*mut evermap_image> {
    images::insert(loaded?)
}

/// Closes the loaded images and returns the first failure.
fn close_all(opened: Vec<Result<*mut evermap_image>>) -> Failure {
    let mut first = None;
    for outcome in opened {
        match outcome {
            // No caller has the handle yet, so no thread uses the image.
            Ok(image) => drop(images::remove(image)),
            Err(failure) => {
                first.get_or_insert(failure);
            }
        }
    }
    first.unwrap_or_else(|| Failure::new(status::INTERNAL, "no load failed"))
}
