//! Large `fread` calls. The C library would use its internal `read`, which is not intercepted. So
//! the start is read through the stream (its buffer and pushed-back characters), the middle by
//! several threads past the buffer, and the rest through the stream again. This sets the
//! end-of-file and error indicators correctly.

use std::ffi::c_void;
use std::time::Instant;

use crate::reads::{BYTES_MIN, Buffer, fill_one};
use crate::settings::file_of;
use crate::{inside, real, report};

/// Bytes read through the stream first: more than a stream's buffer and pushed-back characters.
const LEAD_BYTES: usize = 64 << 10;

/// Serves an `fread` call if the file matches a rule. Returns the number of bytes read and the
/// resulting `errno`. The caller has exclusive use of the stream.
///
/// # Safety
///
/// The contract of `fread_unlocked`.
pub(crate) unsafe fn read(
    buffer: *mut c_void,
    bytes: usize,
    stream: *mut libc::FILE,
) -> Option<(usize, i32)> {
    // SAFETY: the caller passes a valid stream, for its exclusive use.
    let fd = unsafe { libc::fileno(stream) };
    // The buffer of a stream that is also written may have to be flushed first.
    let file = file_of(fd).filter(|file| file.is_read_only)?;
    let begun = Instant::now();
    let real_read = |at: usize, bytes: usize| {
        // SAFETY: the range is within the caller's buffer.
        unsafe { real::fread_unlocked(buffer.cast::<u8>().add(at).cast(), 1, bytes, stream) }
    };
    let mut done = real_read(0, LEAD_BYTES);
    if done < LEAD_BYTES {
        return Some((done, inside::errno()));
    }
    // SAFETY: the caller passes a valid stream, for its exclusive use.
    let here = unsafe { libc::ftello(stream) };
    let rest = usize::try_from(file.version.bytes).ok().zip(usize::try_from(here).ok());
    let middle = rest.map_or(0, |(end, here)| end.saturating_sub(here)).min(bytes - done);
    if middle >= BYTES_MIN {
        let part = Buffer { address: buffer as usize + done, bytes: middle };
        let read_bytes = fill_one(fd, part, here as u64).unwrap_or(0);
        // SAFETY: the caller passes a valid stream, for its exclusive use.
        if unsafe { libc::fseeko(stream, here + read_bytes as i64, libc::SEEK_SET) } == 0 {
            done += read_bytes;
            report::count_read("fread", &file.path, done as u64, begun.elapsed());
        }
    }
    if done < bytes {
        done += real_read(done, bytes - done);
    }
    Some((done, inside::errno()))
}
