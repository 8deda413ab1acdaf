//! Engines that map windows of the source and write from the mapping. `mmap-write` copies once,
//! from one cache to the other; `mmap-direct` copies nothing.
//!
//! Both engines handle a source that changes during the copy. Only the kernel touches a window (see
//! [`crate::sys::Mapping`]), so a truncated source causes an errno instead of a signal. The page
//! that contains the new end stays mapped, though, and reads as zeros after it. Therefore the size
//! is checked after each write, and bytes beyond the end are not counted.

mod direct;
mod write;

pub use direct::MmapDirect;
pub use write::MmapWrite;

use std::os::fd::BorrowedFd;

use evermap_observe::FileSystem;
use rustix::event::PollFlags;
use rustix::fs::{SeekFrom, fstat, seek, tell};
use rustix::io::Errno;

use super::calls::{ended, refusal_or_failure, retry};
use super::{Refusal, Stop};
use crate::end::{Ends, Kind};
use crate::error::Side;
use crate::meter::Meter;
use crate::span::{Span, Work};
use crate::sys::{Mapping, page_bytes};

/// Checks the requirements of both engines.
fn probe(ends: &Ends<'_>) -> Result<(), Refusal> {
    if ends.source.kind() != Kind::File {
        return Err(Refusal::new("only regular files can be mapped"));
    }
    Ok(())
}

/// Returns the part of `part` that goes through one window, up to the next multiple of
/// `window_bytes`. Windows then start at the boundaries of large folios in both caches.
fn window_of(part: Span, window_bytes: u64) -> Span {
    let until = (part.begin / window_bytes + 1) * window_bytes;
    Span::new(part.begin, part.end.min(until))
}

/// Maps `part`, writes it to `target` and removes it from `work`.
///
/// `target` is the target or another descriptor of it. Remaining work starts at `part.begin`. One
/// call writes `write_bytes_max` at most.
fn move_window(
    ends: &Ends<'_>,
    target: BorrowedFd<'_>,
    work: &mut Work,
    meter: &Meter,
    part: Span,
    write_bytes_max: u64,
) -> Result<(), Stop> {
    let size_bytes = source_bytes(ends)?;
    if size_bytes <= part.begin {
        return ended(ends, work, "a mapping", part.begin, meter);
    }
    let part = Span::new(part.begin, part.end.min(size_bytes));
    refuse_tmpfs_holes(ends, part)?;
    let base = part.begin / page_bytes() * page_bytes();
    let mapping = map(ends, meter, Span::new(base, part.end))?;
    let mut at = part.begin;
    while at < part.end {
        let offset = ends.target.writes_at_offsets().then_some(at);
        let until = part.end.min(at.saturating_add(write_bytes_max));
        let unwritten = (at - base) as usize..(until - base) as usize;
        let written = retry(meter, &[(target, PollFlags::OUT)], || {
            meter.draining(|| mapping.write_to(unwritten.clone(), target, offset))
        })?;
        let written = match written {
            Ok(0) => {
                return Err(Stop::Failed {
                    side: Side::Target,
                    operation: "write",
                    errno: Errno::IO,
                });
            }
            Ok(written) => written as u64,
            // The page is gone or unreadable: an ordinary read determines which.
            Err(Errno::FAULT) => return ended(ends, work, "write from a mapping", at, meter),
            Err(errno) => {
                return Err(refusal_or_failure(
                    "write from a mapping",
                    Side::Target,
                    "write",
                    errno,
                ));
            }
        };
        let size_bytes = source_bytes(ends)?;
        let counted = counted(at, written, size_bytes, offset.is_none());
        work.arrived_at(Span::new(at, at + counted));
        meter.arrived(counted);
        at += counted;
        if size_bytes < at || counted < written {
            return Err(Stop::SourceEnded { at_bytes: size_bytes });
        }
    }
    Ok(())
}

/// Returns how many of the bytes written at `at` count if the source now has `size_bytes`.
///
/// Bytes written from beyond the source's end do not count. On a stream all of them count, because
/// its position has moved.
fn counted(at: u64, written: u64, size_bytes: u64, is_stream: bool) -> u64 {
    match is_stream {
        true => written,
        false => written.min(size_bytes.saturating_sub(at)),
    }
}

/// Maps `part` and faults its pages in.
fn map(ends: &Ends<'_>, meter: &Meter, part: Span) -> Result<Mapping, Stop> {
    meter.filling(|| {
        let refused =
            |errno| Stop::Refused(Refusal::new(format!("the source cannot be mapped: {errno}")));
        let mapping =
            Mapping::new(ends.source.fd(), part.begin, part.bytes() as usize).map_err(refused)?;
        // Ignore errors: the write reports them too, with the position.
        let _ = mapping.populate();
        Ok(mapping)
    })
}

/// Returns the current size of the source.
fn source_bytes(ends: &Ends<'_>) -> Result<u64, Stop> {
    match fstat(ends.source.fd()) {
        Ok(stat) => Ok(stat.st_size as u64),
        Err(errno) => {
            Err(Stop::Failed { side: Side::Source, operation: "read the attributes of", errno })
        }
    }
}

/// Refuses holes on tmpfs. Reading a mapped hole allocates its pages, so the source would grow.
/// Another engine reads such holes.
fn refuse_tmpfs_holes(ends: &Ends<'_>, part: Span) -> Result<(), Stop> {
    if ends.source.file_system() != FileSystem::TMPFS {
        return Ok(());
    }
    let failed = |errno| Stop::Failed { side: Side::Source, operation: "find the data of", errno };
    // The query moves the position, which belongs to the caller.
    let position = tell(ends.source.fd()).map_err(failed)?;
    let hole = seek(ends.source.fd(), SeekFrom::Hole(part.begin));
    seek(ends.source.fd(), SeekFrom::Start(position)).map_err(failed)?;
    match hole {
        Ok(hole) if hole < part.end => {
            let why =
                format!("reading a mapping on tmpfs would fill the source's hole at byte {hole}");
            Err(Stop::Refused(Refusal::new(why)))
        }
        _ => Ok(()),
    }
}

/// Refuses spans without a known end, which cannot be mapped.
fn refuse_open(span: Span) -> Result<(), Stop> {
    match span.is_open() {
        true => Err(Stop::Refused(Refusal::new("a mapping needs a source with a known end"))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_end_of_a_file_do_not_count() {
        assert_eq!(counted(100, 50, 150, false), 50);
        assert_eq!(counted(100, 50, 149, false), 49);
        assert_eq!(counted(100, 50, 99, false), 0);
        assert_eq!(counted(100, 50, 99, true), 50);
    }

    #[test]
    fn window_ends_at_a_multiple_of_its_size() {
        assert_eq!(window_of(Span::new(3, 100), 8), Span::new(3, 8));
        assert_eq!(window_of(Span::new(8, 100), 8), Span::new(8, 16));
        assert_eq!(window_of(Span::new(8, 10), 8), Span::new(8, 10));
    }
}
