//! Engines in the order in which they are tried, for one connection.
//!
//! The first that serves moves span after span. When the kernel refuses it, the next one goes on where it was: the account of
//! what has arrived is kept by offsets at the target, or by the order of a stream.

use std::collections::VecDeque;

use crate::end::Ends;
use crate::engines::{self, Engine, EngineKind, Stop, Tuning, WhyNot};
use crate::meter::Meter;
use crate::report::NotUsed;
use crate::span::Work;

/// A step's bytes: between two steps nothing is done here, so the figure only bounds what an engine plans at a time.
const STEP_BYTES: u64 = 256 << 20;

/// From a file to a socket: no copy with the first two, and no difference in processor time between them; `splice` has
/// larger pieces on their way and was quicker. `read-write` copies twice and works everywhere.
pub(super) const TO_A_SOCKET: [EngineKind; 3] =
    [EngineKind::Splice, EngineKind::Sendfile, EngineKind::ReadWrite];

/// From a socket: one copy, or two.
pub(super) const FROM_A_SOCKET: [EngineKind; 2] = [EngineKind::Splice, EngineKind::ReadWrite];

/// The engine of one connection, and those that would follow.
pub(super) struct Carrier {
    engine: Option<Box<dyn Engine>>,
    next: VecDeque<EngineKind>,
    tuning: Tuning,
    /// The one that moved bytes last.
    used: Option<EngineKind>,
    not_used: Vec<NotUsed>,
}

impl Carrier {
    /// Tries these, in this order.
    pub(super) fn new(kinds: &[EngineKind]) -> Carrier {
        Carrier {
            engine: None,
            next: kinds.iter().copied().collect(),
            tuning: Tuning::default(),
            used: None,
            not_used: Vec::new(),
        }
    }

    /// Brings all of `work` to its target.
    pub(super) fn carry(
        &mut self,
        ends: &Ends<'_>,
        work: &mut Work,
        meter: &Meter,
    ) -> Result<(), Stop> {
        while !work.is_done() {
            let mut engine = match self.engine.take() {
                Some(engine) => engine,
                None => match self.next_engine(ends) {
                    Some(engine) => engine,
                    None => return Err(Stop::Refused(self.why_none())),
                },
            };
            self.used = Some(engine.kind());
            match engine.step(ends, work, meter, STEP_BYTES) {
                Ok(()) => self.engine = Some(engine),
                Err(Stop::Refused(why)) => {
                    tracing::debug!(engine = %engine.kind(), %why, "the next engine goes on");
                    self.not_used.push(NotUsed { engine: engine.kind(), why: why.0 });
                    engine.drain(ends, work, meter)?;
                }
                // What failed fails the connection: what the engine still holds will not be missed.
                Err(stop) => return Err(stop),
            }
        }
        Ok(())
    }

    fn next_engine(&mut self, ends: &Ends<'_>) -> Option<Box<dyn Engine>> {
        while let Some(kind) = self.next.pop_front() {
            let mut engine = engines::make(kind, &self.tuning);
            match engine.probe(ends) {
                Ok(()) => return Some(engine),
                Err(why) => self.not_used.push(NotUsed { engine: kind, why: why.0 }),
            }
        }
        None
    }

    fn why_none(&self) -> WhyNot {
        match self.not_used.last() {
            Some(not) => WhyNot::new(not.why.clone()),
            None => WhyNot::new("no engine was named"),
        }
    }

    /// The engine that moved bytes last.
    pub(super) fn used(&self) -> Option<EngineKind> {
        self.used
    }

    /// Those that would have come before, and why they did not serve.
    pub(super) fn not_used(&self) -> &[NotUsed] {
        &self.not_used
    }
}
