//! The five functions that the host provides, and their errors.

use evermap_heap::format::RegionRecord;

use crate::error::{Code, Error, Result};
use crate::stat::ObjectStat;

/// Level at which an object is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Level {
    /// The last commit; stores are discarded.
    Snapshot = 1,
    /// The object, for commits.
    Write = 3,
}

/// Maximum length of the host's error message.
const FAULT_BYTES_MAX: usize = 1024;

#[link(wasm_import_module = "evermap")]
unsafe extern "C" {
    fn map(name: *const u8, name_bytes: usize, bytes: u32, level: u32) -> i32;
    fn unmap(address: u32) -> i32;
    fn commit(address: u32) -> i32;
    fn stat(address: u32, out: *mut ObjectStat, out_bytes: usize) -> i32;
    fn last_fault(out: *mut u8, out_bytes: usize) -> i32;
}

/// Maps an object with at least `bytes` bytes for data, or grows a mapped one to that size. Returns
/// the address of its superblock.
pub(crate) fn map_object(name: &str, bytes: u32, level: Level) -> Result<u32> {
    // SAFETY: the name is a valid slice of this guest's memory.
    let address = unsafe { map(name.as_ptr(), name.len(), bytes, level as u32) };
    check(address, name)
}

/// # Safety
/// Nothing refers to the object's memory.
pub(crate) unsafe fn unmap_object(address: u32, name: &str) -> Result<()> {
    // SAFETY: the caller keeps no references into the object's memory.
    check(unsafe { unmap(address) }, name).map(drop)
}

/// Commits an object. Returns false if nothing had changed.
pub(crate) fn commit_object(address: u32, name: &str) -> Result<bool> {
    // SAFETY: the host reads the object and writes only to its page 0.
    check(unsafe { commit(address) }, name).map(|changed| changed != 0)
}

/// Returns the regions of a mapped object.
pub(crate) fn regions_of(address: u32, name: &str) -> Result<Vec<RegionRecord>> {
    let mut known = ObjectStat::empty();
    // SAFETY: the host writes at most this many bytes there, and any bytes are an `ObjectStat`.
    let bytes = unsafe { stat(address, &raw mut known, size_of::<ObjectStat>()) };
    let bytes = check(bytes, name)?;
    known.regions(bytes as usize, name)
}

/// Converts a function's result to a number, or to the host's error.
fn check(result: i32, name: &str) -> Result<u32> {
    // Addresses of objects lie in the lower half of memory.
    u32::try_from(result).map_err(|_| fault(result.unsigned_abs(), name))
}

/// Returns the error with this code and the host's message, if the host still has it.
fn fault(code: u32, name: &str) -> Error {
    let mut words = [0; FAULT_BYTES_MAX];
    // SAFETY: the host writes at most `words.len()` bytes to `words`.
    let bytes = unsafe { last_fault(words.as_mut_ptr(), words.len()) };
    let filled = usize::try_from(bytes).unwrap_or(0).min(words.len());
    let said = words[..filled].split_at_checked(4);
    let message = match said {
        Some((said_code, text)) if said_code == code.to_le_bytes() => {
            String::from_utf8_lossy(text).into_owned()
        }
        // Fallback for a host that has no message for the code.
        _ => format!(
            "the host refused with code {code} ({:?}) without a message",
            Code::of_number(code)
        ),
    };
    Error::new(Code::of_number(code), name, message)
}
