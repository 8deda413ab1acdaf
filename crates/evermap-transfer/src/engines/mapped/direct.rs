//! The engine `mmap-direct`: the source's cached pages go to the target's device by direct writes. No processor
//! copies a byte, and the target's cache stays empty.
//!
//! For a source that is in the cache and a target that is to be durable at once. One write at a time: a window is
//! long, the kernel cuts it into requests that are on their way together, and mapping the next one takes a hundredth of
//! the time that the device does.

use std::os::fd::AsFd;

use super::{move_window, probe, refuse_open, window_of};
use crate::end::Ends;
use crate::engines::direct::{Blocks, move_ragged, refuse_checksums, reopen_target};
use crate::engines::{Engine, EngineKind, Stop, Tuning, WhyNot};
use crate::meter::Meter;
use crate::span::Work;
use crate::sys::page_bytes;

/// The engine `mmap-direct`.
#[derive(Debug)]
pub struct MmapDirect {
    window_bytes: u64,
}

impl MmapDirect {
    /// With windows of `tuning.direct_window_bytes`.
    pub fn new(tuning: &Tuning) -> MmapDirect {
        MmapDirect { window_bytes: (tuning.direct_window_bytes as u64).max(page_bytes()) }
    }
}

impl Engine for MmapDirect {
    fn kind(&self) -> EngineKind {
        EngineKind::MmapDirect
    }

    fn probe(&mut self, ends: &Ends<'_>) -> Result<(), WhyNot> {
        probe(ends)?;
        if ends.source.identity() == ends.target.identity() {
            return Err(WhyNot::new(
                "a direct write would throw away the cached pages that it is made from",
            ));
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
            move_ragged(ends, work, meter, head)?;
            let mut left = body;
            while !left.is_empty() {
                let part = window_of(left, self.window_bytes.next_multiple_of(blocks.bytes()));
                // Shorter by now, the source ends within a block, which is for an ordinary read to find out.
                if super::source_bytes(ends)? < part.end {
                    move_ragged(ends, work, meter, part)?;
                } else {
                    move_window(ends, target.as_fd(), work, meter, part, u64::MAX)?;
                }
                left.begin = part.end;
            }
            move_ragged(ends, work, meter, tail)?;
        }
        Ok(())
    }

    fn drain(&mut self, _ends: &Ends<'_>, _work: &mut Work, _meter: &Meter) -> Result<(), Stop> {
        Ok(())
    }
}
