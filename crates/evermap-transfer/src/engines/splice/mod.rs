//! `splice`: pages of the source's cache go into a pipe by reference, and from there to the target.
//!
//! To a socket that is no copy at all. To a file it is one: the kernel copies each page from the pipe into the target's
//! cache (there is no way to move a page from one file to another any more, whatever `SPLICE_F_MOVE` is called).
//!
//! One engine serves for one pipe, for two in parallel and for any number: what differs is how the
//! file is shared out.

mod lanes;
mod pipe;
mod stream;

pub use lanes::Pattern;
pub(super) use pipe::Pipe;

use super::{Engine, EngineKind, ReadWrite, Stop, Tuning, WhyNot};
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
    /// What was read out of a pipe, and has not arrived.
    rest: Option<ReadWrite>,
}

impl Splice {
    /// With one pipe a lane, `tuning.lanes` of them.
    pub fn new(kind: EngineKind, tuning: &Tuning, pattern: Pattern) -> Splice {
        let lanes = tuning.lanes.max(1);
        Splice { kind, tuning: tuning.clone(), lanes, pattern, pipes: Vec::new(), rest: None }
    }

    /// With two at least.
    pub fn dual(kind: EngineKind, tuning: &Tuning, pattern: Pattern) -> Splice {
        let mut splice = Splice::new(kind, tuning, pattern);
        splice.lanes = splice.lanes.max(2);
        splice
    }

    /// Makes the pipes that are missing.
    fn lay_pipes(&mut self) -> Result<(), WhyNot> {
        while self.pipes.len() < self.lanes {
            self.pipes.push(Pipe::new(self.tuning.pipe_bytes)?);
        }
        Ok(())
    }

    /// Writes what was read out of a pipe.
    fn bring_rest(&mut self, ends: &Ends<'_>, work: &mut Work, meter: &Meter) -> Result<(), Stop> {
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

    fn probe(&mut self, ends: &Ends<'_>) -> Result<(), WhyNot> {
        if ends.target.appends() {
            return Err(WhyNot::new("splice refuses a target that was opened for appending"));
        }
        self.lay_pipes()
    }

    fn step(
        &mut self,
        ends: &Ends<'_>,
        work: &mut Work,
        meter: &Meter,
        bytes_max: u64,
    ) -> Result<(), Stop> {
        self.bring_rest(ends, work, meter)?;
        if ends.source.reads_at_offsets() {
            // After a step that failed: what they hold is read again, from the target's offset.
            self.pipes.retain(|pipe| pipe.held_bytes() == 0);
        }
        self.lay_pipes().map_err(Stop::Refused)?;
        let is_open = work.bytes().is_none();
        if self.lanes > 1 && !is_open && ends.have_offsets() {
            let chunk_bytes = self.pipes[0].capacity_bytes() as u64;
            let shares =
                lanes::share_out(&work.take(bytes_max), self.lanes, self.pattern, chunk_bytes);
            return lanes::run(&mut self.pipes, &shares, ends, work, meter);
        }
        if self.lanes > 1 && !is_open && ends.source.reads_at_offsets() {
            return stream::run_ahead(&mut self.pipes, ends, work, meter, bytes_max);
        }
        stream::run(&mut self.pipes[0], ends, work, meter, bytes_max)
    }

    fn drain(&mut self, ends: &Ends<'_>, work: &mut Work, meter: &Meter) -> Result<(), Stop> {
        // What came from a file can be read again, from the target's offset. What came from a stream is nowhere
        // else, and what refused a splice takes a write. It is kept until it is there: a full target may be emptied.
        for mut pipe in self.pipes.drain(..) {
            if pipe.held_bytes() > 0 && !ends.source.reads_at_offsets() {
                let failed = |errno| Stop::Failed { side: Side::Source, operation: "read", errno };
                self.rest = Some(ReadWrite::holding(pipe.read_out().map_err(failed)?));
            }
        }
        self.bring_rest(ends, work, meter)
    }
}
