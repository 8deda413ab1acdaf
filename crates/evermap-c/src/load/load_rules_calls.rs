//! Rules functions of `evermap_load.h`.

use std::ffi::c_char;

use evermap_load::Rules;

use crate::abi::arguments::{path, place, text};
use crate::abi::failure::{self, Result};
use crate::abi::types::em_status;
use crate::load::rules;
use crate::load::types::evermap_rules;
use crate::runtime::{fork, start};

/// # Safety
/// `place` is null or writable.
unsafe fn open(
    place_of_handle: *mut *mut evermap_rules,
    read: impl FnOnce() -> Result<Rules>,
) -> em_status {
    failure::status(|| {
        fork::check()?;
        start::watch();
        // SAFETY: the caller guarantees null or a writable place.
        let handle = unsafe { place(place_of_handle) }?;
        handle.write(rules::insert(read()?)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn evermap_rules_read(
    file: *const c_char,
    rules: *mut *mut evermap_rules,
) -> em_status {
    // SAFETY: the caller passes null or a text, and null or a writable place.
    unsafe { open(rules, || Ok(Rules::read(path(file)?)?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn evermap_rules_parse(
    said: *const c_char,
    rules: *mut *mut evermap_rules,
) -> em_status {
    // SAFETY: the caller passes null or a text, and null or a writable place.
    unsafe { open(rules, || Ok(Rules::parse(text(said, "the text of the rules")?)?)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn evermap_rules_match(
    given: *const evermap_rules,
    file: *const c_char,
    matches: *mut bool,
) -> em_status {
    failure::status(|| {
        let rules = rules::find(given)?;
        // SAFETY: the caller passes null or a text, and null or a writable place.
        let (file, matches) = unsafe { (path(file)?, place(matches)?) };
        matches.write(rules.find(file).is_some());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn evermap_rules_close(given: *mut evermap_rules) -> em_status {
    failure::status(|| rules::remove(given))
}
