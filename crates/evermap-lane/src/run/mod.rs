//! Runs an unmodified program in a lane: its start, its threads, its end.
//!
//! This process becomes the lane: it makes the changes, starts the program, watches it from another
//! core, and undoes the changes. It goes on without parts for which it lacks a right, and reports
//! them; it refuses changes that would harm other programs. It must run in a process that does
//! nothing else: it handles signals, adopts the program's orphans, and waits for the program.

mod begin;
mod family;
mod files;
mod notes;
mod prepare;
mod report;
pub mod start;
mod supervise;
mod threads;
mod why;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub use files::view;
pub use notes::{Demotion, NotApplied};
pub use report::{End, RunReport};

use rustix::process::{child_subreaper, set_child_subreaper};

use self::notes::Notes;
use self::prepare::Prepared;
use crate::guard::StateDirectory;
use crate::guard::guardian::avoid_core;
use crate::machine::{Machine, Roots};
use crate::sys::scheduler::{self, Scheduling, Thread};
use crate::sys::signals::report_child_exits;
use crate::tier::View;
use crate::{Error, Policy, Result, Scheduler};

/// Program to run.
#[derive(Clone, Debug)]
pub struct Program {
    /// Path of the executable.
    pub path: PathBuf,
    /// First argument (`argv[0]`).
    pub name: OsString,
    /// Other arguments.
    pub arguments: Vec<OsString>,
}

impl Program {
    /// Returns the program's name and arguments, for messages.
    fn command(&self) -> String {
        let words = std::iter::once(&self.name).chain(&self.arguments);
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }
}

/// Options of a run in addition to the policy.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// State directory of lanes. Default: the user's.
    pub state: Option<StateDirectory>,
    /// Program that serves as guardian and starts programs ([`crate::guard::guard`],
    /// [`start::start`]): an `evermap`. Default: the path in [`crate::guard::GUARDIAN_VARIABLE`],
    /// else `evermap` beside this program, else in `PATH`.
    pub helper: Option<PathBuf>,
    /// Directories of the machine's description.
    pub roots: Roots,
    /// Copies that the program sees in place of files.
    pub view: View,
    /// Parts of the tier that were not applied, to be added to the report ([`view`] returns both).
    pub not_applied: Vec<NotApplied>,
}

/// Runs a program in a lane until it ends. When this returns, the lane is undone, even after an
/// error.
///
/// # Errors
/// Requirements of the policy that cannot be met: a core that is taken or absent, a hold that would
/// harm other programs, a program that cannot be started. The program was not started then. A
/// missing right does not stop the run: [`RunReport::not_applied`] names it. If a change cannot be
/// undone after the program ran, [`RunReport::events`] reports it, and [`crate::guard::undo`] tries
/// again.
pub fn run(policy: &Policy, program: &Program, options: &Options) -> Result<RunReport> {
    verify_match(policy, program)?;
    let state = match &options.state {
        Some(state) => state.clone(),
        None => StateDirectory::of_user()?,
    };
    let began = Instant::now();
    report_child_exits();
    let own = LaneProcess::of_this()?;
    let command = program.command();
    let mut prepared = prepare::prepare(policy, options, &state, &own, &command)?;
    if let Some(core) = prepared.changes.core() {
        avoid_core(core);
    }
    own.raise_priority(policy, &prepared.machine, &mut prepared.notes);
    own.adopt_orphans();
    let outcome =
        supervise::start(policy, program, options, &mut prepared).and_then(|mut supervisor| {
            supervisor.watch();
            supervisor.finish()
        });
    let Prepared { mut changes, mut notes, .. } = prepared;
    let undone = changes.end();
    drop(own);
    let outcome = outcome?;
    notes.add_undone(undone);
    Ok(RunReport::of(command, notes, outcome, began.elapsed()))
}

/// Checks that the policy's `match` covers the program.
fn verify_match(policy: &Policy, program: &Program) -> Result<()> {
    let Some(pattern) = &policy.app.matches else { return Ok(()) };
    let compiled =
        glob::Pattern::new(pattern).map_err(|error| Error::InvalidPolicy(error.to_string()))?;
    let path = std::path::absolute(&program.path).unwrap_or_else(|_| program.path.clone());
    let real = path.canonicalize().unwrap_or_else(|_| path.clone());
    let name = |path: &Path| path.file_name().map(PathBuf::from).unwrap_or_default();
    let is_for =
        [name(&path), path.clone(), name(&real), real].iter().any(|one| compiled.matches_path(one));
    if is_for {
        return Ok(());
    }
    Err(Error::NotForProgram { pattern: pattern.clone(), program: path })
}

/// Former state of this process, restored when dropped.
struct LaneProcess {
    scheduling: Scheduling,
    affinity: BTreeSet<u32>,
    timer_slack_ns: u64,
    is_subreaper: bool,
}

impl LaneProcess {
    fn of_this() -> Result<Self> {
        let failed = |source| Error::Io {
            operation: "read the scheduling of this process from",
            path: "/proc/self".into(),
            source,
        };
        Ok(Self {
            scheduling: scheduler::get(Thread::CURRENT).map_err(failed)?,
            affinity: scheduler::affinity(Thread::CURRENT).map_err(failed)?,
            timer_slack_ns: scheduler::timer_slack_ns().map_err(failed)?,
            is_subreaper: child_subreaper().is_ok_and(|now| now.is_some()),
        })
    }

    /// Adopts orphans of the program. If the kernel refuses, they are found by their environment.
    fn adopt_orphans(&self) {
        let _ = set_child_subreaper(Some(rustix::process::getpid()));
    }

    /// Raises this process above the program, so that it can demote a program that never sleeps,
    /// even on a machine with one core.
    fn raise_priority(&self, policy: &Policy, machine: &Machine, notes: &mut Notes) {
        if policy.app.scheduler == Scheduler::Other {
            return;
        }
        let choice = Scheduling::fifo(u32::from(policy.app.priority) + 1);
        if let Err(error) = scheduler::set(Thread::CURRENT, &choice) {
            let lacked = why::not_scheduled(machine, &choice, &error);
            notes.not_applied.push(NotApplied {
                what: "the lane's own priority above the program".into(),
                ..lacked
            });
        }
    }
}

impl Drop for LaneProcess {
    fn drop(&mut self) {
        // These calls only lower priorities or restore the former state.
        drop(scheduler::restore(Thread::CURRENT, &self.scheduling));
        drop(scheduler::set_affinity(Thread::CURRENT, &self.affinity));
        if !self.is_subreaper {
            let _ = set_child_subreaper(None);
        }
    }
}
