//! Helpers around the engines' system calls: retry after signals, wait for descriptors, distinguish
//! refusals from failures, and confirm the end of a source.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{Refusal, Stop};
use crate::end::Ends;
use crate::error::Side;
use crate::meter::Meter;
use crate::span::Work;

/// Most bytes moved by one `read`, `write`, `sendfile`, `splice` or `copy_file_range`.
pub(crate) const CALL_BYTES_MAX: u64 = 0x7fff_f000;

/// Bytes per call for calls that could move 2 GiB and react only to fatal signals. A cancelled
/// transfer stops soon, and the overhead is negligible. A multiple of any file system's block size.
const CANCELLABLE_BYTES_MAX: u64 = 64 << 20;
const _: () = assert!(CANCELLABLE_BYTES_MAX <= CALL_BYTES_MAX);

/// Timeout of a wait, after which cancellation is checked.
const POLL_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Retries a call on `EINTR` and `EAGAIN`. On `EAGAIN` it waits until one of `waits_for` is ready;
/// if that is empty, it returns the error.
pub(super) fn retry<T>(
    meter: &Meter,
    waits_for: &[(BorrowedFd<'_>, PollFlags)],
    mut call: impl FnMut() -> Result<T, Errno>,
) -> Result<Result<T, Errno>, Stop> {
    loop {
        if meter.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        match call() {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if !waits_for.is_empty() => wait(waits_for),
            other => return Ok(other),
        }
    }
}

/// Waits until any descriptor is ready, a signal arrives, or the timeout expires.
pub(super) fn wait(descriptors: &[(BorrowedFd<'_>, PollFlags)]) {
    let mut polled: Vec<PollFd<'_>> =
        descriptors.iter().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
    // Ignore errors: the retried call will report the cause.
    let _ = poll(&mut polled, Some(&POLL_TIMEOUT));
}

/// Classifies the errno of a call specific to one engine.
pub(super) fn refusal_or_failure(
    call: &str,
    side: Side,
    operation: &'static str,
    errno: Errno,
) -> Stop {
    match errno {
        Errno::INVAL
        | Errno::XDEV
        | Errno::OPNOTSUPP
        | Errno::NOSYS
        | Errno::BADF
        | Errno::PERM
        | Errno::NOTTY
        | Errno::TXTBSY => Stop::Refused(Refusal::new(format!("{call} failed: {errno}"))),
        errno => Stop::Failed { side, operation, errno },
    }
}

/// Like [`refusal_or_failure`], for a call that both reads and writes. The failure is the source's
/// if `pread` at `offset` fails too.
fn refusal_or_failure_of_either(call: &str, ends: &Ends<'_>, offset: u64, errno: Errno) -> Stop {
    let stop = refusal_or_failure(call, Side::Target, "write", errno);
    match (&stop, rustix::io::pread(ends.source.fd(), &mut [0u8], offset)) {
        (Stop::Failed { .. }, Err(errno)) if errno != Errno::INTR => {
            Stop::Failed { side: Side::Source, operation: "read", errno }
        }
        _ => stop,
    }
}

/// Confirms that the source ends at `offset`, after a call that moved nothing. Some calls return 0
/// for files they cannot read (`/proc`), so this reads one byte with `pread`. Streams return 0 only
/// at their end.
pub(super) fn has_ended(ends: &Ends<'_>, offset: u64, meter: &Meter) -> Result<bool, Stop> {
    if !ends.source.reads_at_offsets() {
        return Ok(true);
    }
    let mut byte = [0u8];
    meter.called();
    let read = retry(meter, &[], || rustix::io::pread(ends.source.fd(), &mut byte, offset))?;
    match read {
        Ok(bytes) => Ok(bytes == 0),
        Err(errno) => Err(Stop::Failed { side: Side::Source, operation: "read", errno }),
    }
}

/// Handles a call that moved nothing: removes the work after a confirmed end, or returns the error.
pub(super) fn ended(
    ends: &Ends<'_>,
    work: &mut Work,
    call: &str,
    offset: u64,
    meter: &Meter,
) -> Result<(), Stop> {
    if !has_ended(ends, offset, meter)? {
        return Err(Stop::Refused(Refusal::new(format!(
            "{call} moved nothing at byte {offset}, before the end of the source"
        ))));
    }
    match work.first() {
        Some(span) if !span.is_open() => Err(Stop::SourceEnded { at_bytes: offset }),
        _ => {
            work.ended(offset);
            Ok(())
        }
    }
}

/// Moves up to `bytes_max` by a system call that both reads and writes. `call` makes it once, from
/// an offset in both ends, and returns the bytes that it moved.
pub(super) fn move_by_call(
    name: &str,
    (ends, work, meter): (&Ends<'_>, &mut Work, &Meter),
    bytes_max: u64,
    waits_for: &[(BorrowedFd<'_>, PollFlags)],
    call: impl Fn(u64, usize) -> Result<usize, Errno>,
) -> Result<(), Stop> {
    let mut left = bytes_max;
    while left > 0 {
        let Some(span) = work.first() else { break };
        let wanted = span.bytes().min(left).min(CANCELLABLE_BYTES_MAX) as usize;
        let moved = retry(meter, waits_for, || meter.draining(|| call(span.begin, wanted)))?;
        let moved = moved
            .map_err(|errno| refusal_or_failure_of_either(name, ends, span.begin, errno))?
            as u64;
        if moved == 0 {
            return ended(ends, work, name, span.begin, meter);
        }
        work.arrived(moved);
        meter.arrived(moved);
        left -= moved;
    }
    Ok(())
}
