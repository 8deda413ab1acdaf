//! Moves processes that the program starts off the lane's core.
//!
//! The kernel gives new processes ordinary scheduling (`SCHED_FLAG_RESET_ON_FORK`), but lets them
//! inherit the lane's core, cpuset and timer slack. They are found and moved, if possible before
//! they execute another program; their own children then begin off the core.

use std::collections::{BTreeSet, HashSet};

use crate::guard::changes::Changes;
use crate::guard::undo::{release, restore_timer_slack};
use crate::hold::tree::RealTree;
use crate::process::{Process, Stat, children, descendants, threads};

/// Number of further polls of a new process.
const REPOLLS: u8 = 2;
/// Minimum number of remembered processes before ended ones are removed.
const MOVED_MIN: usize = 1_000;

/// Descendants of the program.
#[derive(Debug)]
pub(super) struct Family {
    program: u32,
    /// Former children of this process, and the guardian.
    excluded: HashSet<u32>,
    /// Processes that were moved off the core. Ended ones are removed when the number exceeds
    /// `moved_max`.
    moved: HashSet<Process>,
    moved_max: usize,
    /// Recently moved processes and their remaining polls: one that forked while it was moved has
    /// left a child on the core.
    recent: Vec<(Process, u8)>,
}

impl Family {
    /// Makes the family. Must be called before the program starts.
    pub(super) fn new() -> Self {
        let own = std::process::id();
        let excluded = children(own, &threads(own)).into_iter().collect();
        let moved = HashSet::new();
        Self { program: 0, excluded, moved, moved_max: MOVED_MIN, recent: Vec::new() }
    }

    pub(super) fn set_program(&mut self, program: u32) {
        self.program = program;
    }

    /// Excludes a process of the lane itself, such as the guardian.
    pub(super) fn exclude(&mut self, pid: u32) {
        self.excluded.insert(pid);
    }

    /// Moves new processes off the core. `of_program` are the program's threads. Returns the number
    /// of new processes.
    pub(super) fn move_new_off(&mut self, changes: &Changes, of_program: &[u32]) -> usize {
        // This process adopts orphans.
        let mut found = children(self.program, of_program);
        found.extend(self.orphans());
        let again = std::mem::take(&mut self.recent);
        let alive = again.iter().filter(|(process, _)| process.is_alive());
        let alive: Vec<u32> = alive.map(|(process, _)| process.pid).collect();
        found.extend(descendants(&alive));
        self.recent =
            again.into_iter().filter_map(|(one, left)| Some((one, left.checked_sub(1)?))).collect();
        let mut new = 0;
        while let Some(pid) = found.pop() {
            let Some(process) = Process::of(pid) else { continue };
            if self.moved.insert(process) {
                new += 1;
                self.recent.push((process, REPOLLS));
                reset_inherited(changes, pid);
                found.extend(children(pid, &threads(pid)));
            }
        }
        if let Some(hold) = changes.held()
            && new > 0
        {
            hold.move_children_off(&RealTree, self.program);
        }
        new
    }

    /// Processes that this one adopted.
    pub(super) fn orphans(&self) -> Vec<u32> {
        let own = std::process::id();
        let mut all = children(own, &threads(own));
        all.retain(|pid| *pid != self.program && !self.excluded.contains(pid));
        all
    }

    /// Reaps orphans that have ended. Returns the number of living ones.
    pub(super) fn reap(&mut self) -> usize {
        let mut alive = 0;
        for pid in self.orphans() {
            match Stat::of(pid) {
                Some(stat) if stat.is_alive() => alive += 1,
                _ => drop(crate::sys::wait::try_wait(pid)),
            }
        }
        // Bounds the set by the number of living processes; checked only when it has doubled.
        if self.moved.len() > self.moved_max {
            self.moved.retain(Process::is_alive);
            self.moved_max = MOVED_MIN.max(2 * self.moved.len());
        }
        alive
    }
}

/// Resets what a process inherited from the lane: the core, if there is one, and the timer slack.
fn reset_inherited(changes: &Changes, pid: u32) {
    if let Some(core) = changes.core() {
        release(pid, &BTreeSet::from([core]), changes.before());
    }
    restore_timer_slack(pid, changes.before());
}
