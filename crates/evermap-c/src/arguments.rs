//! Arguments: from what C gives to what Rust takes, and back through buffers.

use std::ffi::{CStr, OsStr, c_char};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::failure::{Failure, Result};
use crate::types::Growing;

/// A text that must be there.
///
/// # Safety
/// `text` is null or ends with a zero byte, and nobody changes it for `'a`.
pub unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str> {
    // SAFETY: passed on from the caller.
    let bytes = unsafe { bytes(text, what) }?;
    std::str::from_utf8(bytes).map_err(|_| Failure::argument(format!("{what} is not UTF-8")))
}

/// A path that must be there.
///
/// # Safety
/// As [`text`].
pub unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path> {
    // SAFETY: passed on from the caller.
    let bytes = unsafe { bytes(path, "the path") }?;
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// # Safety
/// As [`text`].
unsafe fn bytes<'a>(text: *const c_char, what: &str) -> Result<&'a [u8]> {
    if text.is_null() {
        return Err(Failure::argument(format!("{what} is NULL")));
    }
    // SAFETY: not null, so it is a text, by the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// A place for a result that must be there.
///
/// # Safety
/// `place` is null or may be written.
pub unsafe fn place<'a, T>(place: *mut T) -> Result<&'a mut MaybeUninit<T>> {
    // SAFETY: the caller's promise; what is there is not read.
    unsafe { place.cast::<MaybeUninit<T>>().as_mut() }
        .ok_or_else(|| Failure::argument("the pointer for the result is NULL"))
}

/// A struct that says its own size: a shorter one is filled up with zeros, of a longer one only
/// zeros may lie behind what this library knows.
///
/// # Safety
/// `given` is null or points to as many bytes as its first member says.
pub unsafe fn options<T: Growing>(given: *const T) -> Result<Option<T>> {
    if given.is_null() {
        return Ok(None);
    }
    // SAFETY: every such struct begins with its size.
    let size = unsafe { size_of_result(given.cast()) }?;
    let known = size.min(size_of::<T>());
    // SAFETY: the caller's promise about the size.
    let rest = unsafe { std::slice::from_raw_parts(given.cast::<u8>().add(known), size - known) };
    if rest.iter().any(|&byte| byte != 0) {
        return Err(Failure::argument("the options ask for what this library does not know"));
    }
    let mut copy = MaybeUninit::<T>::zeroed();
    // SAFETY: `known` bytes are in both; every bit pattern is a value (trait).
    unsafe {
        given.cast::<u8>().copy_to_nonoverlapping(copy.as_mut_ptr().cast(), known);
        Ok(Some(copy.assume_init()))
    }
}

/// What a struct says of its own size.
///
/// # Safety
/// `given` is null or points to a struct that begins with its size.
pub unsafe fn size_of_result(given: *const usize) -> Result<usize> {
    // SAFETY: the caller's promise.
    match unsafe { given.as_ref() } {
        None => Err(Failure::argument("the pointer for the result is NULL")),
        // Nobody writes a struct of a page; who forgot to set the size is told so.
        Some(size) if (size_of::<usize>()..=4096).contains(size) => Ok(*size),
        Some(size) => {
            let message = format!("the struct's size is {size}; set it to sizeof of its type");
            Err(Failure::argument(message))
        }
    }
}

/// A struct of the caller's that a result goes to, as far as both sides know it.
pub struct Out<T> {
    place: *mut T,
    bytes: usize,
}

/// Looks at what a struct for a result says of its size, before anything is done.
///
/// # Safety
/// `place` is null or points to as many bytes as its first member says, which may be written until
/// the result is given.
pub unsafe fn out<T: Growing>(place: *mut T) -> Result<Out<T>> {
    // SAFETY: every such struct begins with its size.
    let size = unsafe { size_of_result(place.cast()) }?;
    Ok(Out { place, bytes: size.min(size_of::<T>()) })
}

impl<T: Growing> Out<T> {
    /// Writes the result; its size is how much of it was written.
    pub fn give(self, filled: T) {
        // SAFETY: the caller's struct has `bytes` bytes by the promise to `out`, ours too; both
        // begin with their size.
        unsafe {
            let to = self.place.cast::<u8>();
            to.copy_from_nonoverlapping((&raw const filled).cast::<u8>(), self.bytes);
            self.place.cast::<usize>().write(self.bytes);
        }
    }
}

/// A text in an array, cut to fit.
pub fn array<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (to, from) in array.iter_mut().zip(cut(text, N).bytes()) {
        *to = from as c_char;
    }
    array
}

/// Members that later versions may give a meaning are zero.
pub fn refuse_reserved(reserved: u32) -> Result<()> {
    match reserved {
        0 => Ok(()),
        _ => Err(Failure::argument("`reserved` is not zero; begin with the default options")),
    }
}

/// Writes a text and its zero byte into a buffer that must have room for all of it.
///
/// # Safety
/// `buffer` is null or may be written for `size` bytes.
pub unsafe fn give_text(text: &str, buffer: *mut c_char, size: usize) -> Result<()> {
    if buffer.is_null() || size <= text.len() {
        let needed = text.len() + 1;
        return Err(Failure::argument(format!("the buffer has {size} bytes of {needed} needed")));
    }
    // SAFETY: there is room for the text and the zero byte.
    unsafe {
        buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        buffer.add(text.len()).write(0);
    }
    Ok(())
}

/// As much of a text as fits with a zero byte, cut between characters.
pub fn cut(text: &str, size: usize) -> &str {
    let mut end = text.len().min(size.saturating_sub(1));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
