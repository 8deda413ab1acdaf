//! The lane while its program runs: it watches, and ends when the program does.
//!
//! What it does between two looks is wait. A look costs some calls for each thread and each new process; the pause between two is at least twenty times as
//! long as a look, so that no program can make its lane a burden.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;

use super::family::Family;
use super::prepare::Prepared;
use super::start::{Answer, NotStarted, Orders, PATIENCE, Wish};
use super::threads::Watch;
use super::{Ended, NotApplied, Options, Program, facts, process_of, why};
use crate::counters;
use crate::guard::channel::Channel;
use crate::guard::{Claim, guardian};
use crate::hold::tree::Files;
use crate::machine::Machine;
use crate::policy::{Core, Threads};
use crate::process::{Process, threads};
use crate::sys::scheduler::{self, Policy as Class, Scheduling, Thread};
use crate::sys::signals::Signals;
use crate::sys::spawn::keep_open;
use crate::{Error, Policy, Result, Share};

/// What a terminal sends to the program, too: it decides what becomes of it.
const OF_THE_TERMINAL: [libc::c_int; 2] = [libc::SIGINT, libc::SIGQUIT];
/// What is sent to this process and meant for the program.
const HANDED_ON: [(libc::c_int, Signal); 4] = [
    (libc::SIGTERM, Signal::TERM),
    (libc::SIGHUP, Signal::HUP),
    (libc::SIGUSR1, Signal::USR1),
    (libc::SIGUSR2, Signal::USR2),
];
/// Between two looks at threads and processes, while new ones come.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE: Duration = Duration::from_millis(10);
/// While nothing new comes, each pause is longer than the one before, up to this.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// A look takes a twentieth of the time at most.
const PAUSES_OF_A_LOOK: u32 = 20;
/// Between two looks at the core.
const CORE_PAUSE: Duration = Duration::from_millis(100);
/// Between two looks at the groups.
const GROUP_PAUSE: Duration = Duration::from_secs(1);

/// A lane with its program.
#[derive(Debug)]
pub(super) struct Supervisor<'a> {
    policy: &'a Policy,
    options: &'a Options,
    prepared: &'a mut Prepared,
    program: Process,
    /// Readable when the program has ended.
    end: OwnedFd,
    signals: Signals,
    watch: Watch,
    family: Family,
    /// How the program's first thread is scheduled.
    granted: Scheduling,
    is_in_lane: bool,
    /// The guardian has ended.
    is_unguarded: bool,
    pause: Duration,
    until: Option<Instant>,
    core_next: Instant,
    group_next: Instant,
    interrupts: Option<(u32, u64)>,
}

/// Starts the program in its lane.
pub(super) fn start<'a>(
    policy: &'a Policy,
    program: &Program,
    options: &'a Options,
    prepared: &'a mut Prepared,
    ended: &mut Ended,
) -> Result<Supervisor<'a>> {
    let failed = |source| Error::NotStarted { program: program.path.clone(), source };
    let handed_on = HANDED_ON.iter().map(|(number, _)| *number);
    let all: Vec<_> = handed_on.chain(OF_THE_TERMINAL).chain([libc::SIGCHLD]).collect();
    let signals = Signals::of(&all).map_err(failed)?;
    let mut family = Family::new();
    if let Some(guardian) = prepared.changes.guardian() {
        family.add_stranger(guardian.process.pid);
    }
    // What the program leaves behind comes here. Where it doesn't, it is found by its environment.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let helper = guardian::program(options.helper.as_deref())?;
    let (mut channel, there) = Channel::pair().map_err(failed)?;
    let mut command = Command::new(helper);
    let number = keep_open(&mut command, there.as_fd());
    signals.leave_to(&mut command);
    command.args(["lane", "start", "--channel", &number.to_string(), "--program"]);
    command.arg(&program.path).arg("--").arg(&program.name).args(&program.arguments);
    let mut child = command.spawn().map_err(failed)?;
    drop((there, command));
    let process = process_of(child.id());
    let begun = process.and_then(|process| {
        let granted = begin(policy, options, prepared, &mut channel, process, ended)?;
        let end = process.descriptor().map_err(failed)?;
        let end = end.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        Ok((process, end, granted))
    });
    let (process, end, granted) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            // It waits for orders, or has failed to become the program.
            drop(child.kill());
            drop(child.wait());
            return Err(match error {
                Error::NotStarted { source, .. } => failed(source),
                error => error,
            });
        }
    };
    family.of(process.pid);
    let promotion = later_threads(policy, &granted);
    let now = Instant::now();
    let limit_ns = prepared.limit_ns;
    let core = prepared.changes.core();
    ended.core = core;
    Ok(Supervisor {
        policy,
        options,
        program: process,
        end,
        signals,
        watch: Watch::new(process.pid, promotion, limit_ns),
        family,
        granted,
        is_in_lane: true,
        is_unguarded: false,
        pause: PAUSE_MIN,
        until: prepared.max_time.and_then(|time| now.checked_add(time)),
        core_next: now,
        group_next: now + GROUP_PAUSE,
        interrupts: core.and_then(|core| Some((core, counters::interrupts(&options.roots, core)?))),
        prepared,
    })
}

/// What threads get that the program starts later: a budget is for the first one only.
fn later_threads(policy: &Policy, granted: &Scheduling) -> Option<Scheduling> {
    match (policy.app.threads, granted.policy) {
        (Threads::Main, _) => None,
        (Threads::All, Class::Deadline) => Some(Scheduling::fifo(policy.app.priority.into())),
        (Threads::All, _) => granted.policy.is_real_time().then_some(*granted),
    }
}

/// Journals the process that waits to become the program, has it become that, and gives how it is scheduled.
fn begin(
    policy: &Policy,
    options: &Options,
    prepared: &mut Prepared,
    channel: &mut Channel,
    process: Process,
    ended: &mut Ended,
) -> Result<Scheduling> {
    let path = std::path::PathBuf::new;
    let failed = |source| Error::NotStarted { program: path(), source };
    prepared.changes.program(process)?;
    if let Some(hold) = prepared.changes.held() {
        let core = hold.core();
        hold.enter(&Files, process.pid).map_err(|why| Error::HoldRefused { core, why })?;
    }
    let orders = Orders {
        id: prepared.changes.id().to_owned(),
        view: options.view.clone(),
        wishes: prepared.wishes.clone(),
        timer_slack_ns: std::num::NonZeroU64::MIN,
        lock_memory: policy.io.locks_memory(),
    };
    channel.say(&orders).map_err(failed)?;
    let mut hear = || channel.hear::<Answer>(PATIENCE).map_err(failed);
    let silent = || failed(io::Error::other("the process that was to become it ended"));
    let answer = hear()?.ok_or_else(silent)?;
    let refused = |not: &NotStarted| {
        let of_kernel = not.error.map(io::Error::from_raw_os_error);
        failed(of_kernel.unwrap_or_else(|| io::Error::other(not.why.clone())))
    };
    if let Some(not) = &answer.not_started {
        return Err(refused(not));
    }
    // Its end of the channel is closed by becoming the program.
    if let Some(Answer { not_started: Some(not), .. }) = hear()? {
        return Err(refused(&not));
    }
    let wish = say_granted(prepared, &answer, ended)?;
    say_rest(&answer, policy, options, ended);
    Ok(wish.scheduling)
}

/// Notes how the program is scheduled, and why not better.
fn say_granted(prepared: &mut Prepared, answer: &Answer, ended: &mut Ended) -> Result<Wish> {
    for (wish, tried) in prepared.wishes.iter().zip(&answer.tried) {
        let Some(number) = tried else { continue };
        let error = io::Error::from_raw_os_error(*number);
        ended.not_applied.push(why::not_scheduled(&prepared.machine, &wish.scheduling, &error));
    }
    let granted = answer.tried.iter().position(Option::is_none);
    let Some(wish) = granted.and_then(|at| prepared.wishes.get(at)).cloned() else {
        let source = io::Error::other("the kernel refuses every way to schedule it");
        return Err(Error::NotStarted { program: "".into(), source });
    };
    let is_pinned = wish.affinity.len() == 1
        && prepared.changes.core().is_some_and(|core| wish.affinity.contains(&core));
    if is_pinned {
        ended.applied.push("its core, which it does not leave".into());
    } else if prepared.changes.core().is_some() {
        prepared.changes.leave_core()?;
        ended.core_why = Vec::new();
    }
    let scheduling = wish.scheduling;
    match scheduling.policy {
        Class::Fifo => ended.applied.push(format!("SCHED_FIFO at {}", scheduling.priority)),
        Class::Deadline => ended.applied.push(format!(
            "SCHED_DEADLINE: {} us of each {} us, within {} us, on any core",
            scheduling.runtime_ns / 1_000,
            scheduling.period_ns / 1_000,
            scheduling.deadline_ns / 1_000
        )),
        _ => {}
    }
    Ok(wish)
}

fn say_rest(answer: &Answer, policy: &Policy, options: &Options, ended: &mut Ended) {
    let error = |number: i32| io::Error::from_raw_os_error(number);
    match answer.timer_slack {
        None => ended.applied.push("timers that are late by 1 ns at most on purpose".into()),
        Some(number) => ended.not_applied.push(why::other("exact timers", &error(number))),
    }
    if policy.io.locks_memory() {
        match answer.lock_memory {
            None => ended.applied.push("no limit for memory that it locks".into()),
            // Nobody's limit counts for whoever has the right.
            Some(_) if why::may_lock_memory() => {}
            Some(number) => ended.not_applied.push(why::no_memory_limit(&error(number))),
        }
    }
    if policy.io.lock_memory == Some(true) {
        ended.not_applied.push(NotApplied {
            what: "locked memory".into(),
            why: "a program can lock its memory only itself".into(),
            remedy: "have it call mlockall, or `Lane::enter` of the library; or say `lock_memory = false`".into(),
        });
    }
    if !options.view.is_empty() {
        ended.applied.push(format!("{} files from the tier", options.view.shown.len()));
    }
}

impl Supervisor<'_> {
    /// Until the program ends.
    pub(super) fn watch(&mut self, ended: &mut Ended) -> Result<()> {
        loop {
            let has_ended = self.wait();
            while let Some(signal) = self.signals.next() {
                self.hand_on(signal);
            }
            if has_ended {
                return Ok(());
            }
            if self.is_in_lane {
                let began = Instant::now();
                let is_new = self.look(ended)?;
                self.pause = self.pause_after(is_new, began.elapsed());
            } else {
                self.family.reap();
            }
        }
    }

    /// How long nothing need be looked at.
    fn pause_after(&self, is_new: bool, look: Duration) -> Duration {
        let base = if is_new { PAUSE } else { (self.pause * 3 / 2).min(PAUSE_MAX) };
        // A thread that never sleeps is to be noticed in time.
        let within_limit = Duration::from_nanos(self.prepared.limit_ns / 4).max(PAUSE_MIN);
        base.min(within_limit).max((look * PAUSES_OF_A_LOOK).min(CORE_PAUSE))
    }

    /// Whether the program has ended.
    fn wait(&mut self) -> bool {
        let mut all =
            vec![PollFd::new(&self.end, PollFlags::IN), PollFd::new(&self.signals, PollFlags::IN)];
        if let Some(guardian) = self.prepared.changes.guardian() {
            all.push(PollFd::new(guardian.end(), PollFlags::IN));
        }
        let pause = Timespec { tv_sec: 0, tv_nsec: i64::from(self.pause.subsec_nanos()) };
        // A wait that is broken off is a short one.
        let _ = rustix::event::poll(&mut all, self.is_in_lane.then_some(&pause));
        let is_ready = |at: usize| all.get(at).is_some_and(|one| !one.revents().is_empty());
        let (has_ended, is_unguarded) = (is_ready(0), is_ready(2));
        self.is_unguarded |= is_unguarded;
        has_ended
    }

    fn hand_on(&self, signal: libc::c_int) {
        if let Some((_, signal)) = HANDED_ON.iter().find(|(number, _)| *number == signal) {
            // Fails only when the program has just ended.
            let _ = rustix::process::pidfd_send_signal(&self.end, *signal);
        }
    }

    fn look(&mut self, ended: &mut Ended) -> Result<bool> {
        let now = Instant::now();
        if self.is_unguarded {
            self.leave(
                ended,
                "the guardian was killed: the program was an ordinary one from then on",
            );
            return Ok(false);
        }
        if self.until.is_some_and(|until| until <= now) {
            self.leave(
                ended,
                "the lane's time was over: the program was an ordinary one from then on",
            );
            return Ok(false);
        }
        if now >= self.core_next {
            self.core_next = now + CORE_PAUSE;
            self.look_at_core(ended)?;
        }
        if now >= self.group_next {
            self.group_next = now + GROUP_PAUSE;
            let kept = self.prepared.changes.held().map(|hold| hold.keep(&Files));
            if let Some(Err(why)) = kept {
                self.leave(ended, &format!("the core was no longer held: {why}"));
            }
        }
        if !self.is_in_lane {
            return Ok(false);
        }
        let of_program = threads(self.program.pid);
        let seen = self.watch.seen();
        let demotions = self.watch.look(&of_program, self.prepared.changes.before());
        ended.demotions.extend(demotions);
        let children = self.family.settle(&self.prepared.changes, &of_program);
        ended.children += children;
        self.family.reap();
        Ok(children > 0 || self.watch.seen() > seen)
    }

    /// The lane ends before the program does.
    fn leave(&mut self, ended: &mut Ended, why: &str) {
        self.is_in_lane = false;
        ended.events.push(why.to_owned());
        match self.prepared.changes.end() {
            Ok(undone) => ended.undone.extend(undone.did),
            Err(error) => ended.events.push(error.to_string()),
        }
    }

    /// When a core goes offline, the kernel lets its programs run anywhere.
    fn look_at_core(&mut self, ended: &mut Ended) -> Result<()> {
        let Some(core) = self.prepared.changes.core() else { return Ok(()) };
        if facts::is_online(&self.options.roots, core) {
            return Ok(());
        }
        let may_move = self.policy.app.core == Core::Auto && self.policy.app.share == Share::Lend;
        if !may_move {
            self.leave(ended, &format!("core {core} went offline: the lane was over"));
            return Ok(());
        }
        match self.move_away(ended) {
            Ok(to) => {
                ended.events.push(format!("core {core} went offline: the lane moved to core {to}"));
                ended.core = Some(to);
            }
            Err(error) => self.leave(ended, &format!("core {core} went offline: {error}")),
        }
        Ok(())
    }

    /// Leaves the lane and enters it again on another core: at no moment is anything changed that is not journalled and guarded.
    fn move_away(&mut self, ended: &mut Ended) -> Result<u32> {
        let changes = &mut self.prepared.changes;
        changes.end()?;
        let machine = Machine::look_in(&self.options.roots)?;
        let (claim, why) = Claim::choose(&machine, Core::Auto, changes.state())?;
        ended.core_why = why;
        let core = claim.core();
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        changes.begin_again(claim, self.options.helper.as_deref(), left)?;
        if let Some(guardian) = changes.guardian() {
            self.family.add_stranger(guardian.process.pid);
        }
        changes.program(self.program)?;
        let own = BTreeSet::from([core]);
        for thread in threads(self.program.pid).into_iter().filter_map(Thread::of) {
            // Those that end meanwhile need no core.
            drop(scheduler::set_affinity(thread, &own));
        }
        if self.granted.policy.is_real_time()
            && let Some(first) = Thread::of(self.program.pid)
        {
            drop(scheduler::set(first, &self.granted));
        }
        self.watch.again();
        guardian::step_aside(core);
        self.interrupts = None;
        Ok(core)
    }

    /// The program has ended: what it used, what it left behind.
    pub(super) fn finish(mut self, ended: &mut Ended) -> Result<()> {
        let last = self.watch.look(&threads(self.program.pid), self.prepared.changes.before());
        drop(last);
        ended.threads = self.watch.seen();
        ended.run_queue_ms = self.watch.wait_ns() as f64 / 1e6;
        let failed = |source| Error::Io {
            operation: "take the end of the program",
            path: format!("/proc/{}", self.program.pid).into(),
            source,
        };
        if let Some((status, used)) = crate::sys::wait::end_of(self.program.pid).map_err(failed)? {
            ended.take(status, &used);
        }
        let alive = self.family.reap();
        if alive > 0 {
            if self.is_in_lane {
                ended.children += self.family.settle(&self.prepared.changes, &[]);
            }
            ended.events.push(format!(
                "the program has ended, and {alive} of the processes that it started run on, as ordinary ones: the lane is for the program that it starts"
            ));
        }
        if let Some((core, before)) = self.interrupts {
            let now = counters::interrupts(&self.options.roots, core);
            ended.interrupts = now.map(|now| now.saturating_sub(before));
        }
        Ok(())
    }
}
