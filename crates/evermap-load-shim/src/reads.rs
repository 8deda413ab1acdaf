//! Long reads of matching files: several threads read into the program's buffer, with huge pages if
//! it is untouched.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use evermap_load::HugePages;

use crate::loading::without_signals;
use crate::real;
use crate::report;
use crate::settings::{Match, file_of};

/// Minimum size of a read. Shorter reads are passed on.
pub(crate) const BYTES_MIN: usize = 1 << 20;
/// Maximum bytes of one kernel read.
const BYTES_MAX: usize = 0x7fff_f000;
/// Minimum bytes per thread. Starting a thread takes as long as copying a tenth of this.
const BYTES_PER_THREAD: usize = 2 << 20;
/// Maximum number of threads. More threads contend while copying.
const THREADS_MAX: usize = 4;
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Buffer of the program. The kernel validates its address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffer {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

impl Buffer {
    /// Returns the rest after `bytes` bytes.
    fn behind(self, bytes: usize) -> Buffer {
        Buffer { address: self.address + bytes, bytes: self.bytes - bytes }
    }

    fn first(self, bytes: usize) -> Buffer {
        Buffer { bytes: self.bytes.min(bytes), ..self }
    }
}

/// Serves a `pread` call if the file matches a rule.
pub(crate) fn read_at(fd: c_int, buffer: Buffer, offset: i64) -> Option<Result<usize, i32>> {
    let begun = Instant::now();
    let file = file_of(fd)?;
    let offset = u64::try_from(offset).ok()?;
    let result = fill(fd, &file, &[buffer], offset);
    record("pread", &file, &result, begun);
    Some(result)
}

/// Serves a `read` or `readv` call if the file matches a rule. Advances the file position first, so
/// that a concurrent read of the same descriptor continues after this one.
pub(crate) fn read(fd: c_int, buffers: &[Buffer]) -> Option<Result<usize, i32>> {
    let begun = Instant::now();
    let file = file_of(fd)?;
    let wanted = buffers.iter().map(|buffer| buffer.bytes).sum::<usize>().min(BYTES_MAX);
    let here = seek(fd, 0)?;
    let rest = usize::try_from(file.version.bytes.saturating_sub(here)).ok()?;
    let bytes = wanted.min(rest);
    if bytes < BYTES_MIN {
        return None;
    }
    let from = seek(fd, bytes as i64)?.checked_sub(bytes as u64)?;
    let result = fill(fd, &file, buffers, from);
    let read_bytes = *result.as_ref().unwrap_or(&0);
    if read_bytes != bytes {
        seek(fd, read_bytes as i64 - bytes as i64);
    }
    record("read", &file, &result, begun);
    Some(result)
}

fn record(call: &'static str, file: &Match, result: &Result<usize, i32>, begun: Instant) {
    if let Ok(bytes) = result {
        report::count_read(call, &file.path, *bytes as u64, begun.elapsed());
    }
}

/// Moves the file position and returns the new one.
fn seek(fd: c_int, by: i64) -> Option<u64> {
    // SAFETY: takes no pointers.
    u64::try_from(unsafe { libc::lseek64(fd, by, libc::SEEK_CUR) }).ok()
}

/// Fills buffers in order with the bytes available.
fn fill(fd: c_int, file: &Match, buffers: &[Buffer], offset: u64) -> Result<usize, i32> {
    let rest = usize::try_from(file.version.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
    let mut left = rest.min(BYTES_MAX);
    let mut done = 0;
    for buffer in buffers {
        let part = buffer.first(left);
        if part.bytes == 0 {
            continue;
        }
        let read_bytes = match fill_one(fd, part, offset + done as u64) {
            Ok(read_bytes) => read_bytes,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        };
        done += read_bytes;
        left -= read_bytes;
        if read_bytes < part.bytes {
            break;
        }
    }
    Ok(done)
}

/// Reads a range of the file into a buffer. Returns the number of contiguous bytes read.
pub(crate) fn fill_one(fd: c_int, buffer: Buffer, offset: u64) -> Result<usize, i32> {
    let huge = HugePages::query(buffer.bytes);
    let threads = (buffer.bytes / BYTES_PER_THREAD).clamp(1, processors().min(THREADS_MAX));
    let next = AtomicUsize::new(0);
    let work = || read_pieces(fd, buffer, offset, &next, &huge);
    let mut pieces = std::thread::scope(|scope| {
        // Failed spawns are ignored.
        let started: Vec<_> = (1..threads)
            .filter_map(|_| {
                let builder = std::thread::Builder::new().stack_size(64 << 10);
                without_signals(|| builder.spawn_scoped(scope, work)).ok()
            })
            .collect();
        let mut pieces = work();
        for thread in started {
            pieces.extend(thread.join().unwrap_or_default());
        }
        pieces
    });
    pieces.sort_by_key(|piece| piece.number);
    let mut done = 0;
    for (number, piece) in pieces.iter().enumerate() {
        if piece.number != number {
            break;
        }
        done += piece.read_bytes;
        match piece.error {
            Some(errno) if done == 0 => return Err(errno),
            _ if piece.read_bytes < piece.wanted => break,
            _ => {}
        }
    }
    Ok(done)
}

/// Result of reading a part of a buffer.
struct Piece {
    number: usize,
    wanted: usize,
    read_bytes: usize,
    error: Option<i32>,
}

/// Reads pieces in file order, as the kernel's read-ahead expects, until none is left or one is
/// incomplete. Each piece ends at a huge-page boundary.
fn read_pieces(
    fd: c_int,
    buffer: Buffer,
    offset: u64,
    next: &AtomicUsize,
    huge: &HugePages,
) -> Vec<Piece> {
    let lead = lead_of(buffer);
    let mut pieces = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let from = match number {
            0 => 0,
            number => (number - 1).saturating_mul(HUGE_PAGE_BYTES).saturating_add(lead),
        };
        if from >= buffer.bytes {
            return pieces;
        }
        let upto = number.saturating_mul(HUGE_PAGE_BYTES).saturating_add(lead);
        let part = buffer.behind(from).first(upto.saturating_sub(from));
        let read = || read_piece(fd, part, offset + from as u64);
        let (read_bytes, error) = huge.fill(part.address, part.bytes, || is_untouched(part), read);
        pieces.push(Piece { number, wanted: part.bytes, read_bytes, error });
        if read_bytes < part.bytes {
            // Later pieces are not needed.
            next.store(usize::MAX / 2, Ordering::Relaxed);
            return pieces;
        }
    }
}

/// Returns the number of bytes read, and the error that stopped it.
fn read_piece(fd: c_int, buffer: Buffer, offset: u64) -> (usize, Option<i32>) {
    let mut done = 0;
    while done < buffer.bytes {
        let part = buffer.behind(done);
        let at = (offset + done as u64) as i64;
        // SAFETY: the buffer belongs to the program, which passed it to `read`.
        match unsafe { real::system_pread(fd, part.address as *mut u8, part.bytes, at) } {
            Ok(0) => break,
            Ok(read_bytes) => done += read_bytes,
            Err(libc::EINTR) => {}
            Err(errno) => return (done, Some(errno)),
        }
    }
    (done, None)
}

fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Returns the bytes up to the first huge-page boundary.
fn lead_of(buffer: Buffer) -> usize {
    HUGE_PAGE_BYTES - buffer.address % HUGE_PAGE_BYTES
}

/// Returns true if the buffer's first page is not present. Checking all pages would cost more than
/// it saves.
fn is_untouched(buffer: Buffer) -> bool {
    let mut is_present = 0u8;
    // SAFETY: the call only queries, and writes one byte.
    let asked = unsafe { libc::mincore(buffer.address as *mut c_void, 1, &raw mut is_present) };
    asked == 0 && is_present & 1 == 0
}
