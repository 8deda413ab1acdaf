//! Engine `mmap-write`: writes from mapped windows of the source to any descriptor.

use super::{move_window, probe, refuse_open, window_of};
use crate::end::Ends;
use crate::engines::{Engine, EngineKind, Refusal, Stop, Tuning};
use crate::meter::Meter;
use crate::span::{Span, Work};
use crate::sys::page_bytes;

/// The engine `mmap-write`.
#[derive(Debug)]
pub struct MmapWrite {
    window_bytes: u64,
    write_bytes_max: u64,
}

impl MmapWrite {
    /// Creates the engine with windows of `tuning.window_bytes`.
    pub fn new(tuning: &Tuning) -> MmapWrite {
        MmapWrite {
            window_bytes: (tuning.window_bytes as u64).max(page_bytes()),
            write_bytes_max: (tuning.mapped_write_bytes as u64).max(1),
        }
    }
}

impl Engine for MmapWrite {
    fn kind(&self) -> EngineKind {
        EngineKind::MmapWrite
    }

    fn probe(&mut self, ends: &Ends<'_>) -> Result<(), Refusal> {
        probe(ends)
    }

    fn step(
        &mut self,
        ends: &Ends<'_>,
        work: &mut Work,
        meter: &Meter,
        bytes_max: u64,
    ) -> Result<(), Stop> {
        let mut left = bytes_max;
        while left > 0 {
            let Some(span) = work.first() else { break };
            refuse_open(span)?;
            let part = window_of(
                Span::new(span.begin, span.begin + span.bytes().min(left)),
                self.window_bytes,
            );
            move_window(ends, ends.target.fd(), work, meter, part, self.write_bytes_max)?;
            left -= part.bytes();
        }
        Ok(())
    }
}
