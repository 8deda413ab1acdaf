//! The measurement: direct reads and writes, several at a time, of a file that nobody caches and that has no name.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::fs::{self, Advice, FallocateFlags, Mode, OFlags};
use rustix::io::{Errno, pread, pwrite};

use super::DeviceRates;

/// What is written and read: long enough to show a rate, over in a tenth of a second.
const FILE_BYTES: u64 = 64 << 20;
/// At a time: what keeps a device busy.
const THREADS: u64 = 8;
const CHUNK_BYTES: usize = 1 << 20;
/// Satisfies every device there is.
const ALIGNMENT: usize = 4096;
/// A disk with less than this free is not written to for a measurement.
const FREE_BYTES_MIN: u64 = 1 << 30;

/// The rates of the device that `directory` is on, if they can be had: see [`super::device_rates`].
pub(super) fn of(directory: &OwnedFd) -> Option<DeviceRates> {
    let free = fs::fstatvfs(directory).ok()?;
    if free.f_bavail.saturating_mul(free.f_frsize) < FREE_BYTES_MIN {
        return None;
    }
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = fs::openat(directory, c".", flags, Mode::RUSR | Mode::WUSR).ok()?;
    fs::fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES).ok()?;
    let write = |at: u64, chunk: &mut [u8]| pwrite(&file, chunk, at);
    // Once for the blocks to be had, once for the figure.
    timed(write)?;
    let write_s = timed(write)?;
    fs::fdatasync(&file).ok()?;
    // Advice; direct reads don't look there anyway.
    let _ = fs::fadvise(&file, 0, None, Advice::DontNeed);
    let read_s = timed(|at, chunk| pread(&file, chunk, at))?;
    let rate = |seconds: f64| FILE_BYTES as f64 / seconds;
    Some(DeviceRates { read_bytes_per_s: rate(read_s), write_bytes_per_s: rate(write_s) })
}

/// Seconds that it takes several threads to do all of the file.
fn timed(call: impl Fn(u64, &mut [u8]) -> Result<usize, Errno> + Sync) -> Option<f64> {
    let start = Instant::now();
    let share_bytes = FILE_BYTES / THREADS;
    let done = std::thread::scope(|scope| {
        let call = &call;
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                std::thread::Builder::new().spawn_scoped(scope, move || {
                    let mut buffer = vec![0xa5u8; CHUNK_BYTES + ALIGNMENT];
                    let begin = buffer.as_ptr().align_offset(ALIGNMENT);
                    let chunk = &mut buffer[begin..begin + CHUNK_BYTES];
                    let first = thread * share_bytes;
                    (first..first + share_bytes)
                        .step_by(CHUNK_BYTES)
                        .all(|at| matches!(call(at, chunk), Ok(CHUNK_BYTES)))
                })
            })
            .collect();
        // Without all threads there is no figure; those that started are waited for.
        let ends =
            threads.into_iter().map(|thread| thread.is_ok_and(|t| t.join().unwrap_or(false)));
        ends.filter(|done| !done).count() == 0
    });
    done.then(|| start.elapsed().as_secs_f64())
}
