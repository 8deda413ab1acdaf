//! What engines of direct I/O have in common: descriptors that do it, whole blocks, and what lies around them.
//!
//! The caller's descriptors keep their flags: the files are opened again, through `/proc/self/fd`.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{IFlags, Mode, OFlags, ioctl_getflags, open};

use super::{Engine, ReadWrite, Stop, Tuning, WhyNot};
use crate::end::{End, Ends, Kind};
use crate::meter::Meter;
use crate::span::{Span, Work};
use crate::sys::page_bytes;

/// The blocks that direct I/O moves: whole pages at least, so that no page has a part that was moved past the cache
/// and another that was not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocks {
    bytes: u64,
}

impl Blocks {
    /// Those that suit all of `ends`.
    pub(super) fn of<'e, const N: usize>(ends: [&End<'e>; N]) -> Result<Blocks, WhyNot> {
        let mut bytes = page_bytes();
        for end in ends {
            let Some(asked) = end.direct() else {
                return Err(WhyNot::new(format!(
                    "the file system of {} does no direct I/O",
                    end.path().display()
                )));
            };
            // Alignments are powers of two: the largest suits all. Offsets in memory are those in the file, within a page
            // or a ring's slot.
            bytes = bytes.max(asked.offset_bytes.into()).max(asked.memory_bytes.into());
        }
        Ok(Blocks { bytes })
    }

    /// Bytes of one.
    pub(super) fn bytes(self) -> u64 {
        self.bytes
    }

    /// About `bytes`, and one block at least.
    pub(super) fn whole(self, bytes: u64) -> u64 {
        (bytes / self.bytes * self.bytes).max(self.bytes)
    }

    /// What lies before the first whole block of `span`, its whole blocks, and what lies behind them. Any may be
    /// empty.
    pub(super) fn split(self, span: Span) -> (Span, Span, Span) {
        let begin = span.begin.next_multiple_of(self.bytes).min(span.end);
        let end = (span.end / self.bytes * self.bytes).max(begin);
        (Span::new(span.begin, begin), Span::new(begin, end), Span::new(end, span.end))
    }
}

/// Moves `part`, which is due, by ordinary reads and writes.
pub(super) fn move_ragged(
    ends: &Ends<'_>,
    work: &mut Work,
    meter: &Meter,
    part: Span,
) -> Result<(), Stop> {
    let mut due = Work::new([part]);
    let outcome = ReadWrite::new(&Tuning::default()).step(ends, &mut due, meter, part.bytes());
    work.arrived_at(Span::new(part.begin, due.first().map_or(part.end, |left| left.begin)));
    outcome
}

/// The source, for direct reads.
pub(super) fn reopen_source(ends: &Ends<'_>) -> Result<OwnedFd, WhyNot> {
    reopen(&ends.source, OFlags::RDONLY)
}

/// The target, for direct writes.
pub(super) fn reopen_target(ends: &Ends<'_>) -> Result<OwnedFd, WhyNot> {
    if ends.target.appends() {
        return Err(WhyNot::new("the target was opened for appending"));
    }
    reopen(&ends.target, OFlags::WRONLY)
}

fn reopen(end: &End<'_>, access: OFlags) -> Result<OwnedFd, WhyNot> {
    // Opening a FIFO or a device again may wait, or do something.
    if end.kind() != Kind::File {
        return Err(WhyNot::new(format!("{} is no regular file", end.path().display())));
    }
    let path = format!("/proc/self/fd/{}", end.fd().as_raw_fd());
    open(path, access | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty()).map_err(
        |errno| {
            WhyNot::new(format!(
                "{} is not to be opened for direct I/O: {errno}",
                end.path().display()
            ))
        },
    )
}

/// btrfs computes checksums of pages that nobody changes meanwhile, so it copies what is written directly: the dearest
/// way of all. Files without checksums (`chattr +C`) it writes directly.
pub(super) fn refuse_checksums(target: &End<'_>) -> Result<(), WhyNot> {
    if !target.file_system().checks_what_is_written() {
        return Ok(());
    }
    match ioctl_getflags(target.fd()) {
        Ok(flags) if flags.contains(IFlags::NOCOW) => Ok(()),
        _ => Err(WhyNot::new("btrfs copies direct writes of files that have checksums")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_split_span_is_whole(begin in 0u64..20_000, bytes in 1u64..20_000) {
            let span = Span::new(begin, begin + bytes);
            let (head, body, tail) = Blocks { bytes: 4096 }.split(span);
            prop_assert_eq!((head.begin, head.end, body.end, tail.end), (begin, body.begin, tail.begin, span.end));
            prop_assert!(body.is_empty() || (body.begin % 4096 == 0 && body.end % 4096 == 0));
            prop_assert!(head.bytes() < 4096 && tail.bytes() < 4096 || body.is_empty());
        }
    }
}
