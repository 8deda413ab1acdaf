//! Engine `mmap-direct`: the source's cached pages are written to the target's device by direct
//! I/O. The processor copies no byte, and the target's cache stays empty.
//!
//! For a cached source and a durable target. Only one write is in progress at a time: a window is
//! long, the kernel splits it into parallel requests, and mapping the next window takes a hundredth
//! of the device's time.

use std::os::fd::AsFd;

use super::{move_window, probe, refuse_open, window_of};
use crate::end::Ends;
use crate::engines::direct::{Blocks, move_unaligned, refuse_checksums, reopen_target};
use crate::engines::{Engine, EngineKind, Refusal, Stop, Tuning};
use crate::meter::Meter;
use crate::span::Work;
use crate::sys::page_bytes;

/// The engine `mmap-direct`.
#[derive(Debug)]
pub struct MmapDirect {
    window_bytes: u64,
}

impl MmapDirect {
    /// Creates the engine with windows of `tuning.direct_window_bytes`.
    pub fn new(tuning: &Tuning) -> MmapDirect {
        MmapDirect { window_bytes: (tuning.direct_window_bytes as u64).max(page_bytes()) }
    }
}

impl Engine for MmapDirect {
    fn kind(&self) -> EngineKind {
        EngineKind::MmapDirect
    }

    fn probe(&mut self, ends: &Ends<'_>) -> Result<(), Refusal> {
        probe(ends)?;
        if ends.source.identity() == ends.target.identity() {
            return Err(Refusal::new("a direct write would evict the cached pages it reads from"));
        }
        Blocks::of([&ends.target])?;
        refuse_checksums(&ends.target)?;
        reopen_target(ends).map(drop)
    }

    fn step(
        &mut self,
        ends: &Ends<'_>,
        work: &mut Work,
        meter: &Meter,
        bytes_max: u64,
    ) -> Result<(), Stop> {
        let blocks = Blocks::of([&ends.target]).map_err(Stop::Refused)?;
        let target = reopen_target(ends).map_err(Stop::Refused)?;
        if let Some(last) = work.spans().last() {
            refuse_open(*last)?;
        }
        for span in work.take(blocks.whole(bytes_max)) {
            let (head, body, tail) = blocks.split(span);
            move_unaligned(ends, work, meter, head)?;
            let mut left = body;
            while !left.is_empty() {
                let part = window_of(left, self.window_bytes.next_multiple_of(blocks.bytes()));
                // The source was truncated inside a block: an ordinary read determines the end.
                if super::source_bytes(ends)? < part.end {
                    move_unaligned(ends, work, meter, part)?;
                } else {
                    move_window(ends, target.as_fd(), work, meter, part, u64::MAX)?;
                }
                left.begin = part.end;
            }
            move_unaligned(ends, work, meter, tail)?;
        }
        Ok(())
    }
}
