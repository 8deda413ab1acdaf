//! Supervises a running program and ends the lane when the program ends.
//!
//! The supervisor polls threads and children at intervals and waits in between. A poll costs some
//! calls for each thread and child. The pause after it is at least twenty times its processor time,
//! so the program cannot make the lane expensive with many threads or many signals.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};

use super::begin::begin;
use super::family::Family;
use super::prepare::{Prepared, exclude_workqueues};
use super::report::Outcome;
use super::threads::ThreadWatch;
use super::{End, Options, Program};
use crate::counters::CoreCounters;
use crate::guard::{Claim, guardian};
use crate::hold::tree::RealTree;
use crate::machine::Machine;
use crate::policy::{Core, Threads};
use crate::process::{Process, threads};
use crate::sys::scheduler::{self, Policy as Class, Scheduling, Thread};
use crate::sys::signals::Signals;
use crate::{Error, Policy, Result, Share};

/// Signals that a terminal sends to the program as well. The program decides how to react.
const TERMINAL_SIGNALS: [libc::c_int; 2] = [libc::SIGINT, libc::SIGQUIT];
/// Signals sent to this process that are forwarded to the program.
const FORWARDED: [(libc::c_int, Signal); 4] = [
    (libc::SIGTERM, Signal::TERM),
    (libc::SIGHUP, Signal::HUP),
    (libc::SIGUSR1, Signal::USR1),
    (libc::SIGUSR2, Signal::USR2),
];
/// Interval of polling threads and processes while new ones appear.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE: Duration = Duration::from_millis(10);
/// Maximum interval. While nothing new appears, each pause is longer than the one before.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// A poll takes at most a twentieth of the time, unless the pause reaches the maximum below.
const PAUSE_FACTOR: u32 = 20;
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Interval of checking the core.
const CORE_PAUSE: Duration = Duration::from_millis(100);
/// Interval of checking the groups.
const GROUP_PAUSE: Duration = Duration::from_secs(1);

/// Lane with its program.
#[derive(Debug)]
pub(super) struct Supervisor<'a> {
    policy: &'a Policy,
    options: &'a Options,
    prepared: &'a mut Prepared,
    program: Process,
    /// Readable when the program has ended.
    end: OwnedFd,
    signals: Signals,
    watch: ThreadWatch,
    family: Family,
    /// Scheduling of the program's first thread.
    granted: Scheduling,
    is_in_lane: bool,
    /// The guardian has ended.
    is_unguarded: bool,
    pause: Duration,
    poll_next: Instant,
    core_next: Instant,
    group_next: Instant,
    /// Core and its counters when the program began.
    core_before: Option<(u32, CoreCounters)>,
}

/// Starts the program in its lane.
pub(super) fn start<'a>(
    policy: &'a Policy,
    program: &Program,
    options: &'a Options,
    prepared: &'a mut Prepared,
) -> Result<Supervisor<'a>> {
    let failed = |source| Error::NotStarted { program: program.path.clone(), source };
    let forwarded = FORWARDED.iter().map(|(number, _)| *number);
    let all: Vec<_> = forwarded.chain(TERMINAL_SIGNALS).chain([libc::SIGCHLD]).collect();
    let signals = Signals::block(&all).map_err(failed)?;
    let mut family = Family::new();
    if let Some(guardian) = prepared.changes.guardian() {
        family.exclude(guardian.process.pid);
    }
    let started = begin(policy, program, options, prepared, &signals)?;
    family.set_program(started.program.pid);
    let promotion = later_threads(policy, &started.granted);
    let now = Instant::now();
    let core = prepared.changes.core();
    prepared.notes.core = core;
    Ok(Supervisor {
        policy,
        options,
        program: started.program,
        end: started.end,
        signals,
        watch: ThreadWatch::new(started.program.pid, promotion, prepared.limit_ns),
        family,
        granted: started.granted,
        is_in_lane: true,
        is_unguarded: false,
        pause: PAUSE_MIN,
        poll_next: now + PAUSE_MIN,
        core_next: now,
        group_next: now + GROUP_PAUSE,
        core_before: core.map(|core| (core, CoreCounters::now(&options.roots, core))),
        prepared,
    })
}

/// Scheduling of threads that the program starts later. A deadline budget is only for the first
/// thread.
fn later_threads(policy: &Policy, granted: &Scheduling) -> Option<Scheduling> {
    match (policy.app.threads, granted.policy) {
        (Threads::Main, _) => None,
        (Threads::All, Class::Deadline) => Some(Scheduling::fifo(policy.app.priority.into())),
        (Threads::All, _) => granted.policy.is_real_time().then_some(*granted),
    }
}

impl Supervisor<'_> {
    /// Polls until the program ends.
    pub(super) fn watch(&mut self) {
        loop {
            let has_ended = self.wait();
            while let Some(signal) = self.signals.next() {
                self.forward(signal);
            }
            if has_ended {
                return;
            }
            if !self.is_in_lane {
                self.family.reap();
            } else if self.is_unguarded || self.poll_next <= Instant::now() {
                let before = processor_time();
                let is_new = self.poll();
                let poll = processor_time().saturating_sub(before);
                self.pause = pause_after(self.pause, self.prepared.limit_ns, is_new, poll);
                self.poll_next = Instant::now() + self.pause;
            }
        }
    }

    /// Waits for the next poll or an event. Returns true if the program has ended.
    fn wait(&mut self) -> bool {
        let mut all =
            vec![PollFd::new(&self.end, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
        if let Some(guardian) = self.prepared.changes.guardian() {
            all.push(PollFd::new(guardian.end(), PollFlags::IN));
        }
        let left = self.poll_next.saturating_duration_since(Instant::now());
        let pause =
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        // An interrupted wait is only shorter.
        let _ = rustix::event::poll(&mut all, self.is_in_lane.then_some(&pause));
        let is_ready = |at: usize| all.get(at).is_some_and(|one| !one.revents().is_empty());
        let (has_ended, is_unguarded) = (is_ready(0), is_ready(2));
        self.is_unguarded |= is_unguarded;
        has_ended
    }

    fn forward(&self, signal: libc::c_int) {
        if let Some((_, signal)) = FORWARDED.iter().find(|(number, _)| *number == signal) {
            // Fails only if the program has just ended.
            let _ = rustix::process::pidfd_send_signal(&self.end, *signal);
        }
    }

    /// Polls the program. Returns true if it has new threads or children.
    fn poll(&mut self) -> bool {
        let now = Instant::now();
        // First: after the lane's time the guardian ends by itself, which is not a kill.
        if self.prepared.changes.until().is_some_and(|until| until <= now) {
            self.end_lane("the lane's time ended: the program continued as an ordinary one");
        } else if self.is_unguarded {
            self.end_lane("the guardian was killed: the program continued as an ordinary one");
        }
        if self.is_in_lane && now >= self.core_next {
            self.core_next = now + CORE_PAUSE;
            self.check_core();
        }
        if self.is_in_lane && now >= self.group_next {
            self.group_next = now + GROUP_PAUSE;
            let kept = self.prepared.changes.held().map(|hold| hold.maintain(&RealTree));
            if let Some(Err(why)) = kept {
                self.end_lane(&format!("the core is no longer held: {why}"));
            }
        }
        if !self.is_in_lane {
            return false;
        }
        let of_program = threads(self.program.pid);
        let seen = self.watch.seen();
        let demotions = self.watch.poll(&of_program, self.prepared.changes.before());
        self.prepared.notes.demotions.extend(demotions);
        let children = self.family.move_new_off(&self.prepared.changes, &of_program);
        self.prepared.notes.children += children;
        self.family.reap();
        children > 0 || self.watch.seen() > seen
    }

    /// Ends the lane while the program runs on.
    fn end_lane(&mut self, why: &str) {
        self.is_in_lane = false;
        self.prepared.notes.events.push(why.to_owned());
        let undone = self.prepared.changes.end();
        self.prepared.notes.add_undone(undone);
    }

    /// Checks whether the core is online. After a core goes offline, the kernel lets its programs
    /// run anywhere.
    fn check_core(&mut self) {
        let Some(core) = self.prepared.changes.core() else { return };
        if self.options.roots.is_online(core) {
            return;
        }
        let may_move = self.policy.app.core == Core::Auto && self.policy.app.share == Share::Lend;
        if !may_move {
            self.end_lane(&format!("core {core} went offline: the lane ended"));
            return;
        }
        match self.move_to_other_core() {
            Ok(to) => {
                let notes = &mut self.prepared.notes;
                notes.events.push(format!("core {core} went offline: the lane moved to core {to}"));
                notes.core = Some(to);
            }
            Err(error) => self.end_lane(&format!("core {core} went offline: {error}")),
        }
    }

    /// Ends the lane and begins it again on another core. Every change stays journalled and
    /// guarded.
    fn move_to_other_core(&mut self) -> Result<u32> {
        let Prepared { changes, notes, .. } = &mut *self.prepared;
        let until = changes.until();
        changes.end()?;
        let machine = Machine::detect_in(&self.options.roots)?;
        let (claim, why) = Claim::choose(&machine, Core::Auto, changes.state())?;
        notes.core_why = why;
        let core = claim.core();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        changes.restart(claim, self.options.helper.as_deref(), left)?;
        if let Some(guardian) = changes.guardian() {
            self.family.exclude(guardian.process.pid);
        }
        if self.policy.wants_workqueues_away() {
            exclude_workqueues(changes, self.options, notes)?;
        }
        changes.program(self.program)?;
        let own = BTreeSet::from([core]);
        for thread in threads(self.program.pid).into_iter().filter_map(Thread::of) {
            // Failures are threads that have ended.
            drop(scheduler::set_affinity(thread, &own));
        }
        if self.granted.policy.is_real_time()
            && !self.watch.is_demoted(self.program.pid)
            && let Some(first) = Thread::of(self.program.pid)
        {
            drop(scheduler::set(first, &self.granted));
        }
        self.watch.promote_again();
        guardian::avoid_core(core);
        self.core_before = None;
        Ok(core)
    }

    /// Collects the program's end, its resource use and its remaining processes.
    pub(super) fn finish(mut self) -> Result<Outcome> {
        let last = self.watch.poll(&threads(self.program.pid), self.prepared.changes.before());
        drop(last);
        let failed = |source| Error::Io {
            operation: "read the exit status of",
            path: format!("/proc/{}", self.program.pid).into(),
            source,
        };
        let waited = crate::sys::wait::try_wait(self.program.pid).map_err(failed)?;
        let (status, used) = waited.unwrap_or_default();
        let alive = self.family.reap();
        if alive > 0 {
            if self.is_in_lane {
                self.prepared.notes.children +=
                    self.family.move_new_off(&self.prepared.changes, &[]);
            }
            self.prepared.notes.events.push(format!(
                "the program has ended, and {alive} processes that it started continue as ordinary ones: the lane is only for the program itself"
            ));
        }
        let gone = self
            .core_before
            .map(|(core, before)| CoreCounters::now(&self.options.roots, core).since(before));
        Ok(Outcome {
            end: End::of(status),
            used,
            threads: self.watch.seen(),
            run_queue_ms: self.watch.wait_ns() as f64 / 1e6,
            interrupts: gone.as_ref().and_then(|gone| gone.interrupts),
            stolen_ms: gone.and_then(|gone| gone.stolen_ns).map(|ns| ns as f64 / 1e6),
        })
    }
}

/// Pause after a poll that took this processor time. Short enough to detect a thread that never
/// sleeps in time.
fn pause_after(before: Duration, limit_ns: u64, is_new: bool, poll: Duration) -> Duration {
    let base = if is_new { PAUSE } else { (before * 3 / 2).min(PAUSE_MAX) };
    let within_limit = Duration::from_nanos(limit_ns / 4).max(PAUSE_MIN);
    base.min(within_limit).max((poll * PAUSE_FACTOR).min(LONGEST_PAUSE))
}

/// Processor time of this thread, without waits for a core.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT_NS: u64 = 333_000_000;

    #[test]
    fn polls_take_at_most_a_twentieth_of_the_time() {
        for poll_us in [1, 50, 1_000, 5_000, 20_000, 50_000] {
            for (is_new, limit_ns) in [(true, LIMIT_NS), (false, LIMIT_NS), (true, 1)] {
                let poll = Duration::from_micros(poll_us);
                let pause = pause_after(PAUSE_MIN, limit_ns, is_new, poll);
                assert!(pause >= poll * 20, "a poll of {poll_us} us: {pause:?}");
            }
        }
        assert_eq!(pause_after(PAUSE_MIN, 1, true, Duration::from_secs(9)), LONGEST_PAUSE);
    }

    #[test]
    fn pauses_grow_without_news_but_stay_short_enough_for_a_runaway() {
        let quick = Duration::from_micros(10);
        let next = |before, limit_ns| pause_after(before, limit_ns, false, quick);
        let mut pause = PAUSE_MIN;
        for _ in 0..20 {
            assert!(next(pause, LIMIT_NS) > pause || pause == PAUSE_MAX);
            pause = next(pause, LIMIT_NS);
        }
        assert_eq!(pause, PAUSE_MAX);
        assert_eq!(next(pause, 16_000_000), Duration::from_millis(4));
        assert_eq!(next(pause, 0), PAUSE_MIN);
    }
}
