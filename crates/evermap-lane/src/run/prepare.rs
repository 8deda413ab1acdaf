//! Prepares a lane before its program starts: core, claim, journal, guardian and hold; and the
//! alternatives for scheduling the program.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::notes::Notes;
use super::start::SchedulingChoice;
use super::{LaneProcess, NotApplied, Options, why};
use crate::guard::changes::Changes;
use crate::guard::journal::FormerState;
use crate::guard::{Claim, StateDirectory, undo};
use crate::machine::Machine;
use crate::policy::Core;
use crate::sys::scheduler::Scheduling;
use crate::workqueues::{self, NotExcluded, Outcome};
use crate::{Applied, Error, Policy, Result, Scheduler, Share};

/// Time that a real-time thread of a program without a period may run without sleeping.
const OVERRUN_NS: u64 = 100_000_000;

/// Lane without a program.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) machine: Machine,
    pub(super) changes: Changes,
    /// Alternatives for scheduling the program, best first.
    pub(super) choices: Vec<SchedulingChoice>,
    /// Time that a real-time thread may run without sleeping.
    pub(super) limit_ns: u64,
    pub(super) notes: Notes,
}

pub(super) fn prepare(
    policy: &Policy,
    options: &Options,
    state: &StateDirectory,
    own: &LaneProcess,
    command: &str,
) -> Result<Prepared> {
    let mut notes = Notes { not_applied: options.not_applied.clone(), ..Notes::default() };
    policy.verify().map_err(Error::InvalidPolicy)?;
    let period = policy.period().map_err(Error::InvalidPolicy)?;
    undo_abandoned(state, &mut notes)?;
    let machine = Machine::detect_in(&options.roots)?;
    let claim = match policy.app.share {
        Share::Off => {
            if let Core::Number(core) = policy.app.core {
                notes.not_applied.push(why::core_without_share(core));
            }
            None
        }
        Share::Lend | Share::Hold => {
            let (claim, why) = Claim::choose(&machine, policy.app.core, state)?;
            notes.core_why = why;
            Some(claim)
        }
    };
    notes.core = claim.as_ref().map(Claim::core);
    let before = FormerState {
        scheduling: own.scheduling,
        affinity: own.affinity.clone(),
        timer_slack_ns: own.timer_slack_ns,
    };
    let mut changes = Changes::begin(state, claim, command, before)?;
    changes.guard(options.helper.as_deref(), policy.guard.max_time_s.map(Duration::from_secs))?;
    if policy.wants_workqueues_away() {
        exclude_workqueues(&mut changes, options, &mut notes)?;
    }
    if let (Share::Hold, Some(core)) = (policy.app.share, changes.core()) {
        hold(&mut changes, core, &machine, &mut notes)?;
    }
    let period_ns = period.map(|period| period.ns());
    let choices = choices(policy, period_ns, changes.core(), own, &mut notes)?;
    let limit_ns =
        period.map_or(OVERRUN_NS, |period| period.ns().saturating_mul(policy.guard.max_overrun));
    Ok(Prepared { machine, changes, choices, limit_ns, notes })
}

/// Undoes lanes that were left behind, and reports them.
fn undo_abandoned(state: &StateDirectory, notes: &mut Notes) -> Result<()> {
    let undone = undo(state)?;
    for lane in undone.lanes {
        let did = if lane.did.is_empty() {
            "nothing was left to undo".into()
        } else {
            lane.did.join("; ")
        };
        notes.events.push(format!("lane {} was left behind and has been undone: {did}", lane.id));
    }
    notes.events.extend(undone.failed.iter().map(Error::to_string));
    Ok(())
}

pub(super) fn exclude_workqueues(
    changes: &mut Changes,
    options: &Options,
    notes: &mut Notes,
) -> Result<()> {
    match changes.exclude_workqueues(&options.roots)? {
        Outcome::Excluded => notes.applied.push(Applied::Workqueues),
        Outcome::NotNeeded => {}
        Outcome::Refused(NotExcluded { why, remedy }) => {
            notes.not_applied.push(NotApplied { what: workqueues::LABEL.into(), why, remedy })
        }
    }
    Ok(())
}

fn hold(changes: &mut Changes, core: u32, machine: &Machine, notes: &mut Notes) -> Result<()> {
    match changes.hold(core, &machine.groups) {
        Ok(()) => {
            let groups = changes.held().map(|hold| hold.groups()).unwrap_or_default();
            let groups = groups.into_iter().map(Path::to_path_buf).collect();
            notes.applied.push(Applied::HeldCore { core, groups, why: Vec::new() });
            Ok(())
        }
        Err(Error::HoldRefused { why, .. }) if why.is_lack_of_right() => {
            notes.not_applied.push(NotApplied {
                what: "the core held for the program alone (it is lent to other programs instead)"
                    .into(),
                why: why.to_string(),
                remedy: "`evermap lane check` shows what is missing".into(),
            });
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Alternatives for scheduling the program, from the best to one that is always possible.
fn choices(
    policy: &Policy,
    period_ns: Option<u64>,
    core: Option<u32>,
    own: &LaneProcess,
    notes: &mut Notes,
) -> Result<Vec<SchedulingChoice>> {
    let app = &policy.app;
    let pinned: BTreeSet<u32> = core.map_or_else(|| own.affinity.clone(), |core| [core].into());
    let fifo = Scheduling::fifo(app.priority.into());
    let mut choices = Vec::new();
    let choice = |affinity: &BTreeSet<u32>, scheduling| SchedulingChoice {
        affinity: affinity.clone(),
        scheduling,
    };
    if app.scheduler == Scheduler::Deadline {
        let needs_no_core = match app.share {
            Share::Off => true,
            Share::Lend => app.core == Core::Auto,
            Share::Hold => false,
        };
        let deadline_ns = policy.deadline_ns().map_err(Error::InvalidPolicy)?;
        match (needs_no_core, period_ns, deadline_ns) {
            (true, Some(period_ns), Some(deadline_ns)) => {
                let budget_ns = app.budget_us.map_or(deadline_ns / 5 * 4, |us| us * 1_000);
                let scheduling = Scheduling::deadline(budget_ns, deadline_ns, period_ns);
                choices.push(choice(&own.affinity, scheduling));
            }
            _ => notes.not_applied.push(why::pinned_deadline()),
        }
    }
    if app.scheduler != Scheduler::Other {
        choices.push(choice(&pinned, fifo));
    }
    choices.push(choice(&pinned, own.scheduling));
    // The core may have gone offline since it was chosen.
    choices.push(choice(&own.affinity, own.scheduling));
    Ok(choices)
}
