//! Limits the length of a source, and the memory for parsing it.

use std::io::{self, Read};
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::failure::Failure;
use crate::memory;

/// Default of `--limit`: more than nearly all documents have, and less than most machines' memory.
pub const SOURCE_MIB: u64 = 1024;
/// Size of the first read. Later reads double the buffer, or read the expected rest at once.
const FIRST_BYTES: usize = 64 * 1024;
/// Divisor of the available memory: a tenth is left for other processes.
const LEFT_SHARE: u64 = 10;

/// Reads a source to its end.
///
/// `check` gets the first bytes, and true if they are the whole source. It can refuse the source
/// before the rest is read: a device may have no end.
///
/// # Errors
/// `TooLong` beyond `bytes_max`; `Source` if reading fails or memory runs out; errors of `check`.
pub fn read_all(
    path: &Path,
    source: &mut dyn Read,
    expected_bytes: u64,
    bytes_max: u64,
    check: impl FnOnce(&[u8], bool) -> Result<(), Failure>,
) -> Result<Vec<u8>, Failure> {
    let failed = Failure::source(path);
    let too_long = || Failure::TooLong { path: path.to_path_buf(), bytes_max };
    if expected_bytes > bytes_max {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    // Returns true if the source may have more bytes.
    let mut read_more = |bytes: &mut Vec<u8>, wanted: usize| -> Result<bool, Failure> {
        memory::fallible(|| bytes.try_reserve(wanted))
            .map_err(|_| failed(io::Error::new(io::ErrorKind::OutOfMemory, NO_MEMORY)))?;
        let read = source.take(wanted as u64).read_to_end(bytes).map_err(failed)?;
        Ok(read == wanted)
    };
    let mut has_more = read_more(&mut bytes, FIRST_BYTES)?;
    check(&bytes, !has_more)?;
    if bytes.len() as u64 > bytes_max {
        return Err(too_long());
    }
    while has_more {
        let rest = usize::try_from(expected_bytes).unwrap_or(0).saturating_sub(bytes.len());
        let left = usize::try_from(bytes_max).unwrap_or(usize::MAX).saturating_sub(bytes.len());
        // One byte beyond the limit distinguishes a source of the maximum length from a longer one.
        let wanted = rest.max(bytes.len()).min(left).saturating_add(1);
        has_more = read_more(&mut bytes, wanted)?;
        if bytes.len() as u64 > bytes_max {
            return Err(too_long());
        }
    }
    Ok(bytes)
}

/// Reads a text, such as a file of options or a list, to its end. A device or a pipe has no length,
/// so its bytes are counted as they are read.
///
/// # Errors
/// `Source` if it cannot be read, is not UTF-8, or has more than `bytes_max` bytes.
pub fn read_text(path: &Path, source: impl Read, bytes_max: u64) -> Result<String, Failure> {
    let failed = Failure::source(path);
    let mut text = Vec::new();
    source.take(bytes_max + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > bytes_max {
        let why = format!("it is longer than {bytes_max} bytes, the most allowed");
        return Err(failed(io::Error::other(why)));
    }
    String::from_utf8(text).map_err(|error| failed(io::Error::other(error.utf8_error())))
}

const NO_MEMORY: &str =
    "no memory is left for it; raise the process's limit (`ulimit -v`), or free memory";

/// Limits the private memory of this process to its present size plus nine tenths of the available
/// memory. A document that needs more then ends with an error, instead of waking the kernel's
/// out-of-memory killer. Best effort.
pub fn limit_memory() {
    let Some(available_bytes) = evermap_observe::available_bytes() else { return };
    // Private memory, as counted by `RLIMIT_DATA`.
    let Some(used_bytes) = evermap_observe::proc::status_bytes("VmData") else { return };
    let allowed = used_bytes.saturating_add(available_bytes - available_bytes / LEFT_SHARE);
    let limit = getrlimit(Resource::Data);
    if limit.current.is_none_or(|current| current > allowed) {
        let _ =
            setrlimit(Resource::Data, Rlimit { current: Some(allowed), maximum: limit.maximum });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: usize, expected: u64, bytes_max: u64) -> Result<usize, Failure> {
        let all = vec![b'x'; bytes];
        let source: &mut dyn Read = &mut all.as_slice();
        read_all(Path::new("x"), source, expected, bytes_max, |_, _| Ok(())).map(|read| read.len())
    }

    #[test]
    fn read_all_accepts_sources_up_to_the_limit() {
        for bytes in [0, 1, FIRST_BYTES - 1, FIRST_BYTES, FIRST_BYTES + 1, 1_000_000] {
            for expected in [0, bytes as u64] {
                assert_eq!(read(bytes, expected, bytes as u64 + 1).unwrap(), bytes);
                assert_eq!(read(bytes, expected, bytes as u64).unwrap(), bytes);
                if bytes > 0 {
                    let error = read(bytes, expected, bytes as u64 - 1).unwrap_err();
                    assert!(matches!(error, Failure::TooLong { .. }), "{bytes}: {error}");
                }
            }
        }
    }

    #[test]
    fn a_text_is_read_to_its_end_or_to_the_limit() {
        let read = |text: &[u8], bytes_max| read_text(Path::new("list"), text, bytes_max);
        assert_eq!(read(b"one\ntwo", 7).unwrap(), "one\ntwo");
        let endless = read_text(Path::new("list"), io::repeat(b'x'), 1 << 20);
        for refused in [read(b"one\ntwo", 6), endless] {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("list") && refused.contains("the most allowed"), "{refused}");
        }
        // The limit comes first, even if it cuts a character in two.
        let refused = read("\u{e9}".repeat(4).as_bytes(), 4).unwrap_err().to_string();
        assert!(refused.contains("the most allowed"), "{refused}");
        assert!(read(b"\xff", 7).unwrap_err().to_string().contains("utf-8"));
    }

    #[test]
    fn read_all_refuses_an_endless_source() {
        let read = read_all(Path::new("x"), &mut io::repeat(b'x'), 0, 3 << 20, |_, is_all| {
            // The check accepts the beginning. Any failure would do.
            (!is_all).then_some(()).ok_or(Failure::NoHome)
        });
        assert!(matches!(read, Err(Failure::TooLong { .. })));
    }
}
