//! State of a thread in a lane: the changes made on entering, restored on leaving in every case.
//!
//! Entering locks memory first, then takes the core, and sets the priority last, so that no step
//! waits at a real-time priority. Leaving restores in reverse order.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::memory::AllMemory;
use super::watch::{Orders, Watchman};
use crate::guard::changes::Changes;
use crate::guard::{self, Claim, StateDirectory};
use crate::hold::tree::Files;
use crate::machine::{Machine, Roots, why_refused};
use crate::policy::{Core, Scheduler, Share};
use crate::process::Process;
use crate::reads::Aside;
use crate::report::Demotion;
use crate::sys::scheduler::{self, Scheduling, Thread};
use crate::sys::stack;
use crate::workqueues::{self, Away, Stays};
use crate::{Error, Note, Period, Policy, Result};

/// Former and present state of the thread. Dropping it restores the former one.
#[derive(Debug)]
pub(super) struct Entered {
    before: Before,
    watchman: Option<Watchman>,
    claim: Option<Claim>,
    /// Changes that affect other programs, with their guardian. Owns the claim if it is set.
    changes: Option<Changes>,
    /// Task list of the group for threads that stay off the core, if a group holds the core.
    aside: Option<PathBuf>,
    /// Cores for helper threads. `None` allows all.
    others: Option<BTreeSet<u32>>,
    is_real_time: bool,
    pub(super) applied: Vec<String>,
    pub(super) not_applied: Vec<Note>,
    /// Demotion by the watchdog, once it has ended.
    pub(super) demotion: Option<Demotion>,
    /// Dropped last, because unlocking takes longest.
    _memory: Option<AllMemory>,
}

/// Former state, as far as it was changed.
#[derive(Debug, Default)]
struct Before {
    scheduling: Option<Scheduling>,
    affinity: Option<BTreeSet<u32>>,
    slack_ns: Option<NonZeroU64>,
}

impl Entered {
    /// Puts the calling thread into the lane that the policy describes, as far as its rights allow.
    pub(super) fn enter(
        policy: &Policy,
        period: Period,
        state: &dyn Fn() -> Result<StateDirectory>,
    ) -> Result<Self> {
        let mut entered = Self {
            before: Before::default(),
            watchman: None,
            claim: None,
            changes: None,
            aside: None,
            others: None,
            is_real_time: false,
            applied: Vec::new(),
            not_applied: Vec::new(),
            demotion: None,
            _memory: None,
        };
        entered.lock_memory(policy);
        let is_unpinned = is_unpinned(policy);
        match (policy.app.share, policy.app.core) {
            (Share::Lend, _) if !is_unpinned => entered.lend_core(policy, state)?,
            (Share::Hold, _) => entered.hold_core(policy, state)?,
            (Share::Off, Core::Number(core)) => entered.not(
                format!("core {core}"),
                "`share = \"off\"` uses no core: set `share = \"lend\"` as well",
            ),
            _ => {}
        }
        if policy.app.scheduler != Scheduler::Other || entered.core().is_some() {
            entered.wake_exactly();
        }
        entered.schedule(policy, period, is_unpinned, state)?;
        Ok(entered)
    }

    pub(super) fn core(&self) -> Option<u32> {
        let of_claim = self.claim.as_ref().map(Claim::core);
        of_claim.or_else(|| self.changes.as_ref().and_then(Changes::core))
    }

    /// Placement of helper threads.
    pub(super) fn aside(&self) -> Aside {
        Aside { tasks: self.aside.clone(), cores: self.others.clone() }
    }

    pub(super) fn is_real_time(&self) -> bool {
        self.is_real_time
    }

    pub(super) fn watchman(&self) -> Option<&Watchman> {
        self.watchman.as_ref()
    }

    fn not(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.not_applied.push(Note::new(what, why));
    }

    fn lock_memory(&mut self, policy: &Policy) {
        if !policy.io.locks_memory() {
            return;
        }
        match AllMemory::lock(&mut self.not_applied) {
            Ok(memory) => {
                self.applied.push("all memory is locked".into());
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
        let (state, machine) = (state()?, Machine::look()?);
        let (claim, why) = Claim::choose(&machine, policy.app.core, &state)?;
        let core = claim.core();
        self.claim = Some(claim);
        if policy.wants_work_away() {
            // Before pinning: the guardian inherits the thread's affinity.
            self.keep_work_away(policy, &state, &machine.roots)?;
        }
        self.pin(core)?;
        self.applied.push(lent(core, &why));
        Ok(())
    }

    /// Keeps the kernel's unbound work off the core if a guardian can undo that after a kill.
    fn keep_work_away(
        &mut self,
        policy: &Policy,
        state: &StateDirectory,
        roots: &Roots,
    ) -> Result<()> {
        let Some(claim) = self.claim.take() else { return Ok(()) };
        let planned = Away::plan(&roots.sys.join(workqueues::DIRECTORY), claim.core());
        if !matches!(planned, Ok(Some(_))) {
            self.claim = Some(claim);
            self.tell_work(planned.map(|_| false));
            return Ok(());
        }
        let (mut changes, _) = begin(state, claim)?;
        if let Err(error) = changes.guard(None, max_time(policy)) {
            self.not(workqueues::AWAY, error.to_string());
            self.claim = changes.into_claim();
            return Ok(());
        }
        let is_away = changes.keep_work_away(roots)?;
        self.tell_work(is_away);
        self.changes = Some(changes);
        Ok(())
    }

    fn tell_work(&mut self, is_away: std::result::Result<bool, Stays>) {
        match is_away {
            Ok(true) => self.applied.push(workqueues::AWAY.into()),
            Ok(false) => {}
            Err(Stays { why, remedy }) => self.not(workqueues::AWAY, format!("{why}; {remedy}")),
        }
    }

    /// Holds the core for this thread alone. Journals each change first; a guardian undoes it if
    /// this process is killed.
    fn hold_core(
        &mut self,
        policy: &Policy,
        state: &dyn Fn() -> Result<StateDirectory>,
    ) -> Result<()> {
        let (state, machine) = (state()?, Machine::look()?);
        let (claim, why) = Claim::choose(&machine, policy.app.core, &state)?;
        let core = claim.core();
        let (mut changes, before) = begin(&state, claim)?;
        changes.guard(None, max_time(policy))?;
        if policy.wants_work_away() {
            let is_away = changes.keep_work_away(&machine.roots)?;
            self.tell_work(is_away);
        }
        // Before the thread enters a cpuset in which affinities cannot be widened.
        self.note_cores(core)?;
        match changes.hold(&machine.groups) {
            Ok(()) => self.enter_held(&mut changes, before, core, &why)?,
            Err(Error::HoldRefused { why: refusal, .. }) if refusal.is_lack_of_right() => {
                self.not("the core held for the lane alone", refusal.to_string());
                self.applied.push(lent(core, &why));
            }
            Err(error) => return Err(error),
        }
        self.changes = Some(changes);
        scheduler::set_affinity(Thread::CURRENT, &BTreeSet::from([core]))
            .map_err(|source| of_thread("pin to a core", source))
    }

    fn enter_held(
        &mut self,
        changes: &mut Changes,
        before: guard::journal::Before,
        core: u32,
        why: &[String],
    ) -> Result<()> {
        let id = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        if let Some(thread) = Process::of(id) {
            changes.thread(thread, before)?;
        }
        let Some(hold) = changes.held() else { return Ok(()) };
        hold.enter_thread(&Files, id).map_err(|why| Error::HoldRefused { core, why })?;
        self.aside = hold.groups().get(1).map(|group| group.join("tasks"));
        let groups: Vec<String> =
            hold.groups().iter().map(|group| group.display().to_string()).collect();
        self.applied.push(format!(
            "core {core} held for the lane alone, by {}: {}",
            groups.join(" and "),
            why.join("; ")
        ));
        Ok(())
    }

    fn pin(&mut self, core: u32) -> Result<()> {
        self.note_cores(core)?;
        scheduler::set_affinity(Thread::CURRENT, &BTreeSet::from([core]))
            .map_err(|source| of_thread("pin to a core", source))
    }

    fn note_cores(&mut self, core: u32) -> Result<()> {
        let before = scheduler::affinity(Thread::CURRENT)
            .map_err(|source| of_thread("read the affinity of", source))?;
        let others: BTreeSet<u32> = before.iter().copied().filter(|one| *one != core).collect();
        self.others = (!others.is_empty()).then_some(others);
        self.before.affinity = Some(before);
        Ok(())
    }

    fn wake_exactly(&mut self) {
        let slack_ns = scheduler::timer_slack_ns().ok().and_then(NonZeroU64::new);
        match scheduler::set_timer_slack(NonZeroU64::MIN) {
            Ok(()) => {
                self.before.slack_ns = slack_ns;
                self.applied.push("timer slack of 1 ns".into());
            }
            Err(error) => self.not("timer slack of 1 ns", error.to_string()),
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
            .map_err(|source| of_thread("read the scheduling policy of", source))?;
        if policy.app.scheduler == Scheduler::Deadline {
            let why = match is_unpinned {
                true => self.by_deadline(policy, period, before),
                false => Err("the kernel refuses it to pinned programs, and this lane has a core (use `core = \"auto\"` and `share = \"lend\"`)".into()),
            };
            match why {
                Ok(()) => return Ok(()),
                Err(why) => self.not("SCHED_DEADLINE", format!("{why}; SCHED_FIFO instead")),
            }
            // FIFO needs a core of its own.
            if policy.app.share == Share::Lend && self.core().is_none() {
                self.lend_core(policy, state)?;
            }
        }
        self.by_priority(policy, period, before);
        Ok(())
    }

    fn by_deadline(
        &mut self,
        policy: &Policy,
        period: Period,
        before: Scheduling,
    ) -> Result<(), String> {
        let deadline_ns = policy.deadline_ns()?.unwrap_or(period.ns());
        let budget_ns = policy.app.budget_us.map_or(deadline_ns / 5 * 4, |us| us * 1_000);
        let wish = Scheduling::deadline(budget_ns, deadline_ns, period.ns());
        self.watch(policy, period);
        match scheduler::set(Thread::CURRENT, &wish) {
            Ok(()) => {
                self.scheduled(before, format!(
                    "SCHED_DEADLINE: {} us in each period of {} us, on any core; not inherited by children",
                    budget_ns / 1_000,
                    period.ns() / 1_000
                ));
                Ok(())
            }
            Err(error) => {
                self.watchman = None;
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

    fn by_priority(&mut self, policy: &Policy, period: Period, before: Scheduling) {
        let priority = u32::from(policy.app.priority);
        // The watchdog must run before the program gets its priority.
        self.watch(policy, period);
        match scheduler::set(Thread::CURRENT, &Scheduling::fifo(priority)) {
            Ok(()) => self.scheduled(
                before,
                format!("SCHED_FIFO at priority {priority}: runs before ordinary programs; not inherited by children"),
            ),
            Err(error) => {
                self.watchman = None;
                self.not(format!("SCHED_FIFO at priority {priority}"), why_not(scheduler::Policy::Fifo, &error));
            }
        }
    }

    fn scheduled(&mut self, before: Scheduling, applied: String) {
        self.before.scheduling = Some(before);
        self.is_real_time = true;
        self.applied.push(applied);
        if let Some(why) = self.watchman.as_ref().and_then(Watchman::refused) {
            let why = why.to_owned();
            self.not("a watchdog at a higher priority", why);
        }
    }

    fn watch(&mut self, policy: &Policy, period: Period) {
        let allowed = Duration::from_nanos(period.ns().saturating_mul(policy.guard.max_overrun));
        let orders = Orders {
            allowed,
            end: policy
                .guard
                .max_time_s
                .and_then(|s| Instant::now().checked_add(Duration::from_secs(s))),
            aside: self.aside(),
            priority: u32::from(policy.app.priority),
        };
        match Watchman::start(orders) {
            Ok(watchman) => self.watchman = Some(watchman),
            Err(error) => self.not(
                "a watchdog",
                format!("cannot start its thread ({error}): only the kernel's limit on real-time programs stops this one"),
            ),
        }
    }

    /// Runs `work` off the lane's core, with the former affinity.
    pub(super) fn outside<T>(&self, work: impl FnOnce() -> T) -> T {
        let Some(before) = &self.before.affinity else { return work() };
        Aside { tasks: self.aside.clone(), cores: Some(before.clone()) }.go();
        let _back = Back(self);
        work()
    }

    /// Returns to the lane's core.
    fn come_back(&self) {
        if let Some(hold) = self.changes.as_ref().and_then(Changes::held) {
            let id = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            let _ = hold.enter_thread(&Files, id);
        }
        if let Some(core) = self.core() {
            let _ = scheduler::set_affinity(Thread::CURRENT, &BTreeSet::from([core]));
        }
    }

    /// Restores the former state. Returns notes on failures.
    pub(super) fn set_back(&mut self) -> Vec<Note> {
        // First: the watchdog must not demote a thread that it no longer watches.
        if let Some(watchman) = self.watchman.take() {
            self.demotion = watchman.end();
        }
        let mut told = Vec::new();
        let tell = |what: &str, outcome: std::io::Result<()>| {
            outcome.err().map(|error| Note::new(what, error.to_string()))
        };
        if let Some(before) = self.before.scheduling.take() {
            told.extend(tell(
                "scheduling policy restored",
                scheduler::set_back(Thread::CURRENT, &before),
            ));
        }
        if let Some(before) = self.before.slack_ns.take() {
            told.extend(tell("timer slack restored", scheduler::set_timer_slack(before)));
        }
        if let Some(mut changes) = self.changes.take()
            && let Err(error) = changes.end()
        {
            told.push(Note::new("core returned to all programs", error.to_string()));
        }
        // After the group is gone: the cpuset of a held core allows no other affinity.
        if let Some(before) = self.before.affinity.take() {
            told.extend(tell(
                "affinity restored",
                scheduler::set_affinity(Thread::CURRENT, &before),
            ));
        }
        self.claim = None;
        self._memory = None;
        told
    }

    /// Discards the state in a forked process, whose thread is another one with ordinary
    /// scheduling.
    pub(super) fn forget(&mut self) {
        self.before = Before::default();
        if let Some(watchman) = &mut self.watchman {
            watchman.forget();
        }
        // Both must be undone by the parent process.
        std::mem::forget(self.changes.take());
        std::mem::forget(self._memory.take());
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.set_back();
    }
}

/// Returns the thread to its core when dropped, since the work outside may panic.
struct Back<'e>(&'e Entered);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        self.0.come_back();
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
fn begin(state: &StateDirectory, claim: Claim) -> Result<(Changes, guard::journal::Before)> {
    let of_this = |source| of_thread("read the scheduling of", source);
    let before = guard::journal::Before {
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

fn lent(core: u32, why: &[String]) -> String {
    format!("core {core}, lent to other programs while the lane sleeps: {}", why.join("; "))
}

/// Reason why the kernel refused a policy, and the remedy.
fn why_not(policy: scheduler::Policy, error: &std::io::Error) -> String {
    match Machine::look() {
        Ok(machine) => {
            let (why, remedy) = why_refused(&machine, policy, error);
            format!("{why}; {remedy}")
        }
        Err(_) => error.to_string(),
    }
}

fn of_thread(operation: &'static str, source: std::io::Error) -> Error {
    Error::Io { operation, path: Path::new("this thread").into(), source }
}
