//! Runs a plan: each engine continues where the bytes of the one before arrived.
//!
//! Knows two ends, the remaining work and the engines in order, but no names and no attributes.

use std::time::Instant;

use evermap_observe::processor_time;

use crate::end::Ends;
use crate::engines::{self, EngineKind, Stop, Tuning};
use crate::error::Error;
use crate::meter::Meter;
use crate::policy::adapt::{Adapt, WINDOW_BYTES, Window};
use crate::policy::rates::RateCache;
use crate::policy::{BY_NAME, Choice, Facts, Plan, Request, plan, sharing_first};
use crate::span::{Span, Work};

/// Above this cached share of the source, read-ahead and extra lanes are not used.
const ADAPTED_RESIDENT_MAX: f64 = 0.9;
/// Rounds of a race between engines.
const RACE_ROUNDS: usize = 3;

/// Outcome of a plan or a part of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct DriveSummary {
    /// Engines that moved bytes, with counts.
    pub(crate) moved: Vec<(EngineKind, u64)>,
    /// Reason for the first engine.
    pub(crate) why: String,
    /// Engines not used or refused, with reasons.
    pub(crate) rejected: Vec<Choice>,
    /// Events, such as lanes added.
    pub(crate) log: Vec<String>,
}

/// Inputs of a run.
#[derive(Clone)]
pub(crate) struct Drive<'a> {
    pub(crate) ends: &'a Ends<'a>,
    pub(crate) facts: &'a Facts,
    pub(crate) request: &'a Request,
    pub(crate) tuning: &'a Tuning,
    pub(crate) meter: &'a Meter,
    /// Stored measurements.
    pub(crate) rate_cache: &'a RateCache,
    /// Called once, before the first byte is moved. Not called for extents that are shared, which
    /// take no space.
    pub(crate) reserve: &'a dyn Fn(&Work) -> Result<(), Error>,
}

impl DriveSummary {
    /// Adds the bytes of a later run, and the engines that only it rejected. Its reason and log
    /// replace those of this one only if this one moved no bytes.
    pub(crate) fn add(&mut self, step: DriveSummary) {
        step.moved.into_iter().for_each(|(engine, bytes)| note_moved(self, engine, bytes));
        if self.why.is_empty() {
            self.why = step.why;
            self.rejected = step.rejected;
            self.log = step.log;
        } else {
            for choice in step.rejected {
                if !self.rejected.iter().any(|other| other.engine == choice.engine) {
                    self.rejected.push(choice);
                }
            }
        }
    }
}

impl Drive<'_> {
    /// Moves all of `work`.
    pub(crate) fn run(&self, work: &mut Work) -> (DriveSummary, Result<(), Error>) {
        let mut summary = DriveSummary::default();
        let mut facts = self.facts.clone();
        // Share extents first: this does not depend on the cache, whose query takes longer than
        // sharing.
        if let Some(choice) = sharing_first(&facts, self.request) {
            match self.go_through(&[choice], false, work, &mut summary) {
                Ok(()) if work.is_done() => return (summary, Ok(())),
                Ok(()) | Err(Error::Refused { .. }) => facts.sharing_was_tried = true,
                Err(error) => return (summary, Err(error)),
            }
        }
        if self.request.engine.is_none() {
            facts.query_memory(self.ends);
        }
        let drive = Drive { facts: &facts, ..self.clone() };
        let result = drive.run_planned(work, &mut summary);
        (summary, result)
    }

    /// Moves all of `work` by the engines of the plan.
    fn run_planned(&self, work: &mut Work, summary: &mut DriveSummary) -> Result<(), Error> {
        let mut planned = plan(self.facts, self.request);
        let may_race = self.may_race(&planned, work);
        if may_race {
            (self.reserve)(work)?;
            let warm = self.fastest(&planned, work, summary);
            if warm.is_some() {
                planned = plan(&Facts { warm, ..self.facts.clone() }, self.request);
            }
        }
        let Plan { choices, rejected } = planned;
        // Engines that were tried have reported their own reason.
        let untried = rejected
            .into_iter()
            .filter(|not| !summary.rejected.iter().any(|tried| tried.engine == not.engine));
        let untried: Vec<Choice> = untried.collect();
        summary.rejected.extend(untried);
        self.go_through(&choices, may_race, work, summary)
    }

    /// Moves all of `work` by these engines only, in this order.
    pub(crate) fn run_by(
        &self,
        engines: &[EngineKind],
        work: &mut Work,
    ) -> (DriveSummary, Result<(), Error>) {
        let named = |engine: &EngineKind| Choice { engine: *engine, why: BY_NAME.to_string() };
        let choices: Vec<Choice> = engines.iter().map(named).collect();
        let mut summary = DriveSummary::default();
        let result = self.go_through(&choices, false, work, &mut summary);
        (summary, result)
    }

    fn go_through(
        &self,
        choices: &[Choice],
        mut reserved: bool,
        work: &mut Work,
        summary: &mut DriveSummary,
    ) -> Result<(), Error> {
        let mut last_stop = None;
        for choice in choices {
            if work.is_done() {
                break;
            }
            if !reserved && choice.engine != EngineKind::Reflink {
                if self.is_adaptive(choice, work) {
                    // Start read-ahead while space is reserved, which takes 10 ms for 64 MiB on
                    // tmpfs.
                    self.advise(work, 2 * WINDOW_BYTES);
                }
                (self.reserve)(work)?;
                reserved = true;
            }
            let before_bytes = self.meter.arrived_bytes();
            let outcome = match self.is_adaptive(choice, work) {
                true => self.run_adaptive(work, summary),
                false => self.run_engine(choice.engine, self.tuning, work, u64::MAX),
            };
            let moved_bytes = self.meter.arrived_bytes() - before_bytes;
            note_moved(summary, choice.engine, moved_bytes);
            if moved_bytes > 0 && summary.why.is_empty() {
                summary.why.clone_from(&choice.why);
            }
            match outcome {
                Ok(()) => last_stop = None,
                Err(Stop::Refused(why)) => {
                    tracing::debug!(engine = %choice.engine, %why, "refused");
                    summary.rejected.push(Choice { engine: choice.engine, why: why.0.clone() });
                    last_stop = Some((choice.engine, Stop::Refused(why)));
                }
                Err(stop) => return Err(stop.into_error(choice.engine, self.ends)),
            }
        }
        match last_stop {
            Some((engine, stop)) if !work.is_done() => Err(stop.into_error(engine, self.ends)),
            _ => Ok(()),
        }
    }

    /// Runs one engine until the work is done, `bytes_max` have arrived, or it stops. Always drains
    /// it.
    fn run_engine(
        &self,
        kind: EngineKind,
        tuning: &Tuning,
        work: &mut Work,
        bytes_max: u64,
    ) -> Result<(), Stop> {
        let mut engine = engines::make(kind, tuning);
        engine.probe(self.ends).map_err(Stop::Refused)?;
        let until_bytes = self.meter.arrived_bytes().saturating_add(bytes_max);
        let mut outcome = Ok(());
        while outcome.is_ok() && !work.is_done() && self.meter.arrived_bytes() < until_bytes {
            outcome =
                engine.step(self.ends, work, self.meter, until_bytes - self.meter.arrived_bytes());
        }
        let drained = engine.drain(self.ends, work, self.meter);
        outcome.and(drained)
    }

    fn is_adaptive(&self, choice: &Choice, work: &Work) -> bool {
        choice.engine == EngineKind::Splice
            && self.request.engine.is_none()
            && self.ends.have_offsets()
            && work.bytes().is_some_and(|bytes| bytes >= 2 * WINDOW_BYTES)
            && self.facts.resident.is_some_and(|share| share <= ADAPTED_RESIDENT_MAX)
    }

    /// Runs `splice` in windows that are read ahead, and adapts the number of lanes to the
    /// measurements.
    fn run_adaptive(&self, work: &mut Work, summary: &mut DriveSummary) -> Result<(), Stop> {
        let mut adapt = Adapt::new();
        let mut outcome = Ok(());
        while outcome.is_ok() && !work.is_done() {
            self.advise(work, 2 * WINDOW_BYTES);
            let before = (
                self.meter.arrived_bytes(),
                self.meter.fill_ns(),
                self.meter.drain_ns(),
                Instant::now(),
            );
            let tuning = Tuning { lanes: adapt.lanes(), ..self.tuning.clone() };
            outcome = self.run_engine(EngineKind::Splice, &tuning, work, WINDOW_BYTES);
            adapt.observe(Window {
                bytes: self.meter.arrived_bytes() - before.0,
                fill_ns: self.meter.fill_ns() - before.1,
                drain_ns: self.meter.drain_ns() - before.2,
                wall_ns: before.3.elapsed().as_nanos() as u64,
            });
        }
        summary.log.extend(adapt.into_log());
        outcome
    }

    /// Asks the kernel to read ahead the next `bytes`.
    fn advise(&self, work: &Work, bytes: u64) {
        for Span { begin, end } in work.take(bytes) {
            self.meter.called();
            let length = std::num::NonZeroU64::new(end - begin);
            // Advice only: a failure does not affect the copy.
            let _ = rustix::fs::fadvise(
                self.ends.source.fd(),
                begin,
                length,
                rustix::fs::Advice::WillNeed,
            );
        }
    }

    fn may_race(&self, planned: &Plan, work: &Work) -> bool {
        let first = planned.choices.first().map(|choice| choice.engine);
        self.request.engine.is_none()
            && self.ends.have_offsets()
            && matches!(
                first,
                Some(EngineKind::MmapWrite | EngineKind::Splice | EngineKind::CopyFileRange)
            )
            && self.facts.resident.is_some_and(|share| share > ADAPTED_RESIDENT_MAX)
            && work.bytes().is_some()
    }

    /// Returns the fastest engine for cached files between these devices: the stored result, or the
    /// winner of a race by processor time over the first bytes of a large file.
    fn fastest(
        &self,
        planned: &Plan,
        work: &mut Work,
        summary: &mut DriveSummary,
    ) -> Option<EngineKind> {
        let (source, target) = (self.ends.source.device(), self.ends.target.device());
        if let Some(engine) = self.rate_cache.fastest(source, target) {
            return Some(engine);
        }
        if work.bytes().is_none_or(|bytes| bytes < self.tuning.race_bytes_min) {
            return None;
        }
        let mut runners = vec![EngineKind::MmapWrite, EngineKind::Splice];
        // Omit `copy_file_range` if the plan omits it because extents must not be shared.
        if planned.choices.iter().any(|choice| choice.engine == EngineKind::CopyFileRange) {
            runners.push(EngineKind::CopyFileRange);
        }
        let mut best_ns = vec![f64::INFINITY; runners.len()];
        for _ in 0..RACE_ROUNDS {
            for (runner, best_ns) in runners.iter().zip(&mut best_ns) {
                let (before, start) = (self.meter.arrived_bytes(), processor_time());
                // An engine that stops leaves the race. A permanent error will be reported by the
                // plan's engines.
                let outcome =
                    self.run_engine(*runner, self.tuning, work, self.tuning.race_round_bytes);
                let bytes = self.meter.arrived_bytes() - before;
                note_moved(summary, *runner, bytes);
                if outcome.is_err() || bytes == 0 {
                    continue;
                }
                let spent_ns = (processor_time() - start).as_nanos() as f64;
                *best_ns = best_ns.min(spent_ns / (bytes as f64 / (1 << 20) as f64));
            }
        }
        let measured: Vec<(EngineKind, f64)> =
            runners.into_iter().zip(best_ns).filter(|(_, ns)| ns.is_finite()).collect();
        for (engine, ns_per_mib) in &measured {
            summary.log.push(format!("{engine} takes {:.0} us/MiB", ns_per_mib / 1000.0));
        }
        self.rate_cache.store(source, target, &measured);
        measured.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).map(|(engine, _)| engine)
    }
}

fn note_moved(summary: &mut DriveSummary, engine: EngineKind, bytes: u64) {
    if bytes == 0 {
        return;
    }
    match summary.moved.iter_mut().find(|(kind, _)| *kind == engine) {
        Some((_, sum)) => *sum += bytes,
        None => summary.moved.push((engine, bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejecting(engines: &[EngineKind], why: &str) -> DriveSummary {
        let rejected = engines.iter().map(|engine| Choice { engine: *engine, why: why.into() });
        DriveSummary { why: why.into(), rejected: rejected.collect(), ..DriveSummary::default() }
    }

    #[test]
    fn engines_rejected_by_later_runs_are_added_once() {
        let mut all = rejecting(&[EngineKind::Reflink], "first");
        all.add(rejecting(&[EngineKind::Reflink, EngineKind::Splice], "second"));
        all.add(rejecting(&[EngineKind::Splice], "third"));
        let rejected: Vec<_> =
            all.rejected.iter().map(|choice| (choice.engine, choice.why.as_str())).collect();
        assert_eq!(rejected, [(EngineKind::Reflink, "first"), (EngineKind::Splice, "second")]);
        assert_eq!(all.why, "first");
    }
}
