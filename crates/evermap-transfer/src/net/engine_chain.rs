//! Chain of engines for one connection.
//!
//! The first engine that supports the ends moves span after span. If the kernel refuses it, the
//! next one continues: progress is tracked by the target's offsets, or by the order of a stream.

use std::collections::VecDeque;

use crate::end::Ends;
use crate::engines::{self, Engine, EngineKind, Refusal, Stop, Tuning};
use crate::meter::Meter;
use crate::report::NotUsed;
use crate::span::Work;

/// Bytes per engine step. Limits only how much an engine plans at a time.
const STEP_BYTES: u64 = 256 << 20;

/// Engines from a file to a socket. The first two copy nothing and need the same processor time;
/// `splice` keeps larger pieces in flight and was faster. `read-write` copies twice and works
/// everywhere.
pub(super) const TO_SOCKET: [EngineKind; 3] =
    [EngineKind::Splice, EngineKind::Sendfile, EngineKind::ReadWrite];

/// Engines from a socket: one copy, or two.
pub(super) const FROM_SOCKET: [EngineKind; 2] = [EngineKind::Splice, EngineKind::ReadWrite];

/// The current engine of a connection, and those to try next.
pub(super) struct EngineChain {
    engine: Option<Box<dyn Engine>>,
    next: VecDeque<EngineKind>,
    tuning: Tuning,
    /// Engine that moved bytes last.
    used: Option<EngineKind>,
    not_used: Vec<NotUsed>,
}

impl EngineChain {
    /// Creates a chain that tries these engines in order.
    pub(super) fn new(kinds: &[EngineKind]) -> EngineChain {
        EngineChain {
            engine: None,
            next: kinds.iter().copied().collect(),
            tuning: Tuning::default(),
            used: None,
            not_used: Vec::new(),
        }
    }

    /// Moves all of `work` to the target.
    pub(super) fn transfer(
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
                    None => return Err(Stop::Refused(self.last_refusal())),
                },
            };
            self.used = Some(engine.kind());
            match engine.step(ends, work, meter, STEP_BYTES) {
                Ok(()) => self.engine = Some(engine),
                Err(Stop::Refused(why)) => {
                    tracing::debug!(engine = %engine.kind(), %why, "refused, continuing with the next engine");
                    self.not_used.push(NotUsed { engine: engine.kind(), why: why.0 });
                    engine.drain(ends, work, meter)?;
                }
                // A failure ends the connection, so bytes held by the engine are not needed.
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

    fn last_refusal(&self) -> Refusal {
        match self.not_used.last() {
            Some(not) => Refusal::new(not.why.clone()),
            None => Refusal::new("no engine was given"),
        }
    }

    /// Returns the engine that moved bytes last.
    pub(super) fn used(&self) -> Option<EngineKind> {
        self.used
    }

    /// Returns the refused engines with reasons.
    pub(super) fn not_used(&self) -> &[NotUsed] {
        &self.not_used
    }
}
