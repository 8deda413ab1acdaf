//! Engine `uring-splice`: two pipes, each filled and drained by a pair of linked splices, so that
//! one fills while the other drains.
//!
//! The kernel runs these splices in its own threads. If the first of a pair moves less than
//! requested, the second is cancelled and queued again for the pipe's content. To a stream, pipes
//! must drain in order: only the first in order gets a pair, the other is filled ahead.

use std::collections::VecDeque;

use rustix::event::PollFlags;
use rustix::io::Errno;

use super::queue::{Done, InFlight, Ring};
use super::{Parts, more_severe, refuse_open, ring_failed};
use crate::end::{Ends, Kind};
use crate::engines::calls::{ended, refusal_or_failure, wait};
use crate::engines::splice::Pipe;
use crate::engines::{Engine, EngineKind, Refusal, Stop, Tuning};
use crate::error::Side;
use crate::meter::Meter;
use crate::span::{Span, Work};
use crate::sys::{Memory, page_bytes};

/// One fills while the other drains. More would wait for the target's lock.
const PIPES: usize = 2;

/// The engine `uring-splice`.
#[derive(Debug)]
pub struct UringSplice {
    pipe_bytes: usize,
    pipes: Vec<Pipe>,
    ring: Option<Ring>,
}

impl UringSplice {
    /// Creates the engine with pipes of `tuning.pipe_bytes`.
    pub fn new(tuning: &Tuning) -> UringSplice {
        UringSplice { pipe_bytes: tuning.pipe_bytes, pipes: Vec::new(), ring: None }
    }

    /// Creates the missing pipes and the ring.
    fn prepare(&mut self) -> Result<(), Refusal> {
        while self.pipes.len() < PIPES {
            self.pipes.push(Pipe::new(self.pipe_bytes)?);
        }
        if !self.ring.as_ref().is_some_and(Ring::is_usable) {
            // Splices use no memory. The ring's pages are never touched.
            let memory = Memory::new(1, page_bytes() as usize)
                .map_err(|errno| Refusal::new(format!("cannot allocate ring memory: {errno}")))?;
            self.ring = Some(Ring::new(4 * PIPES, memory)?);
        }
        Ok(())
    }
}

impl Engine for UringSplice {
    fn kind(&self) -> EngineKind {
        EngineKind::UringSplice
    }

    fn probe(&mut self, ends: &Ends<'_>) -> Result<(), Refusal> {
        if ends.source.kind() != Kind::File {
            return Err(Refusal::new("linked splices read only from regular files"));
        }
        if ends.target.appends() {
            return Err(Refusal::new("splice refuses a target opened for appending"));
        }
        if !ends.target.writes_at_offsets() && ends.target.kind() != Kind::Socket {
            return Err(Refusal::new("linked splices write only to files and sockets"));
        }
        self.prepare()
    }

    fn step(
        &mut self,
        ends: &Ends<'_>,
        work: &mut Work,
        meter: &Meter,
        bytes_max: u64,
    ) -> Result<(), Stop> {
        refuse_open(work)?;
        self.prepare().map_err(Stop::Refused)?;
        let Some(ring) = self.ring.as_mut() else { return Ok(()) };
        let part_bytes = self.pipes.iter().map(Pipe::capacity_bytes).min().unwrap_or(1) as u64;
        let mut splicing = Splicing {
            ends,
            pipes: &self.pipes,
            lanes: vec![None; self.pipes.len()],
            turns: VecDeque::new(),
            parts: Parts::new(work.take(bytes_max), part_bytes),
            ended_at: None,
            stop: None,
        };
        let mut operations = ring.operations();
        let outcome = splicing.process(&mut operations, work, meter);
        drop(operations);
        let (ended_at, stop) = (splicing.ended_at, splicing.stop);
        if outcome.is_err() || ended_at.is_some() || stop.is_some() {
            // Bytes left in the pipes can be read again, from the target's offset.
            self.pipes.clear();
        }
        outcome?;
        match (stop, ended_at) {
            (Some(stop), _) => Err(stop),
            (None, Some(at_bytes)) => ended(ends, work, "splice", at_bytes, meter),
            (None, None) => Ok(()),
        }
    }

    fn drain(&mut self, _ends: &Ends<'_>, _work: &mut Work, _meter: &Meter) -> Result<(), Stop> {
        self.pipes.clear();
        self.ring = None;
        Ok(())
    }
}

/// Part of the file on its way through a pipe.
#[derive(Debug, Clone, Copy)]
struct Lane {
    /// Bytes that have not arrived.
    part: Span,
    /// Bytes of `part` in the pipe. Negative if the drain of a pair is recorded before its fill.
    held: i64,
    /// Number of operations in flight.
    operations: usize,
    /// True if the last fill returned 0: an end that must be confirmed.
    found_end: bool,
}

/// Kinds of operations. The tag is the lane index times two, plus the kind.
const FILL: u64 = 0;
const DRAIN: u64 = 1;

fn tag(index: usize, what: u64) -> u64 {
    index as u64 * 2 + what
}

/// State of one step.
#[derive(Debug)]
struct Splicing<'f> {
    ends: &'f Ends<'f>,
    pipes: &'f [Pipe],
    lanes: Vec<Option<Lane>>,
    /// Lanes in the order of their parts.
    turns: VecDeque<usize>,
    parts: Parts,
    ended_at: Option<u64>,
    stop: Option<Stop>,
}

impl<'f> Splicing<'f> {
    fn process(
        &mut self,
        operations: &mut InFlight<'f>,
        work: &mut Work,
        meter: &Meter,
    ) -> Result<(), Stop> {
        let mut has_cancelled = false;
        loop {
            if meter.is_cancelled() && !has_cancelled {
                has_cancelled = true;
                self.stop = more_severe(self.stop.take(), Stop::Cancelled);
                // A peer that does not read would block this forever.
                operations.cancel().map_err(ring_failed)?;
            }
            self.begin_parts(operations).map_err(ring_failed)?;
            if operations.in_flight() == 0 {
                return Ok(());
            }
            for done in operations.wait(meter).map_err(ring_failed)? {
                self.record(done, work, meter);
            }
            for index in 0..self.lanes.len() {
                self.advance(operations, index).map_err(ring_failed)?;
            }
        }
    }

    /// Returns true if no new part may be started.
    fn is_stopping(&self) -> bool {
        self.stop.is_some() || self.ended_at.is_some()
    }

    /// Returns true if the lane may write to the target now.
    fn may_drain(&self, index: usize) -> bool {
        self.ends.target.writes_at_offsets() || self.turns.front() == Some(&index)
    }

    /// Assigns a part to each free pipe.
    fn begin_parts(&mut self, operations: &mut InFlight<'f>) -> Result<(), Errno> {
        for index in 0..self.lanes.len() {
            if self.is_stopping() {
                return Ok(());
            }
            if self.lanes[index].is_none() {
                let Some(part) = self.parts.next() else { return Ok(()) };
                self.lanes[index] = Some(Lane { part, held: 0, operations: 0, found_end: false });
                self.turns.push_back(index);
                self.advance(operations, index)?;
            }
        }
        Ok(())
    }

    /// Queues the lane's next operations, if none are in flight.
    fn advance(&mut self, operations: &mut InFlight<'f>, index: usize) -> Result<(), Errno> {
        let Some(mut lane) = self.lanes[index].filter(|lane| lane.operations == 0) else {
            return Ok(());
        };
        if lane.part.is_empty() {
            self.lanes[index] = None;
            self.turns.retain(|turn| *turn != index);
            // Another lane may be first in order now.
            return (0..self.lanes.len()).try_for_each(|other| self.advance(operations, other));
        }
        if lane.found_end && lane.held == 0 {
            self.ended_at =
                Some(self.ended_at.map_or(lane.part.begin, |at| at.min(lane.part.begin)));
        }
        // Start nothing new after a stop. Bytes in a pipe can be read again.
        if self.stop.is_some() || (self.ended_at.is_some() && lane.held == 0) {
            return Ok(());
        }
        let may_drain = self.may_drain(index);
        if lane.held == 0 {
            let bytes = lane.part.bytes() as usize;
            self.fill(operations, index, lane.part.begin, bytes, may_drain)?;
            lane.operations += 1;
            if may_drain {
                self.drain(operations, index, lane.part.begin, bytes)?;
                lane.operations += 1;
            }
        } else if may_drain {
            self.drain(operations, index, lane.part.begin, lane.held as usize)?;
            lane.operations += 1;
        }
        self.lanes[index] = Some(lane);
        Ok(())
    }

    fn fill(
        &self,
        operations: &mut InFlight<'f>,
        index: usize,
        at: u64,
        bytes: usize,
        is_linked: bool,
    ) -> Result<(), Errno> {
        let from = (self.ends.source.fd(), Some(at));
        operations.splice(
            tag(index, FILL),
            from,
            (self.pipes[index].writer(), None),
            bytes,
            is_linked,
        )
    }

    fn drain(
        &self,
        operations: &mut InFlight<'f>,
        index: usize,
        at: u64,
        bytes: usize,
    ) -> Result<(), Errno> {
        let target = &self.ends.target;
        let to = (target.fd(), target.writes_at_offsets().then_some(at));
        operations.splice(tag(index, DRAIN), (self.pipes[index].reader(), None), to, bytes, false)
    }

    /// Records a completed operation in its lane.
    fn record(&mut self, done: Done, work: &mut Work, meter: &Meter) {
        let index = (done.tag / 2) as usize;
        let Some(lane) = self.lanes.get_mut(index).and_then(Option::as_mut) else { return };
        lane.operations -= 1;
        let stop = match (done.tag % 2, done.result) {
            (FILL, Ok(moved)) => {
                lane.held += moved as i64;
                lane.found_end = moved == 0;
                return;
            }
            (_, Ok(moved)) if moved > 0 => {
                let arrived = Span::new(lane.part.begin, lane.part.begin + moved as u64);
                work.arrived_at(arrived);
                meter.arrived(moved as u64);
                lane.part.begin = arrived.end;
                lane.held -= moved as i64;
                return;
            }
            // A short fill broke the link, or the transfer was cancelled. The lane or `stop` shows
            // which.
            (_, Err(Errno::CANCELED | Errno::INTR)) => return,
            (_, Err(Errno::AGAIN)) => return wait(&[(self.ends.target.fd(), PollFlags::OUT)]),
            (FILL, Err(errno)) => refusal_or_failure("splice", Side::Source, "read", errno),
            (_, Err(errno)) => refusal_or_failure("splice", Side::Target, "write", errno),
            (_, Ok(_)) => Stop::Failed { side: Side::Target, operation: "write", errno: Errno::IO },
        };
        self.stop = more_severe(self.stop.take(), stop);
    }
}
