//! Engines `uring` and `uring-direct`: several parts of a file are read and written in parallel,
//! each through its own buffer.
//!
//! With direct I/O the device's queue stays full and the processor copies no byte. Through the
//! cache each byte is copied twice, as with `read` and `write`, and it is never faster than those.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::queue::{Done, InFlight, Ring};
use super::{Parts, more_severe, refuse_open, ring_failed};
use crate::end::{Ends, Kind};
use crate::engines::calls::refusal_or_failure;
use crate::engines::direct::{
    Blocks, move_unaligned, refuse_checksums, reopen_source, reopen_target,
};
use crate::engines::{Engine, EngineKind, Refusal, Stop, Tuning};
use crate::error::Side;
use crate::meter::Meter;
use crate::span::{Span, Work};
use crate::sys::{Memory, page_bytes};

/// The engines `uring` and `uring-direct`.
#[derive(Debug)]
pub struct Uring {
    kind: EngineKind,
    depth: usize,
    slot_bytes: usize,
    ring: Option<Ring>,
}

impl Uring {
    /// Creates the engine with `tuning.ring_depth` buffers of `tuning.chunk_bytes`, or
    /// `tuning.ring_chunk_bytes` for direct I/O.
    pub fn new(kind: EngineKind, tuning: &Tuning) -> Uring {
        let slot_bytes = match kind {
            EngineKind::UringDirect => tuning.ring_chunk_bytes,
            _ => tuning.chunk_bytes,
        };
        let slot_bytes = slot_bytes
            .next_multiple_of(page_bytes() as usize)
            .clamp(page_bytes() as usize, 1 << 30);
        Uring { kind, depth: tuning.ring_depth.clamp(1, 256), slot_bytes, ring: None }
    }

    fn is_direct(&self) -> bool {
        self.kind == EngineKind::UringDirect
    }

    /// Returns the ring. Creates it if there is none that this thread may use.
    fn ring(&mut self) -> Result<&mut Ring, Refusal> {
        let ring = match self.ring.take().filter(Ring::is_usable) {
            Some(ring) => ring,
            None => {
                let memory = Memory::new(self.depth, self.slot_bytes).map_err(|errno| {
                    Refusal::new(format!("cannot allocate ring buffers: {errno}"))
                })?;
                Ring::new(self.depth, memory)?
            }
        };
        Ok(self.ring.insert(ring))
    }

    /// Opens both files for direct I/O. Returns them and the block size.
    fn open_direct(&self, ends: &Ends<'_>) -> Result<(OwnedFd, OwnedFd, Blocks), Refusal> {
        let blocks = Blocks::of([&ends.source, &ends.target])?;
        if !(self.slot_bytes as u64).is_multiple_of(blocks.bytes()) {
            return Err(Refusal::new(format!(
                "the buffer size of {} bytes is not a multiple of the block size",
                self.slot_bytes
            )));
        }
        refuse_checksums(&ends.target)?;
        Ok((reopen_source(ends)?, reopen_target(ends)?, blocks))
    }
}

impl Engine for Uring {
    fn kind(&self) -> EngineKind {
        self.kind
    }

    fn probe(&mut self, ends: &Ends<'_>) -> Result<(), Refusal> {
        if ends.source.kind() != Kind::File || !ends.have_offsets() {
            return Err(Refusal::new(
                "io_uring copies need a regular file and a target with offsets",
            ));
        }
        if self.is_direct() {
            self.open_direct(ends)?;
        }
        self.ring().map(drop)
    }

    fn step(
        &mut self,
        ends: &Ends<'_>,
        work: &mut Work,
        meter: &Meter,
        bytes_max: u64,
    ) -> Result<(), Stop> {
        refuse_open(work)?;
        let slot_bytes = self.slot_bytes as u64;
        if !self.is_direct() {
            let parts = Parts::new(work.take(bytes_max), slot_bytes);
            let files = (ends.source.fd(), ends.target.fd());
            let ring = self.ring().map_err(Stop::Refused)?;
            return Copying::new(files, parts, 1).run(ring, ends, work, meter, Vec::new());
        }
        let (source, target, blocks) = self.open_direct(ends).map_err(Stop::Refused)?;
        let (mut unaligned, mut whole) = (Vec::new(), Vec::new());
        for span in work.take(blocks.whole(bytes_max)) {
            let (head, body, tail) = blocks.split(span);
            unaligned.extend([head, tail]);
            whole.push(body);
        }
        let parts = Parts::new(whole, slot_bytes);
        let ring = self.ring().map_err(Stop::Refused)?;
        Copying::new((source.as_fd(), target.as_fd()), parts, blocks.bytes())
            .run(ring, ends, work, meter, unaligned)
    }

    fn drain(&mut self, _ends: &Ends<'_>, _work: &mut Work, _meter: &Meter) -> Result<(), Stop> {
        // Frees the buffers: they hold only file data, which can be read again.
        self.ring = None;
        Ok(())
    }
}

/// Part of the file in a buffer: read up to `filled`, written up to `written`.
#[derive(Debug, Clone, Copy)]
struct Slot {
    part: Span,
    filled: usize,
    written: usize,
}

/// State of one step.
#[derive(Debug)]
struct Copying<'f> {
    source: BorrowedFd<'f>,
    target: BorrowedFd<'f>,
    parts: Parts,
    slots: Vec<Option<Slot>>,
    /// Alignment of reads and writes.
    block_bytes: u64,
    /// Parts that were moved only partly or not at all. Retried by ordinary reads and writes, which
    /// report the cause.
    retries: Vec<Span>,
    stop: Option<Stop>,
}

impl<'f> Copying<'f> {
    fn new(files: (BorrowedFd<'f>, BorrowedFd<'f>), parts: Parts, block_bytes: u64) -> Copying<'f> {
        let (source, target) = files;
        Copying {
            source,
            target,
            parts,
            slots: Vec::new(),
            block_bytes,
            retries: Vec::new(),
            stop: None,
        }
    }

    /// Moves all parts, then the unaligned and retried ones.
    fn run(
        mut self,
        ring: &'f mut Ring,
        ends: &Ends<'_>,
        work: &mut Work,
        meter: &Meter,
        unaligned: Vec<Span>,
    ) -> Result<(), Stop> {
        self.slots = vec![None; ring.slots()];
        let mut operations = ring.operations();
        let outcome = self.process(&mut operations, work, meter);
        drop(operations);
        outcome?;
        if let Some(stop) = self.stop {
            return Err(stop);
        }
        let mut others = unaligned;
        others.extend(self.retries);
        others.sort_by_key(|part| part.begin);
        others.into_iter().try_for_each(|part| move_unaligned(ends, work, meter, part))
    }

    /// Processes completions until no operation is in flight and none is to follow.
    fn process(
        &mut self,
        operations: &mut InFlight<'f>,
        work: &mut Work,
        meter: &Meter,
    ) -> Result<(), Stop> {
        loop {
            if meter.is_cancelled() {
                self.stop = more_severe(self.stop.take(), Stop::Cancelled);
            }
            self.begin_parts(operations).map_err(ring_failed)?;
            if operations.in_flight() == 0 {
                return Ok(());
            }
            for done in operations.wait(meter).map_err(ring_failed)? {
                self.advance(operations, done, work, meter).map_err(ring_failed)?;
            }
        }
    }

    /// Starts reading a part in each free slot.
    fn begin_parts(&mut self, operations: &mut InFlight<'f>) -> Result<(), Errno> {
        for index in 0..self.slots.len() {
            if self.stop.is_some() || !self.retries.is_empty() {
                return Ok(());
            }
            if self.slots[index].is_none() {
                let Some(part) = self.parts.next() else { return Ok(()) };
                self.slots[index] = Some(Slot { part, filled: 0, written: 0 });
                self.push(operations, index)?;
            }
        }
        Ok(())
    }

    /// Queues the next operation of a slot.
    fn push(&self, operations: &mut InFlight<'f>, index: usize) -> Result<(), Errno> {
        let Some(Slot { part, filled, written }) = self.slots[index] else { return Ok(()) };
        let bytes = part.bytes() as usize;
        match filled < bytes {
            true => operations.read(
                index as u64,
                self.source,
                index,
                filled..bytes,
                part.begin + filled as u64,
            ),
            false => operations.write(
                index as u64,
                self.target,
                index,
                written..bytes,
                part.begin + written as u64,
            ),
        }
    }

    /// Handles a completed operation of a slot.
    fn advance(
        &mut self,
        operations: &mut InFlight<'f>,
        done: Done,
        work: &mut Work,
        meter: &Meter,
    ) -> Result<(), Errno> {
        let index = done.tag as usize;
        let Some(mut slot) = self.slots.get_mut(index).and_then(Option::take) else {
            return Ok(());
        };
        let is_filled = slot.filled as u64 == slot.part.bytes();
        match done.result {
            Ok(moved) if is_filled && moved > 0 => {
                let at = slot.part.begin + slot.written as u64;
                work.arrived_at(Span::new(at, at + moved as u64));
                meter.arrived(moved as u64);
                slot.written += moved;
            }
            Ok(moved) if moved > 0 => slot.filled += moved,
            Err(Errno::INTR) => {}
            Err(errno) if !matches!(errno, Errno::AGAIN | Errno::CANCELED) => {
                let stop = match is_filled {
                    true => refusal_or_failure("a write in a ring", Side::Target, "write", errno),
                    false => refusal_or_failure("a read in a ring", Side::Source, "read", errno),
                };
                self.stop = more_severe(self.stop.take(), stop);
                return Ok(());
            }
            // Nothing moved: perhaps the source has ended, or the kernel cancelled an operation it
            // had no thread for, as under a storm of signals.
            _ => {
                self.retries.push(Span::new(slot.part.begin + slot.written as u64, slot.part.end));
                return Ok(());
            }
        }
        let is_over = slot.written as u64 == slot.part.bytes();
        if is_over || (self.stop.is_some() && slot.filled as u64 != slot.part.bytes()) {
            return Ok(());
        }
        let at = if is_filled { slot.written } else { slot.filled } as u64;
        if !at.is_multiple_of(self.block_bytes) {
            // Stopped inside a block, where direct I/O cannot continue.
            self.retries.push(Span::new(slot.part.begin + slot.written as u64, slot.part.end));
            return Ok(());
        }
        self.slots[index] = Some(slot);
        self.push(operations, index)
    }
}
