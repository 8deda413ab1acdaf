//! What the program starts is no part of the lane: it goes to where all others run.
//!
//! The kernel makes new processes ordinary (`SCHED_FLAG_RESET_ON_FORK`), but lets them inherit the lane's core, cpuset and timers. They
//! are looked for and sent away, before they have become programs of their own if possible; what they start then is away from the beginning.

use std::collections::{BTreeSet, HashSet};

use crate::guard::changes::Changes;
use crate::guard::undo::{release, timers_back};
use crate::hold::tree::Files;
use crate::process::{Process, Stat, children, descendants, threads};

/// How often a new process is looked at again.
const LOOKS: u8 = 2;
/// So many are remembered before it is asked which of them have ended.
const SETTLED_MIN: usize = 1_000;

/// The program's descendants.
#[derive(Debug)]
pub(super) struct Family {
    program: u32,
    /// Children of this process that it had before, and the guardian.
    strangers: HashSet<u32>,
    /// Those that were sent away. Those that have ended are forgotten when there are as many as this.
    settled: HashSet<Process>,
    settled_max: usize,
    /// Of these, those that are looked at again, and how often: one that was sent away while it forked has left a child on the core.
    fresh: Vec<(Process, u8)>,
}

impl Family {
    /// To be made before the program is started.
    pub(super) fn new() -> Self {
        let own = std::process::id();
        let strangers = children(own, &threads(own)).into_iter().collect();
        let settled = HashSet::new();
        Self { program: 0, strangers, settled, settled_max: SETTLED_MIN, fresh: Vec::new() }
    }

    pub(super) fn of(&mut self, program: u32) {
        self.program = program;
    }

    /// The guardian is nobody's family.
    pub(super) fn add_stranger(&mut self, pid: u32) {
        self.strangers.insert(pid);
    }

    /// Sends away what was started since. `of_program` are the program's threads. Gives how many processes are new.
    pub(super) fn settle(&mut self, changes: &Changes, of_program: &[u32]) -> usize {
        // Whoever's parent ends comes to this process.
        let mut found = children(self.program, of_program);
        found.extend(self.orphans());
        let again = std::mem::take(&mut self.fresh);
        let alive = again.iter().filter(|(process, _)| process.is_alive());
        let alive: Vec<u32> = alive.map(|(process, _)| process.pid).collect();
        found.extend(descendants(&alive));
        self.fresh =
            again.into_iter().filter_map(|(one, left)| Some((one, left.checked_sub(1)?))).collect();
        let mut new = 0;
        while let Some(pid) = found.pop() {
            let Some(process) = Process::of(pid) else { continue };
            if self.settled.insert(process) {
                new += 1;
                self.fresh.push((process, LOOKS));
                send_away(changes, pid);
                found.extend(children(pid, &threads(pid)));
            }
        }
        if let Some(hold) = changes.held()
            && new > 0
        {
            hold.leave_all_but(&Files, self.program);
        }
        new
    }

    /// Processes that came to this one because their parents ended.
    pub(super) fn orphans(&self) -> Vec<u32> {
        let own = std::process::id();
        let mut all = children(own, &threads(own));
        all.retain(|pid| *pid != self.program && !self.strangers.contains(pid));
        all
    }

    /// Takes the ends of those orphans that have ended, and gives how many live.
    pub(super) fn reap(&mut self) -> usize {
        let mut alive = 0;
        for pid in self.orphans() {
            match Stat::of(pid) {
                Some(stat) if stat.is_alive() => alive += 1,
                _ => drop(crate::sys::wait::end_of(pid)),
            }
        }
        // Bounded by what lives, not by what ever was started; asked only when there are twice as many as lived the last time.
        if self.settled.len() > self.settled_max {
            self.settled.retain(Process::is_alive);
            self.settled_max = SETTLED_MIN.max(2 * self.settled.len());
        }
        alive
    }
}

/// Whatever it was born with that is the lane's: the core, where there is one, and timers.
fn send_away(changes: &Changes, pid: u32) {
    if let Some(core) = changes.core() {
        release(pid, &BTreeSet::from([core]), changes.before());
    }
    timers_back(pid, changes.before());
}
