//! Windows of the source, mapped and handed to `write`: the kernel copies from its own cache, once.
//!
//! What both engines here have in common is the care for a source that changes meanwhile. Nothing but the kernel
//! touches a window (see [`crate::sys::Mapping`]), so a source cut short is an errno. A page that the new end lies in stays
//! mapped, though, and reads as zeros behind it: so the size is looked at after a write, and what was written
//! from behind the end does not count.

mod direct;
mod write;

pub use direct::MmapDirect;
pub use write::MmapWrite;

use std::os::fd::BorrowedFd;

use evermap_observe::FileSystem;
use rustix::event::PollFlags;
use rustix::fs::{SeekFrom, fstat, seek};
use rustix::io::Errno;

use super::calls::{ended, persist, refusal_or_failure};
use super::{Stop, WhyNot};
use crate::end::{Ends, Kind};
use crate::error::Side;
use crate::meter::Meter;
use crate::span::{Span, Work};
use crate::sys::{Mapping, page_bytes};

/// What both engines ask of the ends.
fn probe(ends: &Ends<'_>) -> Result<(), WhyNot> {
    if ends.source.kind() != Kind::File {
        return Err(WhyNot::new("only regular files are mapped"));
    }
    Ok(())
}

/// What of `part` goes through one window: up to the next multiple of `window_bytes`, so that windows and the large
/// folios of both caches begin at the same places.
fn window_of(part: Span, window_bytes: u64) -> Span {
    let until = (part.begin / window_bytes + 1) * window_bytes;
    Span::new(part.begin, part.end.min(until))
}

/// Maps `part`, writes it to `target` (the target, or another descriptor of it), and strikes it off.
/// `part` begins where something is due. One call writes `write_bytes_max` at most.
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
        let written = persist(meter, &[(target, PollFlags::OUT)], || {
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
            // The page is gone, or cannot be read: an ordinary read says which.
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

/// How many of the bytes that were written at `at` count, when the source has `size_bytes` after that. What was written
/// from behind its end was never in it. A stream has what it was given, though, and stands behind it.
fn counted(at: u64, written: u64, size_bytes: u64, is_stream: bool) -> u64 {
    match is_stream {
        true => written,
        false => written.min(size_bytes.saturating_sub(at)),
    }
}

/// Maps `part` and brings its pages in.
fn map(ends: &Ends<'_>, meter: &Meter, part: Span) -> Result<Mapping, Stop> {
    meter.filling(|| {
        let refused =
            |errno| Stop::Refused(WhyNot::new(format!("the source is not to be mapped: {errno}")));
        let mapping =
            Mapping::new(ends.source.fd(), part.begin, part.bytes() as usize).map_err(refused)?;
        // What it says no to, the write says again, and knows where.
        let _ = mapping.populate();
        Ok(mapping)
    })
}

/// The size of the source as it is now.
fn source_bytes(ends: &Ends<'_>) -> Result<u64, Stop> {
    match fstat(ends.source.fd()) {
        Ok(stat) => Ok(stat.st_size as u64),
        Err(errno) => Err(Stop::Failed { side: Side::Source, operation: "look at", errno }),
    }
}

/// A hole in tmpfs gets pages when a mapping of it is read: the source would grow. Where holes are copied
/// as data, another engine reads them.
fn refuse_tmpfs_holes(ends: &Ends<'_>, part: Span) -> Result<(), Stop> {
    if ends.source.file_system() != FileSystem::TMPFS {
        return Ok(());
    }
    match seek(ends.source.fd(), SeekFrom::Hole(part.begin)) {
        Ok(hole) if hole < part.end => {
            let why = format!(
                "a mapping that is read would fill the hole at byte {hole} of the source, on tmpfs"
            );
            Err(Stop::Refused(WhyNot::new(why)))
        }
        _ => Ok(()),
    }
}

/// Refuses what has no known end: a mapping has one.
fn refuse_open(span: Span) -> Result<(), Stop> {
    match span.is_open() {
        true => Err(Stop::Refused(WhyNot::new("a mapping needs to know where the source ends"))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_from_behind_the_end_does_not_count() {
        assert_eq!(counted(100, 50, 150, false), 50);
        assert_eq!(counted(100, 50, 149, false), 49);
        assert_eq!(counted(100, 50, 99, false), 0);
        assert_eq!(counted(100, 50, 99, true), 50);
    }

    #[test]
    fn a_window_ends_at_a_multiple_of_its_size() {
        assert_eq!(window_of(Span::new(3, 100), 8), Span::new(3, 8));
        assert_eq!(window_of(Span::new(8, 100), 8), Span::new(8, 16));
        assert_eq!(window_of(Span::new(8, 10), 8), Span::new(8, 10));
    }
}
