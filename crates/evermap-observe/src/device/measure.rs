//! Measures a device with parallel direct reads and writes of an unnamed, uncached file.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::fs::{self, Advice, FallocateFlags, Mode, OFlags};
use rustix::io::{Errno, pread, pwrite};

use super::DeviceRates;

/// Size of the test file: large enough for a stable rate, done in a tenth of a second.
const FILE_BYTES: u64 = 64 << 20;
/// Requests in flight, enough to keep a device busy.
const THREADS: u64 = 8;
const CHUNK_BYTES: usize = 1 << 20;
/// Satisfies every known device.
const ALIGNMENT: usize = 4096;
/// Devices with less free space than this are not measured.
const FREE_BYTES_MIN: u64 = 1 << 30;

/// Returns the rates of the device that holds `directory`, if they can be measured. See
/// [`super::device_rates`].
pub(super) fn measure(directory: &OwnedFd) -> Option<DeviceRates> {
    let free = fs::fstatvfs(directory).ok()?;
    if free.f_bavail.saturating_mul(free.f_frsize) < FREE_BYTES_MIN {
        return None;
    }
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = fs::openat(directory, c".", flags, Mode::RUSR | Mode::WUSR).ok()?;
    fs::fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES).ok()?;
    let write = |at: u64, chunk: &mut [u8]| pwrite(&file, chunk, at);
    // The first pass allocates the blocks, the second is timed.
    timed(write)?;
    let write_s = timed(write)?;
    fs::fdatasync(&file).ok()?;
    // Best effort: direct reads bypass the cache anyway.
    let _ = fs::fadvise(&file, 0, None, Advice::DontNeed);
    let read_s = timed(|at, chunk| pread(&file, chunk, at))?;
    let rate = |seconds: f64| FILE_BYTES as f64 / seconds;
    Some(DeviceRates { read_bytes_per_s: rate(read_s), write_bytes_per_s: rate(write_s) })
}

/// Returns the seconds that the threads need for the whole file, or `None` if a thread failed.
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
        // A thread that failed to start makes the figure invalid. Join the others anyway.
        let ends =
            threads.into_iter().map(|thread| thread.is_ok_and(|t| t.join().unwrap_or(false)));
        ends.filter(|done| !done).count() == 0
    });
    done.then(|| start.elapsed().as_secs_f64())
}
