//! State of a thread in a lane: the changes made on entering, restored on leaving in every case.
//!
//! Entering locks memory first, then takes the core, and sets the priority last, so that no step
//! waits at a real-time priority. Leaving restores in reverse order.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::memory::AllMemory;
use super::watchdog::{Watchdog, WatchdogOptions};
use crate::guard::changes::Changes;
use crate::guard::{self, Claim, StateDirectory};
use crate::hold::tree::RealTree;
use crate::machine::{Machine, Roots, why_refused};
use crate::policy::{Core, Scheduler, Share};
use crate::process::Process;
use crate::reads::HelperPlacement;
use crate::report::Demotion;
use crate::sys::scheduler::{self, Scheduling, Thread};
use crate::sys::stack;
use crate::workqueues::{self, Exclusion, NotExcluded, Outcome};
use crate::{Applied, Error, Note, Period, Policy, Result};

/// Former and present state of the thread. Dropping it restores the former one.
#[derive(Debug)]
pub(super) struct ThreadState {
    before: SavedState,
    watchdog: Option<Watchdog>,
    claim: Option<Claim>,
    /// Changes that affect other programs, with their guardian. Owns the claim if it is set.
    changes: Option<Changes>,
    /// Task list of the group for threads that stay off the core, if a group holds the core.
    helper_tasks: Option<PathBuf>,
    /// Cores for helper threads. `None` allows all.
    helper_cores: Option<BTreeSet<u32>>,
    is_real_time: bool,
    pub(super) applied: Vec<Applied>,
    pub(super) not_applied: Vec<Note>,
    /// Demotion by the watchdog, once it has ended.
    pub(super) demotion: Option<Demotion>,
    /// Dropped last, because unlocking takes longest.
    _memory: Option<AllMemory>,
}

/// Former state, as far as it was changed.
#[derive(Debug, Default)]
struct SavedState {
    scheduling: Option<Scheduling>,
    affinity: Option<BTreeSet<u32>>,
    slack_ns: Option<NonZeroU64>,
}

impl ThreadState {
    /// Puts the calling thread into the lane that the policy describes, as far as its rights allow.
    pub(super) fn enter(
        policy: &Policy,
        period: Period,
        state: &dyn Fn() -> Result<StateDirectory>,
    ) -> Result<Self> {
        let mut thread = Self {
            before: SavedState::default(),
            watchdog: None,
            claim: None,
            changes: None,
            helper_tasks: None,
            helper_cores: None,
            is_real_time: false,
            applied: Vec::new(),
            not_applied: Vec::new(),
            demotion: None,
            _memory: None,
        };
        thread.lock_memory(policy);
        let is_unpinned = is_unpinned(policy);
        match (policy.app.share, policy.app.core) {
            (Share::Lend, _) if !is_unpinned => thread.lend_core(policy, state)?,
            (Share::Hold, _) => thread.hold_core(policy, state)?,
            (Share::Off, Core::Number(core)) => thread.note_not_applied(
                format!("core {core}"),
                "`share = \"off\"` uses no core: set `share = \"lend\"` as well",
            ),
            _ => {}
        }
        if policy.app.scheduler != Scheduler::Other || thread.core().is_some() {
            thread.reduce_timer_slack();
        }
        thread.schedule(policy, period, is_unpinned, state)?;
        Ok(thread)
    }

    pub(super) fn core(&self) -> Option<u32> {
        let of_claim = self.claim.as_ref().map(Claim::core);
        of_claim.or_else(|| self.changes.as_ref().and_then(Changes::core))
    }

    /// Placement of helper threads.
    pub(super) fn placement(&self) -> HelperPlacement {
        HelperPlacement { tasks: self.helper_tasks.clone(), cores: self.helper_cores.clone() }
    }

    pub(super) fn is_real_time(&self) -> bool {
        self.is_real_time
    }

    pub(super) fn watchdog(&self) -> Option<&Watchdog> {
        self.watchdog.as_ref()
    }

    fn note_not_applied(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.not_applied.push(Note::new(what, why));
    }

    fn lock_memory(&mut self, policy: &Policy) {
        if !policy.io.locks_memory() {
            return;
        }
        match AllMemory::lock(&mut self.not_applied) {
            Ok(memory) => {
                self.applied.push(Applied::LockedMemory);
                self._memory = Some(memory);
            }
            Err(note) => self.not_applied.push(note),
        }
        stack::prefault();
    }

    fn lend_core(
        &mut self,
        policy: &Policy,
        state: &dyn Fn() -> Result<StateDirectory>,
    ) -> Result<()> {
        let (state, machine) = (state()?, Machine::detect()?);
        let (claim, why) = Claim::choose(&machine, policy.app.core, &state)?;
        let core = claim.core();
        self.claim = Some(claim);
        if policy.wants_workqueues_away() {
            // Before pinning: the guardian inherits the thread's affinity.
            self.exclude_workqueues(policy, &state, &machine.roots)?;
        }
        self.pin(core)?;
        self.applied.push(Applied::LentCore { core, why });
        Ok(())
    }

    /// Keeps the kernel's unbound work off the core if a guardian can undo that after a kill.
    fn exclude_workqueues(
        &mut self,
        policy: &Policy,
        state: &StateDirectory,
        roots: &Roots,
    ) -> Result<()> {
        let Some(claim) = self.claim.take() else { return Ok(()) };
        let planned = Exclusion::plan(&roots.sys.join(workqueues::DIRECTORY), claim.core());
        let not_planned = match planned {
            Ok(Some(_)) => None,
            Ok(None) => Some(Outcome::NotNeeded),
            Err(not_excluded) => Some(Outcome::Refused(not_excluded)),
        };
        if let Some(outcome) = not_planned {
            self.claim = Some(claim);
            self.report_workqueues(outcome);
            return Ok(());
        }
        let (mut changes, _) = begin(state, claim)?;
        if let Err(error) = changes.guard(None, max_time(policy)) {
            self.note_not_applied(workqueues::LABEL, error.to_string());
            self.claim = changes.into_claim();
            return Ok(());
        }
        self.report_workqueues(changes.exclude_workqueues(roots)?);
        self.changes = Some(changes);
        Ok(())
    }

    fn report_workqueues(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Excluded => self.applied.push(Applied::Workqueues),
            Outcome::NotNeeded => {}
            Outcome::Refused(NotExcluded { why, remedy }) => {
                self.note_not_applied(workqueues::LABEL, format!("{why}; {remedy}"))
            }
        }
    }

    /// Holds the core for this thread alone. Journals each change first; a guardian undoes it if
    /// this process is killed.
    fn hold_core(
        &mut self,
        policy: &Policy,
        state: &dyn Fn() -> Result<StateDirectory>,
    ) -> Result<()> {
        let (state, machine) = (state()?, Machine::detect()?);
        let (claim, why) = Claim::choose(&machine, policy.app.core, &state)?;
        let core = claim.core();
        let (mut changes, before) = begin(&state, claim)?;
        changes.guard(None, max_time(policy))?;
        if policy.wants_workqueues_away() {
            self.report_workqueues(changes.exclude_workqueues(&machine.roots)?);
        }
        // Before the thread enters a cpuset in which affinities cannot be widened.
        self.save_affinity(core)?;
        match changes.hold(core, &machine.groups) {
            Ok(()) => self.enter_held(&mut changes, before, core, why)?,
            Err(Error::HoldRefused { why: refusal, .. }) if refusal.is_lack_of_right() => {
                self.note_not_applied("the core held for the lane alone", refusal.to_string());
                self.applied.push(Applied::LentCore { core, why });
            }
            Err(error) => return Err(error),
        }
        self.changes = Some(changes);
        scheduler::set_affinity(Thread::CURRENT, &BTreeSet::from([core]))
            .map_err(|source| thread_error("pin to a core", source))
    }

    fn enter_held(
        &mut self,
        changes: &mut Changes,
        before: guard::journal::FormerState,
        core: u32,
        why: Vec<String>,
    ) -> Result<()> {
        let id = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        if let Some(thread) = Process::of(id) {
            changes.thread(thread, before)?;
        }
        let Some(hold) = changes.held() else { return Ok(()) };
        hold.enter_thread(&RealTree, id).map_err(|why| Error::HoldRefused { core, why })?;
        self.helper_tasks = hold.groups().get(1).map(|group| group.join("tasks"));
        let groups = hold.groups().into_iter().map(Path::to_path_buf).collect();
        self.applied.push(Applied::HeldCore { core, groups, why });
        Ok(())
    }

    fn pin(&mut self, core: u32) -> Result<()> {
        self.save_affinity(core)?;
        scheduler::set_affinity(Thread::CURRENT, &BTreeSet::from([core]))
            .map_err(|source| thread_error("pin to a core", source))
    }

    fn save_affinity(&mut self, core: u32) -> Result<()> {
        let before = scheduler::affinity(Thread::CURRENT)
            .map_err(|source| thread_error("read the affinity of", source))?;
        let helper_cores: BTreeSet<u32> =
            before.iter().copied().filter(|one| *one != core).collect();
        self.helper_cores = (!helper_cores.is_empty()).then_some(helper_cores);
        self.before.affinity = Some(before);
        Ok(())
    }

    fn reduce_timer_slack(&mut self) {
        let slack_ns = scheduler::timer_slack_ns().ok().and_then(NonZeroU64::new);
        match scheduler::set_timer_slack(NonZeroU64::MIN) {
            Ok(()) => {
                self.before.slack_ns = slack_ns;
                self.applied.push(Applied::TimerSlack { ns: 1 });
            }
            Err(error) => self.note_not_applied("timer slack of 1 ns", error.to_string()),
        }
    }

    fn schedule(
        &mut self,
        policy: &Policy,
        period: Period,
        is_unpinned: bool,
        state: &dyn Fn() -> Result<StateDirectory>,
    ) -> Result<()> {
        if policy.app.scheduler == Scheduler::Other {
            return Ok(());
        }
        let before = scheduler::get(Thread::CURRENT)
            .map_err(|source| thread_error("read the scheduling policy of", source))?;
        if policy.app.scheduler == Scheduler::Deadline {
            let why = match is_unpinned {
                true => self.apply_deadline(policy, period, before),
                false => Err("the kernel refuses it to pinned programs, and this lane has a core (use `core = \"auto\"` and `share = \"lend\"`)".into()),
            };
            match why {
                Ok(()) => return Ok(()),
                Err(why) => {
                    self.note_not_applied("SCHED_DEADLINE", format!("{why}; SCHED_FIFO instead"))
                }
            }
            // FIFO needs a core.
            if policy.app.share == Share::Lend && self.core().is_none() {
                self.lend_core(policy, state)?;
            }
        }
        self.apply_fifo(policy, period, before);
        Ok(())
    }

    fn apply_deadline(
        &mut self,
        policy: &Policy,
        period: Period,
        before: Scheduling,
    ) -> Result<(), String> {
        let deadline_ns = policy.deadline_ns()?.unwrap_or(period.ns());
        let budget_ns = policy.app.budget_us.map_or(deadline_ns / 5 * 4, |us| us * 1_000);
        let wanted = Scheduling::deadline(budget_ns, deadline_ns, period.ns());
        self.watch(policy, period);
        match scheduler::set(Thread::CURRENT, &wanted) {
            Ok(()) => {
                self.scheduled(before, Applied::deadline(&wanted));
                Ok(())
            }
            Err(error) => {
                self.watchdog = None;
                Err(match error.raw_os_error() {
                    Some(libc::EPERM) => {
                        "EPERM: needs CAP_SYS_NICE and an affinity of all cores".into()
                    }
                    Some(libc::EBUSY) => {
                        "EBUSY: other programs have reserved the processor time".into()
                    }
                    _ => error.to_string(),
                })
            }
        }
    }

    fn apply_fifo(&mut self, policy: &Policy, period: Period, before: Scheduling) {
        let priority = u32::from(policy.app.priority);
        // The watchdog must run before the program gets its priority.
        self.watch(policy, period);
        match scheduler::set(Thread::CURRENT, &Scheduling::fifo(priority)) {
            Ok(()) => self.scheduled(before, Applied::Fifo { priority }),
            Err(error) => {
                self.watchdog = None;
                self.note_not_applied(
                    format!("SCHED_FIFO at priority {priority}"),
                    why_refused_text(scheduler::Policy::Fifo, &error),
                );
            }
        }
    }

    fn scheduled(&mut self, before: Scheduling, applied: Applied) {
        self.before.scheduling = Some(before);
        self.is_real_time = true;
        self.applied.push(applied);
        if let Some(why) = self.watchdog.as_ref().and_then(Watchdog::refused) {
            let why = why.to_owned();
            self.note_not_applied("a watchdog at a higher priority", why);
        }
    }

    fn watch(&mut self, policy: &Policy, period: Period) {
        let allowed = Duration::from_nanos(period.ns().saturating_mul(policy.guard.max_overrun));
        let options = WatchdogOptions {
            allowed,
            end: policy
                .guard
                .max_time_s
                .and_then(|s| Instant::now().checked_add(Duration::from_secs(s))),
            placement: self.placement(),
            priority: u32::from(policy.app.priority),
        };
        match Watchdog::start(options) {
            Ok(watchdog) => self.watchdog = Some(watchdog),
            Err(error) => self.note_not_applied(
                "a watchdog",
                format!("cannot start its thread ({error}): only the kernel's limit on real-time programs stops this one"),
            ),
        }
    }

    /// Runs `work` off the lane's core, with the former affinity.
    pub(super) fn outside<T>(&self, work: impl FnOnce() -> T) -> T {
        let Some(before) = &self.before.affinity else { return work() };
        HelperPlacement { tasks: self.helper_tasks.clone(), cores: Some(before.clone()) }.apply();
        let _guard = ReturnGuard(self);
        work()
    }

    /// Returns to the lane's core.
    fn return_to_core(&self) {
        if let Some(hold) = self.changes.as_ref().and_then(Changes::held) {
            let id = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            let _ = hold.enter_thread(&RealTree, id);
        }
        if let Some(core) = self.core() {
            let _ = scheduler::set_affinity(Thread::CURRENT, &BTreeSet::from([core]));
        }
    }

    /// Restores the former state. Returns notes on failures.
    pub(super) fn restore(&mut self) -> Vec<Note> {
        // First: the watchdog must not demote a thread that it no longer watches.
        if let Some(watchdog) = self.watchdog.take() {
            self.demotion = watchdog.end();
        }
        let mut notes = Vec::new();
        let failure_note = |what: &str, outcome: std::io::Result<()>| {
            outcome.err().map(|error| Note::new(what, error.to_string()))
        };
        if let Some(before) = self.before.scheduling.take() {
            notes.extend(failure_note(
                "scheduling policy restored",
                scheduler::restore(Thread::CURRENT, &before),
            ));
        }
        if let Some(before) = self.before.slack_ns.take() {
            notes.extend(failure_note("timer slack restored", scheduler::set_timer_slack(before)));
        }
        if let Some(mut changes) = self.changes.take()
            && let Err(error) = changes.end()
        {
            notes.push(Note::new("core returned to all programs", error.to_string()));
        }
        // After the group is gone: the cpuset of a held core allows no other affinity.
        if let Some(before) = self.before.affinity.take() {
            notes.extend(failure_note(
                "affinity restored",
                scheduler::set_affinity(Thread::CURRENT, &before),
            ));
        }
        self.claim = None;
        self._memory = None;
        notes
    }

    /// Discards the state in a forked process, whose thread is another one with ordinary
    /// scheduling.
    pub(super) fn forget(&mut self) {
        self.before = SavedState::default();
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.forget();
        }
        // Both must be undone by the parent process.
        std::mem::forget(self.changes.take());
        std::mem::forget(self._memory.take());
    }
}

impl Drop for ThreadState {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Returns the thread to its core when dropped, since the work outside may panic.
struct ReturnGuard<'e>(&'e ThreadState);

impl Drop for ReturnGuard<'_> {
    fn drop(&mut self) {
        self.0.return_to_core();
    }
}

/// Returns true for deadline scheduling on any core.
fn is_unpinned(policy: &Policy) -> bool {
    let app = &policy.app;
    let has_core = match app.share {
        Share::Lend => app.core != Core::Auto,
        Share::Hold => true,
        Share::Off => false,
    };
    app.scheduler == Scheduler::Deadline && !has_core
}

/// Begins a lane of this process without changes. Returns the present state of the thread, too.
fn begin(state: &StateDirectory, claim: Claim) -> Result<(Changes, guard::journal::FormerState)> {
    let of_this = |source| thread_error("read the scheduling of", source);
    let before = guard::journal::FormerState {
        scheduling: scheduler::get(Thread::CURRENT).map_err(of_this)?,
        affinity: scheduler::affinity(Thread::CURRENT).map_err(of_this)?,
        timer_slack_ns: scheduler::timer_slack_ns().map_err(of_this)?,
    };
    let name = std::env::current_exe().unwrap_or_default();
    let changes = Changes::begin(state, Some(claim), &name.to_string_lossy(), before.clone())?;
    Ok((changes, before))
}

fn max_time(policy: &Policy) -> Option<Duration> {
    policy.guard.max_time_s.map(Duration::from_secs)
}

/// Reason why the kernel refused a policy, and the remedy.
fn why_refused_text(policy: scheduler::Policy, error: &std::io::Error) -> String {
    match Machine::detect() {
        Ok(machine) => {
            let (why, remedy) = why_refused(&machine, policy, error);
            format!("{why}; {remedy}")
        }
        Err(_) => error.to_string(),
    }
}

fn thread_error(operation: &'static str, source: std::io::Error) -> Error {
    Error::Io { operation, path: Path::new("this thread").into(), source }
}
