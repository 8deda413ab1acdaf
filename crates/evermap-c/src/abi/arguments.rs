//! Converts arguments from C to Rust, and writes results back into buffers.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::abi::failure::{Failure, Result};
use crate::abi::types::Growing;

/// Returns a required text.
///
/// # Safety
/// `text` is null or ends with a zero byte, and it does not change during `'a`.
pub unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str> {
    // SAFETY: the caller guarantees null or an unchanging text.
    let bytes = unsafe { bytes(text, what) }?;
    std::str::from_utf8(bytes).map_err(|_| Failure::argument(format!("{what} is not UTF-8")))
}

/// Returns a required path.
///
/// # Safety
/// `path` is null or ends with a zero byte, and it does not change during `'a`.
pub unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path> {
    // SAFETY: the caller guarantees null or an unchanging text.
    let bytes = unsafe { bytes(path, "the path") }?;
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// # Safety
/// `text` is null or ends with a zero byte, and it does not change during `'a`.
unsafe fn bytes<'a>(text: *const c_char, what: &str) -> Result<&'a [u8]> {
    if text.is_null() {
        return Err(Failure::argument(format!("{what} is NULL")));
    }
    // SAFETY: not null, so the caller guarantees a text.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Returns a required place for a result.
///
/// # Safety
/// `place` is null or writable.
pub unsafe fn place<'a, T>(place: *mut T) -> Result<&'a mut MaybeUninit<T>> {
    // SAFETY: the caller guarantees null or a writable place; its old contents are not read.
    unsafe { place.cast::<MaybeUninit<T>>().as_mut() }
        .ok_or_else(|| Failure::argument("the pointer for the result is NULL"))
}

/// Reads a struct that begins with its own size. A shorter struct is padded with zeros. In a longer
/// one, the bytes that this library does not know must be zero.
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
    // SAFETY: the caller guarantees that many bytes.
    let rest = unsafe { std::slice::from_raw_parts(given.cast::<u8>().add(known), size - known) };
    if rest.iter().any(|&byte| byte != 0) {
        return Err(Failure::argument("the options set a member that this library does not know"));
    }
    let mut copy = MaybeUninit::<T>::zeroed();
    // SAFETY: both structs have `known` bytes, and every bit pattern is a valid value (see the
    // trait).
    unsafe {
        given.cast::<u8>().copy_to_nonoverlapping(copy.as_mut_ptr().cast(), known);
        Ok(Some(copy.assume_init()))
    }
}

/// Returns the size that a struct contains.
///
/// # Safety
/// `given` is null or points to a struct that begins with its size.
pub unsafe fn size_of_result(given: *const usize) -> Result<usize> {
    // SAFETY: the caller guarantees null or a struct that begins with its size.
    match unsafe { given.as_ref() } {
        None => Err(Failure::argument("the pointer for the result is NULL")),
        // No caller passes a struct larger than a page: the size field was probably not set.
        Some(size) if (size_of::<usize>()..=4096).contains(size) => Ok(*size),
        Some(size) => {
            let message = format!("the struct's size is {size}; set it to sizeof of its type");
            Err(Failure::argument(message))
        }
    }
}

/// A caller's struct for a result, filled as far as both sides know it.
pub struct Out<T> {
    place: *mut T,
    bytes: usize,
}

/// Checks the size in a struct for a result, before the call does anything.
///
/// # Safety
/// `place` is null or points to as many bytes as its first member says, writable until the result
/// is written.
pub unsafe fn out<T: Growing>(place: *mut T) -> Result<Out<T>> {
    // SAFETY: every such struct begins with its size.
    let size = unsafe { size_of_result(place.cast()) }?;
    Ok(Out { place, bytes: size.min(size_of::<T>()) })
}

impl<T: Growing> Out<T> {
    /// Writes the result. Its size member is set to the number of bytes written.
    pub fn give(self, filled: T) {
        // SAFETY: the caller of `out` guaranteed `bytes` writable bytes, and this library's struct
        // has as many; both begin with their size.
        unsafe {
            let to = self.place.cast::<u8>();
            to.copy_from_nonoverlapping((&raw const filled).cast::<u8>(), self.bytes);
            self.place.cast::<usize>().write(self.bytes);
        }
    }
}

/// Converts a text for C. A zero byte becomes `\0`.
pub fn owned(text: &str) -> CString {
    CString::new(text.replace('\0', "\\0")).unwrap_or_default()
}

/// Returns a text in an array, truncated to fit.
pub fn array<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (to, from) in array.iter_mut().zip(cut(text, N).bytes()) {
        *to = from as c_char;
    }
    array
}

/// Checks that a member reserved for later versions is zero.
pub fn refuse_reserved(reserved: u32) -> Result<()> {
    match reserved {
        0 => Ok(()),
        _ => Err(Failure::argument("`reserved` is not zero; begin with the default options")),
    }
}

/// Writes a text and its zero byte into a buffer that must have room for both.
///
/// # Safety
/// `buffer` is null or writable for `size` bytes.
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

/// Truncates a text so that it fits with a zero byte, at a character boundary.
pub fn cut(text: &str, size: usize) -> &str {
    let mut end = text.len().min(size.saturating_sub(1));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
