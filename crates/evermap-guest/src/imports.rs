//! The five functions that the host gives, and their errors made ours.

use evermap::__guest::RegionRecord;

use crate::error::{Code, Error, Result};
use crate::stat::ObjectStat;

/// How an object is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Level {
    /// The last commit; what is stored there is forgotten.
    Snapshot = 1,
    /// The object, to be committed.
    Write = 3,
}

/// Bytes of the host's words that are read.
const FAULT_BYTES_MAX: usize = 1024;

#[link(wasm_import_module = "evermap")]
unsafe extern "C" {
    fn map(name: *const u8, name_bytes: usize, bytes: u32, level: u32) -> i32;
    fn unmap(address: u32) -> i32;
    fn commit(address: u32) -> i32;
    fn stat(address: u32, out: *mut ObjectStat, out_bytes: usize) -> i32;
    fn last_fault(out: *mut u8, out_bytes: usize) -> i32;
}

/// Maps an object with at least so many bytes for data, or sees to it that a mapped one has them;
/// the address of its superblock.
pub(crate) fn map_object(name: &str, bytes: u32, level: Level) -> Result<u32> {
    // SAFETY: the name is a slice of our own memory.
    let address = unsafe { map(name.as_ptr(), name.len(), bytes, level as u32) };
    check(address, name)
}

/// # Safety
/// Nothing refers to the object's memory any more.
pub(crate) unsafe fn unmap_object(address: u32, name: &str) -> Result<()> {
    // SAFETY: the caller's promise.
    check(unsafe { unmap(address) }, name).map(drop)
}

/// False when nothing had changed.
pub(crate) fn commit_object(address: u32, name: &str) -> Result<bool> {
    // SAFETY: the host reads the object; of its memory it changes page 0 alone.
    check(unsafe { commit(address) }, name).map(|changed| changed != 0)
}

/// The regions of a mapped object.
pub(crate) fn regions_of(address: u32, name: &str) -> Result<Vec<RegionRecord>> {
    let mut known = ObjectStat::empty();
    // SAFETY: the host writes at most so many bytes there, and any bytes are an `ObjectStat`.
    let bytes = unsafe { stat(address, &raw mut known, size_of::<ObjectStat>()) };
    let bytes = check(bytes, name)?;
    known.regions(bytes as usize, name)
}

/// What a function gave: a number, or the host's error.
fn check(result: i32, name: &str) -> Result<u32> {
    // Addresses of objects lie in the lower half of memory.
    u32::try_from(result).map_err(|_| fault(result.unsigned_abs(), name))
}

/// The error of this code, in the host's words if it still has them.
fn fault(code: u32, name: &str) -> Error {
    let mut words = [0; FAULT_BYTES_MAX];
    // SAFETY: the host writes at most so many bytes there.
    let bytes = unsafe { last_fault(words.as_mut_ptr(), words.len()) };
    let filled = usize::try_from(bytes).unwrap_or(0).min(words.len());
    let said = words[..filled].split_at_checked(4);
    let message = match said {
        Some((said_code, text)) if said_code == code.to_le_bytes() => {
            String::from_utf8_lossy(text).into_owned()
        }
        // The host has words for each code; these are for one that keeps them to itself.
        _ => format!(
            "the host refused with code {code} ({:?}) and gave no words",
            Code::of_number(code)
        ),
    };
    Error::new(Code::of_number(code), name, message)
}
