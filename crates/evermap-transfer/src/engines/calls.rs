//! What all engines do around a call: go on after a signal, wait for ends that are not ready, tell a refusal from a
//! failure, and believe no end of a source that was not confirmed.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{Stop, WhyNot};
use crate::end::Ends;
use crate::error::Side;
use crate::meter::Meter;

/// The most that one call of `read`, `write`, `sendfile`, `splice` or `copy_file_range` moves.
pub(crate) const CALL_BYTES_MAX: u64 = 0x7fff_f000;

/// So much at a time of calls that would move 2 GiB and look for nothing but a signal that kills: a cancelled transfer
/// stops soon, and a call costs nothing beside it. Whole blocks of any file system.
pub(super) const TURN_BYTES_MAX: u64 = 64 << 20;
const _: () = assert!(TURN_BYTES_MAX <= CALL_BYTES_MAX);

/// How long a descriptor is waited for before somebody may have cancelled.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Makes a call until it is neither interrupted nor told to try again. A descriptor that is not ready is waited for:
/// `waits_for` says which ones the call may be waiting for.
pub(super) fn persist<T>(
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

/// Until any is ready, a signal comes, or the patience ends.
pub(super) fn wait(descriptors: &[(BorrowedFd<'_>, PollFlags)]) {
    let mut polled: Vec<PollFd<'_>> =
        descriptors.iter().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
    // A failure to wait is a wait that was short: the call itself says what is wrong.
    let _ = poll(&mut polled, Some(&PATIENCE));
}

/// What an errno of a call that one engine makes, and others don't, stands for.
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
        | Errno::TXTBSY => Stop::Refused(WhyNot::new(format!("{call} says: {errno}"))),
        errno => Stop::Failed { side, operation, errno },
    }
}

/// The same after a call that both reads and writes, and does not tell which of the two failed: if the source cannot be
/// read at `offset` the ordinary way either, it is the source.
pub(super) fn refusal_or_failure_of_either(
    call: &str,
    ends: &Ends<'_>,
    offset: u64,
    errno: Errno,
) -> Stop {
    let stop = refusal_or_failure(call, Side::Target, "write", errno);
    match (&stop, rustix::io::pread(ends.source.fd(), &mut [0u8], offset)) {
        (Stop::Failed { .. }, Err(errno)) if errno != Errno::INTR => {
            Stop::Failed { side: Side::Source, operation: "read", errno }
        }
        _ => stop,
    }
}

/// Whether the source has really ended at `offset`, after a call that moved nothing. Some calls return 0
/// for files that they cannot read (`/proc`), so one byte is read the ordinary way. Streams have ended: they return 0
/// for nothing else.
pub(super) fn has_ended(ends: &Ends<'_>, offset: u64, meter: &Meter) -> Result<bool, Stop> {
    if !ends.source.reads_at_offsets() {
        return Ok(true);
    }
    let mut byte = [0u8];
    meter.called();
    let read = persist(meter, &[], || rustix::io::pread(ends.source.fd(), &mut byte, offset))?;
    match read {
        Ok(bytes) => Ok(bytes == 0),
        Err(errno) => Err(Stop::Failed { side: Side::Source, operation: "read", errno }),
    }
}

/// After a call that moved nothing: strikes off what lies behind a confirmed end, or says what is wrong.
pub(super) fn ended(
    ends: &Ends<'_>,
    work: &mut crate::span::Work,
    call: &str,
    offset: u64,
    meter: &Meter,
) -> Result<(), Stop> {
    if !has_ended(ends, offset, meter)? {
        return Err(Stop::Refused(WhyNot::new(format!(
            "{call} moves nothing at byte {offset}, where there is more"
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
