//! Engines that `splice` references to cached pages of the source into a pipe, and from there to
//! the target.
//!
//! To a socket nothing is copied. To a file the kernel copies each page once, from the pipe into
//! the target's cache: it no longer moves pages between files, whatever `SPLICE_F_MOVE` says.
//!
//! One engine type implements one pipe, two parallel pipes and any number: they differ only in how
//! the file is divided.

mod lanes;
mod pipe;
mod stream;

pub use lanes::Pattern;
pub(super) use pipe::Pipe;

use super::{Engine, EngineKind, ReadWrite, Refusal, Stop, Tuning};
use crate::end::Ends;
use crate::error::Side;
use crate::meter::Meter;
use crate::span::Work;

/// The engines `splice`, `dual-pipe` and `dual-pipe-interleaved`.
#[derive(Debug)]
pub struct Splice {
    kind: EngineKind,
    tuning: Tuning,
    lanes: usize,
    pattern: Pattern,
    pipes: Vec<Pipe>,
    /// Bytes read from a pipe that have not arrived.
    rest: Option<ReadWrite>,
}

impl Splice {
    /// Creates the engine with `tuning.lanes` pipes, one per lane.
    pub fn new(kind: EngineKind, tuning: &Tuning, pattern: Pattern) -> Splice {
        let lanes = tuning.lanes.max(1);
        Splice { kind, tuning: tuning.clone(), lanes, pattern, pipes: Vec::new(), rest: None }
    }

    /// Creates the engine with two pipes at least.
    pub fn dual(kind: EngineKind, tuning: &Tuning, pattern: Pattern) -> Splice {
        let mut splice = Splice::new(kind, tuning, pattern);
        splice.lanes = splice.lanes.max(2);
        splice
    }

    /// Creates the missing pipes.
    fn create_pipes(&mut self) -> Result<(), Refusal> {
        while self.pipes.len() < self.lanes {
            self.pipes.push(Pipe::new(self.tuning.pipe_bytes)?);
        }
        Ok(())
    }

    /// Writes the bytes read from a pipe to the target.
    fn write_rest(&mut self, ends: &Ends<'_>, work: &mut Work, meter: &Meter) -> Result<(), Stop> {
        if let Some(rest) = &mut self.rest {
            rest.drain(ends, work, meter)?;
            self.rest = None;
        }
        Ok(())
    }
}

impl Engine for Splice {
    fn kind(&self) -> EngineKind {
        self.kind
    }

    fn probe(&mut self, ends: &Ends<'_>) -> Result<(), Refusal> {
        if ends.target.appends() {
            return Err(Refusal::new("splice refuses a target opened for appending"));
        }
        self.create_pipes()
    }

    fn step(
        &mut self,
        ends: &Ends<'_>,
        work: &mut Work,
        meter: &Meter,
        bytes_max: u64,
    ) -> Result<(), Stop> {
        self.write_rest(ends, work, meter)?;
        if ends.source.reads_at_offsets() {
            // After a failed step, bytes left in a pipe are read again from the target's offset.
            self.pipes.retain(|pipe| pipe.held_bytes() == 0);
        }
        self.create_pipes().map_err(Stop::Refused)?;
        let is_open = work.bytes().is_none();
        if self.lanes > 1 && !is_open && ends.have_offsets() {
            let chunk_bytes = self.pipes[0].capacity_bytes() as u64;
            let shares =
                lanes::divide(&work.take(bytes_max), self.lanes, self.pattern, chunk_bytes);
            return lanes::run(&mut self.pipes, &shares, ends, work, meter);
        }
        if self.lanes > 1 && !is_open && ends.source.reads_at_offsets() {
            return stream::run_ahead(&mut self.pipes, ends, work, meter, bytes_max);
        }
        stream::run(&mut self.pipes[0], ends, work, meter, bytes_max)
    }

    fn drain(&mut self, ends: &Ends<'_>, work: &mut Work, meter: &Meter) -> Result<(), Stop> {
        // Bytes from a file can be read again, from the target's offset. Bytes from a stream exist
        // only here. A target that refuses a splice accepts a write. The bytes are kept until
        // written: space may be freed on a full target.
        for mut pipe in self.pipes.drain(..) {
            if pipe.held_bytes() > 0 && !ends.source.reads_at_offsets() {
                let failed = |errno| Stop::Failed { side: Side::Source, operation: "read", errno };
                self.rest = Some(ReadWrite::holding(pipe.read_out().map_err(failed)?));
            }
        }
        self.write_rest(ends, work, meter)
    }
}
