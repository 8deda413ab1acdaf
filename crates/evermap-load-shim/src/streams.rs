//! `fread` of much: the C library would read by its own `read`, which is not caught. So its beginning is read as ever (what is in the stream's buffer,
//! what was pushed back), the middle by several threads past the buffer, and the rest as ever again: which leaves the marks of the end and of
//! errors as they belong.

use std::ffi::c_void;
use std::time::Instant;

use crate::reads::{BYTES_MIN, Buffer, fill_one};
use crate::settings::file_of;
use crate::{inside, real, report};

/// More than a stream's buffer and what can be pushed back.
const LEAD_BYTES: usize = 64 << 10;

/// Bytes that `fread` of so many gives, if it is ours, and what `errno` is then. The stream is the caller's alone meanwhile.
///
/// # Safety
///
/// As `fread_unlocked`.
pub(crate) unsafe fn read(
    buffer: *mut c_void,
    bytes: usize,
    stream: *mut libc::FILE,
) -> Option<(usize, i32)> {
    // SAFETY: the caller's promise.
    let fd = unsafe { libc::fileno(stream) };
    // A stream that is written to as well has a buffer that may have to be written first.
    let file = file_of(fd).filter(|file| file.is_read_only)?;
    let begun = Instant::now();
    let real_read = |at: usize, bytes: usize| {
        // SAFETY: within the caller's buffer.
        unsafe { real::fread_unlocked(buffer.cast::<u8>().add(at).cast(), 1, bytes, stream) }
    };
    let mut done = real_read(0, LEAD_BYTES);
    if done < LEAD_BYTES {
        return Some((done, inside::errno()));
    }
    // SAFETY: the caller's promise.
    let here = unsafe { libc::ftello(stream) };
    let rest = usize::try_from(file.version.bytes).ok().zip(usize::try_from(here).ok());
    let middle = rest.map_or(0, |(end, here)| end.saturating_sub(here)).min(bytes - done);
    if middle >= BYTES_MIN {
        let part = Buffer { address: buffer as usize + done, bytes: middle };
        let came = fill_one(fd, part, here as u64).unwrap_or(0);
        // SAFETY: the caller's promise.
        if unsafe { libc::fseeko(stream, here + came as i64, libc::SEEK_SET) } == 0 {
            done += came;
            report::count_read("fread", &file.path, done as u64, begun.elapsed());
        }
    }
    if done < bytes {
        done += real_read(done, bytes - done);
    }
    Some((done, inside::errno()))
}
