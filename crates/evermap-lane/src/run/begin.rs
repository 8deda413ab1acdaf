//! Starts the program of a lane: starts the process that will become it, journals it, moves it into
//! its group, and sends its settings. Records the settings that the kernel granted, and the causes
//! of refusals.
//!
//! The order follows the journal: the process does nothing before it gets its settings, and gets
//! them only when its lane can be undone.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;

use super::notes::Notes;
use super::prepare::Prepared;
use super::start::{NotStarted, Response, START_TIMEOUT, SchedulingChoice, Settings};
use super::{NotApplied, Options, Program, why};
use crate::guard::channel::Channel;
use crate::guard::guardian;
use crate::hold::tree::RealTree;
use crate::process::Process;
use crate::sys::scheduler::{Policy as Class, Scheduling};
use crate::sys::signals::Signals;
use crate::sys::spawn::keep_open;
use crate::{Applied, Error, Policy, Result};

/// Program that has started.
pub(super) struct Started {
    pub(super) program: Process,
    /// Readable when the program has ended.
    pub(super) end: OwnedFd,
    /// Scheduling of the first thread.
    pub(super) granted: Scheduling,
}

/// Starts the program in its lane, with the signal mask from before `signals`.
pub(super) fn begin(
    policy: &Policy,
    program: &Program,
    options: &Options,
    prepared: &mut Prepared,
    signals: &Signals,
) -> Result<Started> {
    let failed = |source| Error::NotStarted { program: program.path.clone(), source };
    let helper = guardian::program(options.helper.as_deref())?;
    let (mut channel, there) = Channel::pair().map_err(failed)?;
    let mut command = Command::new(helper);
    let number = keep_open(&mut command, there.as_fd());
    signals.restore_in(&mut command);
    command.args(["lane", "start", "--channel", &number.to_string(), "--program"]);
    command.arg(&program.path).arg("--").arg(&program.name).args(&program.arguments);
    let mut child = command.spawn().map_err(failed)?;
    drop((there, command));
    let started = process_of(child.id()).and_then(|process| {
        let granted = send_settings(policy, program, options, prepared, &mut channel, process)?;
        let end = process.descriptor().map_err(failed)?;
        let end = end.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        Ok(Started { program: process, end, granted })
    });
    started.inspect_err(|_| {
        // The process waits for its settings, or has failed to become the program.
        drop(child.kill());
        drop(child.wait());
    })
}

/// Identifies a child that has begun.
fn process_of(pid: u32) -> Result<Process> {
    Process::of(pid).ok_or_else(|| Error::Io {
        operation: "read the start time of the program from",
        path: format!("/proc/{pid}/stat").into(),
        source: io::ErrorKind::NotFound.into(),
    })
}

/// Journals the process that waits, lets it become the program, and returns its scheduling.
fn send_settings(
    policy: &Policy,
    program: &Program,
    options: &Options,
    prepared: &mut Prepared,
    channel: &mut Channel,
    process: Process,
) -> Result<Scheduling> {
    let failed = |source| Error::NotStarted { program: program.path.clone(), source };
    prepared.changes.program(process)?;
    if let Some(hold) = prepared.changes.held() {
        let core = hold.core();
        hold.enter(&RealTree, process.pid).map_err(|why| Error::HoldRefused { core, why })?;
    }
    let settings = Settings {
        id: prepared.changes.id().to_owned(),
        view: options.view.clone(),
        choices: prepared.choices.clone(),
        timer_slack_ns: std::num::NonZeroU64::MIN,
        lock_memory: policy.io.locks_memory(),
    };
    channel.send_within(&settings, START_TIMEOUT).map_err(failed)?;
    let mut hear = || channel.receive::<Response>(START_TIMEOUT).map_err(failed);
    let silent = || failed(io::Error::other("its starting process ended"));
    let response = hear()?.ok_or_else(silent)?;
    let refused = |not: &NotStarted| {
        let of_kernel = not.error.map(io::Error::from_raw_os_error);
        failed(of_kernel.unwrap_or_else(|| io::Error::other(not.why.clone())))
    };
    if let Some(not) = &response.not_started {
        return Err(refused(not));
    }
    // Exec closes the other end of the channel.
    if let Some(Response { not_started: Some(not), .. }) = hear()? {
        return Err(refused(&not));
    }
    let granted = record_granted(prepared, &response)?;
    record_rest(&response, policy, options, &mut prepared.notes);
    granted.map(|choice| choice.scheduling).ok_or_else(|| {
        failed(io::Error::other("the kernel refused every alternative of scheduling"))
    })
}

/// Records and returns the granted scheduling, and records the causes of refusals.
fn record_granted(
    prepared: &mut Prepared,
    response: &Response,
) -> Result<Option<SchedulingChoice>> {
    let notes = &mut prepared.notes;
    for (choice, tried) in prepared.choices.iter().zip(&response.tried) {
        let Some(number) = tried else { continue };
        let error = io::Error::from_raw_os_error(*number);
        notes.not_applied.push(why::not_scheduled(&prepared.machine, &choice.scheduling, &error));
    }
    let granted = response.tried.iter().position(Option::is_none);
    let Some(choice) = granted.and_then(|at| prepared.choices.get(at)).cloned() else {
        return Ok(None);
    };
    let is_pinned = choice.affinity.len() == 1
        && prepared.changes.core().is_some_and(|core| choice.affinity.contains(&core));
    if is_pinned {
        notes.applied.push(Applied::Pinned);
    } else if prepared.changes.core().is_some() {
        prepared.changes.give_up_core()?;
        notes.core_why = Vec::new();
    }
    match choice.scheduling.policy {
        Class::Fifo => {
            notes.applied.push(Applied::Fifo { priority: choice.scheduling.priority });
        }
        Class::Deadline => notes.applied.push(Applied::deadline(&choice.scheduling)),
        _ => {}
    }
    Ok(Some(choice))
}

fn record_rest(response: &Response, policy: &Policy, options: &Options, notes: &mut Notes) {
    let error = |number: i32| io::Error::from_raw_os_error(number);
    match response.timer_slack {
        None => notes.applied.push(Applied::TimerSlack { ns: 1 }),
        Some(number) => notes.not_applied.push(why::other("timer slack of 1 ns", &error(number))),
    }
    if policy.io.locks_memory() {
        match response.lock_memory {
            None => notes.applied.push(Applied::NoMemoryLimit),
            // The capability exempts the program from the limit.
            Some(_) if why::may_lock_memory() => {}
            Some(number) => notes.not_applied.push(why::no_memory_limit(&error(number))),
        }
    }
    if policy.io.lock_memory == Some(true) {
        notes.not_applied.push(NotApplied {
            what: "locked memory".into(),
            why: "only the program itself can lock its memory".into(),
            remedy: "call mlockall or the library's `Lane::enter` in the program, or set `lock_memory = false`".into(),
        });
    }
    if !options.view.is_empty() {
        notes.applied.push(Applied::TierFiles { files: options.view.shown.len() });
    }
}
