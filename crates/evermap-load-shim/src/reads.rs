//! Long reads of files that a rule is for: by several threads into the program's buffer, which gets huge pages if nobody has touched it.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use evermap_load::HugePages;

use crate::loading::without_signals;
use crate::real;
use crate::report;
use crate::settings::{Match, file_of};

/// Shorter ones are passed on.
pub(crate) const BYTES_MIN: usize = 1 << 20;
/// The kernel reads no more by one call.
const BYTES_MAX: usize = 0x7fff_f000;
/// What is worth a thread: starting one takes as long as copying a tenth of this.
const BYTES_PER_THREAD: usize = 2 << 20;
/// Copying, more wait for each other.
const THREADS_MAX: usize = 4;
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A buffer of the program's. It says that it is one; the kernel finds out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffer {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

impl Buffer {
    /// The rest of it, after so many bytes.
    fn behind(self, bytes: usize) -> Buffer {
        Buffer { address: self.address + bytes, bytes: self.bytes - bytes }
    }

    fn first(self, bytes: usize) -> Buffer {
        Buffer { bytes: self.bytes.min(bytes), ..self }
    }
}

/// What `pread` was asked for, if it is ours.
pub(crate) fn read_at(fd: c_int, buffer: Buffer, offset: i64) -> Option<Result<usize, i32>> {
    let begun = Instant::now();
    let file = file_of(fd)?;
    let offset = u64::try_from(offset).ok()?;
    let result = fill(fd, &file, &[buffer], offset);
    tell("pread", &file, &result, begun);
    Some(result)
}

/// What `read` or `readv` was asked for, if it is ours. The file's position is taken forward before: another thread that reads from the same descriptor
/// gets what follows, as it would.
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
    let came = *result.as_ref().unwrap_or(&0);
    if came != bytes {
        seek(fd, came as i64 - bytes as i64);
    }
    tell("read", &file, &result, begun);
    Some(result)
}

fn tell(call: &'static str, file: &Match, result: &Result<usize, i32>, begun: Instant) {
    if let Ok(bytes) = result {
        report::count_read(call, &file.path, *bytes as u64, begun.elapsed());
    }
}

/// Moves the position; where it is then.
fn seek(fd: c_int, by: i64) -> Option<u64> {
    // SAFETY: takes no pointers.
    u64::try_from(unsafe { libc::lseek64(fd, by, libc::SEEK_CUR) }).ok()
}

/// Reads as much as there is into some buffers, one after the other.
fn fill(fd: c_int, file: &Match, buffers: &[Buffer], offset: u64) -> Result<usize, i32> {
    let rest = usize::try_from(file.version.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
    let mut left = rest.min(BYTES_MAX);
    let mut done = 0;
    for buffer in buffers {
        let part = buffer.first(left);
        if part.bytes == 0 {
            continue;
        }
        let came = match fill_one(fd, part, offset + done as u64) {
            Ok(came) => came,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        };
        done += came;
        left -= came;
        if came < part.bytes {
            break;
        }
    }
    Ok(done)
}

/// Reads a range of the file into a buffer; bytes that came without a gap.
pub(crate) fn fill_one(fd: c_int, buffer: Buffer, offset: u64) -> Result<usize, i32> {
    let huge = HugePages::look(buffer.bytes);
    let threads = (buffer.bytes / BYTES_PER_THREAD).clamp(1, processors().min(THREADS_MAX));
    let next = AtomicUsize::new(0);
    let work = || read_pieces(fd, buffer, offset, &next, &huge);
    let mut pieces = std::thread::scope(|scope| {
        // A thread that cannot be had is none.
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
        done += piece.came;
        match piece.error {
            Some(errno) if done == 0 => return Err(errno),
            _ if piece.came < piece.wanted => break,
            _ => {}
        }
    }
    Ok(done)
}

/// A part of a buffer, after it was read.
struct Piece {
    number: usize,
    wanted: usize,
    came: usize,
    error: Option<i32>,
}

/// Reads pieces that nobody has taken, in the order of the file, which is what the kernel reads ahead for; until there are none, or one was
/// not all there. Each ends where a huge page does.
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
        let (came, error) = huge.fill(part.address, part.bytes, || is_untouched(part), read);
        pieces.push(Piece { number, wanted: part.bytes, came, error });
        if came < part.bytes {
            // Nobody needs what follows.
            next.store(usize::MAX / 2, Ordering::Relaxed);
            return pieces;
        }
    }
}

/// Bytes that came, and why no more.
fn read_piece(fd: c_int, buffer: Buffer, offset: u64) -> (usize, Option<i32>) {
    let mut done = 0;
    while done < buffer.bytes {
        let part = buffer.behind(done);
        let at = (offset + done as u64) as i64;
        // SAFETY: the program's buffer, as it said to `read`.
        match unsafe { real::system_pread(fd, part.address as *mut u8, part.bytes, at) } {
            Ok(0) => break,
            Ok(came) => done += came,
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

/// Bytes up to the first end of a huge page.
fn lead_of(buffer: Buffer) -> usize {
    HUGE_PAGE_BYTES - buffer.address % HUGE_PAGE_BYTES
}

/// Whether a buffer's first page is not there yet. A look at all would cost more than it saves.
fn is_untouched(buffer: Buffer) -> bool {
    let mut is_there = 0u8;
    // SAFETY: asks only, and writes one byte.
    let asked = unsafe { libc::mincore(buffer.address as *mut c_void, 1, &raw mut is_there) };
    asked == 0 && is_there & 1 == 0
}
