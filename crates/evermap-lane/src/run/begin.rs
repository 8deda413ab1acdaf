//! From a lane without a program to one with: the process that is to become the program is started, journalled, put in its group, and told what it
//! is to have. What the kernel granted of that is noted, and why not more.
//!
//! The order is the journal's: the process does nothing before it is told to, and it is told only when its lane can be undone.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;

use super::prepare::Prepared;
use super::start::{Answer, NotStarted, Orders, PATIENCE, Wish};
use super::{Ended, NotApplied, Options, Program, why};
use crate::guard::channel::Channel;
use crate::guard::guardian;
use crate::hold::tree::Files;
use crate::process::Process;
use crate::sys::scheduler::{Policy as Class, Scheduling};
use crate::sys::signals::Signals;
use crate::sys::spawn::keep_open;
use crate::{Error, Policy, Result};

/// A program that has begun.
pub(super) struct Begun {
    pub(super) program: Process,
    /// Readable when it has ended.
    pub(super) end: OwnedFd,
    /// How its first thread is scheduled.
    pub(super) granted: Scheduling,
}

/// Starts the program in its lane. It has the signals as they were before `signals`.
pub(super) fn begin(
    policy: &Policy,
    program: &Program,
    options: &Options,
    prepared: &mut Prepared,
    signals: &Signals,
    ended: &mut Ended,
) -> Result<Begun> {
    let failed = |source| Error::NotStarted { program: program.path.clone(), source };
    let helper = guardian::program(options.helper.as_deref())?;
    let (mut channel, there) = Channel::pair().map_err(failed)?;
    let mut command = Command::new(helper);
    let number = keep_open(&mut command, there.as_fd());
    signals.leave_to(&mut command);
    command.args(["lane", "start", "--channel", &number.to_string(), "--program"]);
    command.arg(&program.path).arg("--").arg(&program.name).args(&program.arguments);
    let mut child = command.spawn().map_err(failed)?;
    drop((there, command));
    let begun = process_of(child.id()).and_then(|process| {
        let granted = order(policy, options, prepared, &mut channel, process, ended)?;
        let end = process.descriptor().map_err(failed)?;
        let end = end.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        Ok(Begun { program: process, end, granted })
    });
    begun.map_err(|error| {
        // It waits for orders, or has failed to become the program.
        drop(child.kill());
        drop(child.wait());
        match error {
            Error::NotStarted { source, .. } => failed(source),
            error => error,
        }
    })
}

/// The process that a child is, once it has begun.
fn process_of(pid: u32) -> Result<Process> {
    Process::of(pid).ok_or_else(|| Error::Io {
        operation: "tell when the program began from",
        path: format!("/proc/{pid}/stat").into(),
        source: io::ErrorKind::NotFound.into(),
    })
}

/// Journals the process that waits to become the program, has it become that, and gives how it is scheduled.
fn order(
    policy: &Policy,
    options: &Options,
    prepared: &mut Prepared,
    channel: &mut Channel,
    process: Process,
    ended: &mut Ended,
) -> Result<Scheduling> {
    // Who calls knows the program.
    let failed = |source| Error::NotStarted { program: "".into(), source };
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
    channel.say_within(&orders, PATIENCE).map_err(failed)?;
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
