//! Shared parts of the direct I/O engines: descriptors, whole blocks, and the unaligned rest.
//!
//! The files are reopened through `/proc/self/fd`, so the caller's descriptors keep their flags.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{IFlags, Mode, OFlags, ioctl_getflags, open};

use super::{Engine, ReadWrite, Refusal, Stop, Tuning};
use crate::end::{End, Ends, Kind};
use crate::meter::Meter;
use crate::span::{Span, Work};
use crate::sys::page_bytes;

/// Block size of direct I/O. At least a page, so that no page is moved partly through the cache and
/// partly past it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocks {
    bytes: u64,
}

impl Blocks {
    /// Returns the block size that suits all `ends`.
    pub(super) fn of<'e, const N: usize>(ends: [&End<'e>; N]) -> Result<Blocks, Refusal> {
        let mut bytes = page_bytes();
        for end in ends {
            let Some(asked) = end.direct() else {
                return Err(Refusal::new(format!(
                    "the file system of {} does not support direct I/O",
                    end.path().display()
                )));
            };
            // Alignments are powers of two, so the largest suits all. Memory offsets equal file
            // offsets within a page or a ring slot.
            bytes = bytes.max(asked.offset_bytes.into()).max(asked.memory_bytes.into());
        }
        Ok(Blocks { bytes })
    }

    /// Returns the block size in bytes.
    pub(super) fn bytes(self) -> u64 {
        self.bytes
    }

    /// Rounds `bytes` down to whole blocks, but to one block at least.
    pub(super) fn whole(self, bytes: u64) -> u64 {
        (bytes / self.bytes * self.bytes).max(self.bytes)
    }

    /// Splits `span` into the part before the first whole block, the whole blocks, and the rest.
    /// Each may be empty.
    pub(super) fn split(self, span: Span) -> (Span, Span, Span) {
        let begin = span.begin.next_multiple_of(self.bytes).min(span.end);
        let end = (span.end / self.bytes * self.bytes).max(begin);
        (Span::new(span.begin, begin), Span::new(begin, end), Span::new(end, span.end))
    }
}

/// Moves the unaligned `part` by ordinary reads and writes.
pub(super) fn move_unaligned(
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

/// Opens the source again for direct reads.
pub(super) fn reopen_source(ends: &Ends<'_>) -> Result<OwnedFd, Refusal> {
    reopen(&ends.source, OFlags::RDONLY)
}

/// Opens the target again for direct writes.
pub(super) fn reopen_target(ends: &Ends<'_>) -> Result<OwnedFd, Refusal> {
    if ends.target.appends() {
        return Err(Refusal::new("the target was opened for appending"));
    }
    reopen(&ends.target, OFlags::WRONLY)
}

fn reopen(end: &End<'_>, access: OFlags) -> Result<OwnedFd, Refusal> {
    // Reopening a FIFO or a device may block or have side effects.
    if end.kind() != Kind::File {
        return Err(Refusal::new(format!("{} is not a regular file", end.path().display())));
    }
    let path = format!("/proc/self/fd/{}", end.fd().as_raw_fd());
    open(path, access | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty()).map_err(
        |errno| {
            Refusal::new(format!(
                "{} cannot be opened for direct I/O: {errno}",
                end.path().display()
            ))
        },
    )
}

/// Refuses btrfs files with checksums. btrfs copies direct writes to them, so that pages stay
/// unchanged while it computes the checksum, which is the slowest way of all. Files without
/// checksums (`chattr +C`) are written directly.
pub(super) fn refuse_checksums(target: &End<'_>) -> Result<(), Refusal> {
    if !target.file_system().buffers_direct_writes() {
        return Ok(());
    }
    match ioctl_getflags(target.fd()) {
        Ok(flags) if flags.contains(IFlags::NOCOW) => Ok(()),
        _ => Err(Refusal::new("btrfs copies direct writes of files that have checksums")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn split_covers_the_span_and_aligns_the_body(begin in 0u64..20_000, bytes in 1u64..20_000) {
            let span = Span::new(begin, begin + bytes);
            let (head, body, tail) = Blocks { bytes: 4096 }.split(span);
            prop_assert_eq!((head.begin, head.end, body.end, tail.end), (begin, body.begin, tail.begin, span.end));
            prop_assert!(body.is_empty() || (body.begin % 4096 == 0 && body.end % 4096 == 0));
            prop_assert!(head.bytes() < 4096 && tail.bytes() < 4096 || body.is_empty());
        }
    }
}
