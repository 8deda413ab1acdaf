//! A program in a lane, which need not know of it: its start, its threads, its end.
//!
//! This process becomes the lane: it makes the changes, starts the program, watches it from another core, and undoes. What it cannot do for
//! lack of a right it says, and goes on; what would harm others it refuses. It is for a program that does nothing else meanwhile: it takes
//! signals, becomes the parent of what the program leaves behind, and waits for it.

mod begin;
mod ended;
mod family;
mod files;
mod prepare;
pub mod start;
mod supervise;
mod threads;
mod why;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use ended::{Demotion, End, Ended, NotApplied};
pub use files::view;

use rustix::process::{child_subreaper, set_child_subreaper};

use crate::guard::StateDirectory;
use crate::guard::guardian::step_aside;
use crate::machine::{Machine, Roots};
use crate::sys::scheduler::{self, Scheduling, Thread};
use crate::sys::signals::keep_ends_of_children;
use crate::tier::View;
use crate::{Error, Policy, Result, Scheduler};

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its file.
    pub path: PathBuf,
    /// What it is called by: the first of what it sees as its arguments.
    pub name: OsString,
    /// The others.
    pub arguments: Vec<OsString>,
}

/// What a run may be told beside the policy.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where lanes know of each other; the user's, if nothing is said.
    pub state: Option<StateDirectory>,
    /// The program that can be a guardian and a start ([`crate::guard::guard`], [`start::start`]): an `evermap`. Looked for, if nothing is said:
    /// where [`crate::guard::GUARDIAN_VARIABLE`] says, beside this program, in `PATH`.
    pub helper: Option<PathBuf>,
    /// Where the machine is looked at.
    pub roots: Roots,
    /// Copies that the program sees instead of their files.
    pub view: View,
    /// What could not be had of the tier: it is in the report with the rest ([`view`] gives both).
    pub not_applied: Vec<NotApplied>,
}

/// Runs a program in a lane, to its end. When this returns, the lane is undone: also if it fails.
///
/// # Errors
/// What the policy cannot have and would have to be told: a core that is taken or not there, a hold that others would suffer from, a
/// program that cannot be started. Then nothing was started. A right that is missing is no error: [`Ended::not_applied`] names it. Nor is what
/// could not be undone of a program that ran: [`Ended::events`] tells, and [`crate::guard::undo`] tries again.
pub fn run(policy: &Policy, program: &Program, options: &Options) -> Result<Ended> {
    verify_match(policy, program)?;
    let state = match &options.state {
        Some(state) => state.clone(),
        None => StateDirectory::of_user()?,
    };
    let began = Instant::now();
    keep_ends_of_children();
    let own = Own::of_this()?;
    let mut ended = Ended::of(program);
    ended.not_applied.clone_from(&options.not_applied);
    let mut prepared = prepare::prepare(policy, options, &state, &own, &mut ended)?;
    if let Some(core) = prepared.changes.core() {
        step_aside(core);
    }
    own.rise(policy, &prepared.machine, &mut ended);
    own.take_orphans();
    let result = supervise::start(policy, program, options, &mut prepared, &mut ended).and_then(
        |mut supervisor| {
            supervisor.watch(&mut ended);
            supervisor.finish(&mut ended)
        },
    );
    let undone = prepared.changes.end();
    drop(own);
    result?;
    ended.take_undone(undone);
    ended.wall_ms = milliseconds(began.elapsed());
    Ok(ended)
}

/// A policy is for the programs that it names, and for no other.
fn verify_match(policy: &Policy, program: &Program) -> Result<()> {
    let Some(pattern) = &policy.app.matches else { return Ok(()) };
    let compiled =
        glob::Pattern::new(pattern).map_err(|error| Error::Unusable(error.to_string()))?;
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

/// How this process was before it was a lane; put back when it no longer is.
struct Own {
    scheduling: Scheduling,
    affinity: BTreeSet<u32>,
    timer_slack_ns: u64,
    is_subreaper: bool,
}

impl Own {
    fn of_this() -> Result<Self> {
        let failed = |source| Error::Io {
            operation: "tell how this process is scheduled, from",
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

    /// What the program leaves behind comes to this process. Where it doesn't, it is found by its environment.
    fn take_orphans(&self) {
        let _ = set_child_subreaper(Some(rustix::process::getpid()));
    }

    /// Above the program, so that one that never sleeps can be told so, even where there is one core.
    fn rise(&self, policy: &Policy, machine: &Machine, ended: &mut Ended) {
        if policy.app.scheduler == Scheduler::Other {
            return;
        }
        let wish = Scheduling::fifo(u32::from(policy.app.priority) + 1);
        if let Err(error) = scheduler::set(Thread::CURRENT, &wish) {
            let lacked = why::not_scheduled(machine, &wish, &error);
            ended.not_applied.push(NotApplied {
                what: "the lane's own watch before all others".into(),
                ..lacked
            });
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // Both only lower what this process has, or give back what it had.
        drop(scheduler::set_back(Thread::CURRENT, &self.scheduling));
        drop(scheduler::set_affinity(Thread::CURRENT, &self.affinity));
        if !self.is_subreaper {
            let _ = set_child_subreaper(None);
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
