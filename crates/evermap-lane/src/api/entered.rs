//! A thread in a lane: what is changed about it on entering, and set back on leaving, whatever the way out.
//!
//! The order is that nothing can be waited for at a priority that others would have to wait for, too: memory first, then the core, and the priority last; back
//! in the other direction.

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

/// What a thread was before, and what it has now. Set back when it is dropped.
#[derive(Debug)]
pub(super) struct Entered {
    before: Before,
    watchman: Option<Watchman>,
    claim: Option<Claim>,
    /// What a core of its own alone changes for others, and who undoes it; has the claim then.
    changes: Option<Changes>,
    /// Where threads that are not to be on the core go first, where a group keeps the others off it.
    aside: Option<PathBuf>,
    /// The cores that helpers are to be on; none if they may be anywhere.
    others: Option<BTreeSet<u32>>,
    is_real_time: bool,
    pub(super) applied: Vec<String>,
    pub(super) not_applied: Vec<Note>,
    /// What the watchman has done, once it is gone.
    pub(super) demotion: Option<Demotion>,
    /// Dropped last: unlocking takes the longest.
    _memory: Option<AllMemory>,
}

/// What was found, as far as it was changed.
#[derive(Debug, Default)]
struct Before {
    scheduling: Option<Scheduling>,
    affinity: Option<BTreeSet<u32>>,
    slack_ns: Option<NonZeroU64>,
}

impl Entered {
    /// Has this thread in the lane that the policy describes, as far as it may.
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
                "`share = \"off\"` is no core of its own: say `share = \"lend\"` beside it",
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

    /// Where helpers go.
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
            // Before the thread has the core alone, which the guardian would begin with.
            self.keep_work_away(policy, &state, &machine.roots)?;
        }
        self.pin(core)?;
        self.applied.push(lent(core, &why));
        Ok(())
    }

    /// The kernel's unbound work off the core, if it can be undone by somebody when this process is killed.
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

    /// The core for this thread alone. All of it is in a journal before it is done, and a guardian undoes it if this process is killed.
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
        // Before the thread is where affinities cannot be widened.
        self.note_cores(core)?;
        match changes.hold(&machine.groups) {
            Ok(()) => self.enter_held(&mut changes, before, core, &why)?,
            Err(Error::HoldRefused { why: refusal, .. }) if refusal.is_lack_of_right() => {
                self.not("the core for itself alone", refusal.to_string());
                self.applied.push(lent(core, &why));
            }
            Err(error) => return Err(error),
        }
        self.changes = Some(changes);
        scheduler::set_affinity(Thread::CURRENT, &BTreeSet::from([core]))
            .map_err(|source| of_thread("pin to its core", source))
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
            "core {core} for itself alone, by {}: {}",
            groups.join(" and "),
            why.join("; ")
        ));
        Ok(())
    }

    fn pin(&mut self, core: u32) -> Result<()> {
        self.note_cores(core)?;
        scheduler::set_affinity(Thread::CURRENT, &BTreeSet::from([core]))
            .map_err(|source| of_thread("pin to its core", source))
    }

    fn note_cores(&mut self, core: u32) -> Result<()> {
        let before = scheduler::affinity(Thread::CURRENT)
            .map_err(|source| of_thread("tell the cores of", source))?;
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
                self.applied.push("timers are not late on purpose (slack of 1 ns)".into());
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
            .map_err(|source| of_thread("tell the policy of", source))?;
        if policy.app.scheduler == Scheduler::Deadline {
            let why = match is_unpinned {
                true => self.by_deadline(policy, period, before),
                false => Err("the kernel refuses it to pinned programs, and this lane has a core of its own (it goes with `core = \"auto\"` and `share = \"lend\"`)".into()),
            };
            match why {
                Ok(()) => return Ok(()),
                Err(why) => self.not("SCHED_DEADLINE", format!("{why}; SCHED_FIFO instead")),
            }
            // FIFO is for a core of its own.
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
                    "SCHED_DEADLINE: {} us in each period of {} us, on any core; what it starts is ordinary",
                    budget_ns / 1_000,
                    period.ns() / 1_000
                ));
                Ok(())
            }
            Err(error) => {
                self.watchman = None;
                Err(match error.raw_os_error() {
                    Some(libc::EPERM) => {
                        "EPERM: it takes CAP_SYS_NICE, and the affinity of all cores".into()
                    }
                    Some(libc::EBUSY) => "EBUSY: others have been promised the time".into(),
                    _ => error.to_string(),
                })
            }
        }
    }

    fn by_priority(&mut self, policy: &Policy, period: Period, before: Scheduling) {
        let priority = u32::from(policy.app.priority);
        // The watchman is there before what it watches.
        self.watch(policy, period);
        match scheduler::set(Thread::CURRENT, &Scheduling::fifo(priority)) {
            Ok(()) => self.scheduled(
                before,
                format!("SCHED_FIFO at priority {priority}: before all ordinary programs; what it starts is ordinary"),
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
            self.not("a watchman above it", why);
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
                "a watchman",
                format!("no thread for it ({error}): the kernel's own limit on real-time programs is all that stops this one"),
            ),
        }
    }

    /// As it was before it entered, for as long as `work` takes.
    pub(super) fn outside<T>(&self, work: impl FnOnce() -> T) -> T {
        let Some(before) = &self.before.affinity else { return work() };
        Aside { tasks: self.aside.clone(), cores: Some(before.clone()) }.go();
        let _back = Back(self);
        work()
    }

    /// On the core again.
    fn come_back(&self) {
        if let Some(hold) = self.changes.as_ref().and_then(Changes::held) {
            let id = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            let _ = hold.enter_thread(&Files, id);
        }
        if let Some(core) = self.core() {
            let _ = scheduler::set_affinity(Thread::CURRENT, &BTreeSet::from([core]));
        }
    }

    /// Sets back. What could not be is told.
    pub(super) fn set_back(&mut self) -> Vec<Note> {
        // First of all: it may not demote whom it watches no more.
        if let Some(watchman) = self.watchman.take() {
            self.demotion = watchman.end();
        }
        let mut told = Vec::new();
        let tell = |what: &str, outcome: std::io::Result<()>| {
            outcome.err().map(|error| Note::new(what, error.to_string()))
        };
        if let Some(before) = self.before.scheduling.take() {
            told.extend(tell("its policy set back", scheduler::set_back(Thread::CURRENT, &before)));
        }
        if let Some(before) = self.before.slack_ns.take() {
            told.extend(tell("its timer slack set back", scheduler::set_timer_slack(before)));
        }
        if let Some(mut changes) = self.changes.take()
            && let Err(error) = changes.end()
        {
            told.push(Note::new("the core given back to all", error.to_string()));
        }
        // Not before: the group of a core that is held leaves no choice.
        if let Some(before) = self.before.affinity.take() {
            told.extend(tell(
                "its affinity set back",
                scheduler::set_affinity(Thread::CURRENT, &before),
            ));
        }
        self.claim = None;
        self._memory = None;
        told
    }

    /// In a process that was forked: this thread is another one, and ordinary.
    pub(super) fn forget(&mut self) {
        self.before = Before::default();
        if let Some(watchman) = &mut self.watchman {
            watchman.forget();
        }
        // Both are the other process's to undo.
        std::mem::forget(self.changes.take());
        std::mem::forget(self._memory.take());
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.set_back();
    }
}

/// Brings the thread back when it is dropped: what is done outside may panic.
struct Back<'e>(&'e Entered);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        self.0.come_back();
    }
}

/// Deadlines on whatever core there is time.
fn is_unpinned(policy: &Policy) -> bool {
    let app = &policy.app;
    let has_core = match app.share {
        Share::Lend => app.core != Core::Auto,
        Share::Hold => true,
        Share::Off => false,
    };
    app.scheduler == Scheduler::Deadline && !has_core
}

/// A lane of this process that has changed nothing yet, and what this thread is until then.
fn begin(state: &StateDirectory, claim: Claim) -> Result<(Changes, guard::journal::Before)> {
    let of_this = |source| of_thread("tell what is now of", source);
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
    format!("core {core}, lent to others while it sleeps: {}", why.join("; "))
}

/// Why the kernel refused a policy, and what to do about it.
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
