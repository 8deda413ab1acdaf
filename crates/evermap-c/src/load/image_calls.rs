//! Image functions of `evermap_load.h`.

use std::ffi::{c_char, c_void};
use std::ptr;

use evermap_load::Image;

use crate::abi::arguments::{cut, give_text, out, path, place};
use crate::abi::failure::{self, Failure, Result};
use crate::abi::types::em_status;
use crate::load::options::advice;
use crate::load::types::*;
use crate::load::{images, report};

#[unsafe(no_mangle)]
pub extern "C" fn evermap_image_address(image: *const evermap_image) -> *const c_void {
    failure::value(ptr::null(), || Ok(images::find(image)?.address() as *const c_void))
}

#[unsafe(no_mangle)]
pub extern "C" fn evermap_image_writable_address(image: *mut evermap_image) -> *mut c_void {
    failure::value(ptr::null_mut(), || Ok(images::find(image)?.writable()? as *mut c_void))
}

#[unsafe(no_mangle)]
pub extern "C" fn evermap_image_length(image: *const evermap_image) -> usize {
    failure::value(0, || Ok(images::find(image)?.length()))
}

#[unsafe(no_mangle)]
pub extern "C" fn evermap_image_ensure(
    image: *const evermap_image,
    begin: usize,
    length: usize,
) -> em_status {
    failure::status(|| {
        let held = images::find(image)?;
        let range = held.range(begin, length)?;
        held.shared(|image| Ok(image.ensure(range)?))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn evermap_image_want(
    image: *const evermap_image,
    begin: usize,
    length: usize,
) -> em_status {
    failure::status(|| {
        let held = images::find(image)?;
        let range = held.range(begin, length)?;
        held.shared(|image| {
            image.want(range);
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn evermap_image_wait(image: *const evermap_image) -> em_status {
    failure::status(|| images::find(image)?.shared(|image| Ok(image.wait()?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn evermap_image_advise(
    image: *mut evermap_image,
    begin: usize,
    length: usize,
    given: em_advice,
) -> em_status {
    failure::status(|| {
        let held = images::find(image)?;
        let (range, advice) = (held.range(begin, length)?, advice(given)?);
        held.exclusive(|image| Ok(image.advise(range, advice)?))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn evermap_image_check(image: *const evermap_image) -> em_status {
    failure::status(|| images::find(image)?.shared(|image| Ok(image.check()?)))
}

/// Reads an image into the place that `place` returns.
fn read<P>(
    image: *const evermap_image,
    place: impl FnOnce() -> Result<P>,
    read: impl FnOnce(&Image, P),
) -> em_status {
    failure::status(|| {
        let held = images::find(image)?;
        let place = place()?;
        held.shared(|image| {
            read(image, place);
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn evermap_image_serves_system_calls(
    image: *const evermap_image,
    serves: *mut bool,
) -> em_status {
    // SAFETY: the caller passes null or a writable place.
    let place = || unsafe { place(serves) };
    read(image, place, |image, place| {
        place.write(image.serves_system_calls());
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn evermap_image_progress(
    image: *const evermap_image,
    loaded_bytes: *mut u64,
    total_bytes: *mut u64,
) -> em_status {
    // SAFETY: the caller passes null or writable places.
    let places = || unsafe { Ok((place(loaded_bytes)?, place(total_bytes)?)) };
    read(image, places, |image, (loaded_bytes, total_bytes)| {
        let progress = image.progress();
        loaded_bytes.write(progress.loaded_bytes);
        total_bytes.write(progress.total_bytes);
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn evermap_image_residency(
    image: *const evermap_image,
    residency: *mut em_residency,
) -> em_status {
    // SAFETY: the caller passes null or a struct that begins with its size.
    let place = || unsafe { out(residency) };
    read(image, place, |image, place| place.give(report::residency(&image.residency())))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn evermap_image_report(
    image: *const evermap_image,
    given: *mut em_load_report,
) -> em_status {
    // SAFETY: the caller passes null or a struct that begins with its size.
    let place = || unsafe { out(given) };
    read(image, place, |image, place| place.give(report::report(&image.report())))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn evermap_image_why(
    image: *const evermap_image,
    buffer: *mut c_char,
    size: usize,
) -> usize {
    failure::value(0, || {
        let why = images::find(image)?.shared(|image| Ok(image.why().replace('\0', "\\0")))?;
        match (buffer.is_null(), size) {
            (_, 0) => {}
            (true, _) => return Err(Failure::argument("the buffer is NULL and its size is not 0")),
            // SAFETY: the caller passes a buffer that is writable for `size` bytes.
            (false, _) => unsafe { give_text(cut(&why, size), buffer, size) }?,
        }
        Ok(why.len())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn evermap_image_recording(
    image: *const evermap_image,
    file: *const c_char,
    given: *mut em_recording,
) -> em_status {
    failure::status(|| {
        let held = images::find(image)?;
        // SAFETY: not null, so the caller passes a text.
        let file = if file.is_null() { None } else { Some(unsafe { path(file) }?) };
        // SAFETY: not null, so the caller passes a struct that begins with its size.
        let place = if given.is_null() { None } else { Some(unsafe { out(given) }?) };
        held.shared(|image| {
            let recording = image.recording().ok_or_else(|| {
                let why = image.why();
                Failure::argument(format!(
                    "the image is not recorded; load it with `record` ({why})"
                ))
            })?;
            if let Some(file) = file {
                recording.save(file)?;
            }
            if let Some(place) = place {
                place.give(report::recording(&recording));
            }
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn evermap_image_close(image: *mut evermap_image) -> em_status {
    failure::status(|| images::remove(image))
}
