//! Report of a run: the parts of the lane that were applied, and how the program ended; as text and
//! JSON.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use serde::Serialize;

use super::notes::{Demotion, NotApplied, Notes};
use crate::Applied;
use crate::sys::wait::ResourceUse;

/// End of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum End {
    /// Exited with this code.
    Exited(i32),
    /// Killed by this signal.
    Killed(i32),
}

impl End {
    pub(super) fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => End::Exited(code),
            (None, signal) => End::Killed(signal.unwrap_or_default()),
        }
    }
}

/// Report of a program that ran in a lane. Times and counts are the kernel's, for the program and
/// the processes that it waited for, unless stated otherwise.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RunReport {
    /// Program and arguments.
    pub command: String,
    /// End of the program.
    pub end: End,
    /// Last core of the lane, or `None`.
    pub core: Option<u32>,
    /// Reasons for that core, in sentences.
    pub core_why: Vec<String>,
    /// Parts of the policy that were applied.
    pub applied: Vec<Applied>,
    /// Parts that could not be applied.
    pub not_applied: Vec<NotApplied>,
    /// Events, in sentences: lanes of others that were undone first, the end of the lane's time, a
    /// core that went offline.
    pub events: Vec<String>,
    /// Threads that lost their priority because they did not sleep.
    pub demotions: Vec<Demotion>,
    /// Changes undone at the end, in sentences.
    pub undone: Vec<String>,
    /// Wall time from setup to the end of cleanup.
    pub wall_ms: f64,
    /// Processor time in user mode.
    pub user_ms: f64,
    /// Processor time in the kernel.
    pub system_ms: f64,
    /// Run-queue wait of the program's own threads, as last seen of each.
    pub run_queue_ms: f64,
    /// Page faults served from memory.
    pub minor_faults: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
    /// Threads observed. Threads shorter than one poll are missed.
    pub threads: usize,
    /// Processes started by the program, which were moved off the core.
    pub children: usize,
    /// Interrupts on the core during the run. `None` if unknown.
    pub interrupts: Option<u64>,
    /// Time in which the core was ready to run but the host of this virtual machine ran others, in
    /// steps of 10 ms. `None` if unknown.
    pub stolen_ms: Option<f64>,
}

/// End of a run: the program's end, and the resources that it used.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) end: End,
    pub(super) used: ResourceUse,
    pub(super) threads: usize,
    pub(super) run_queue_ms: f64,
    pub(super) interrupts: Option<u64>,
    pub(super) stolen_ms: Option<f64>,
}

impl RunReport {
    pub(super) fn of(command: String, notes: Notes, outcome: Outcome, wall: Duration) -> Self {
        let Outcome { end, used, threads, run_queue_ms, interrupts, stolen_ms } = outcome;
        Self {
            command,
            end,
            core: notes.core,
            core_why: notes.core_why,
            applied: notes.applied,
            not_applied: notes.not_applied,
            events: notes.events,
            demotions: notes.demotions,
            undone: notes.undone,
            wall_ms: milliseconds(wall),
            user_ms: milliseconds(used.user),
            system_ms: milliseconds(used.system),
            run_queue_ms,
            minor_faults: used.minor_faults,
            major_faults: used.major_faults,
            voluntary_switches: used.voluntary_switches,
            involuntary_switches: used.involuntary_switches,
            threads,
            children: notes.children,
            interrupts,
            stolen_ms,
        }
    }

    /// Exit code in the convention of shells: the program's code, or 128 plus the signal.
    pub fn exit_code(&self) -> u8 {
        match self.end {
            End::Exited(code) => code as u8,
            End::Killed(signal) => (128 + signal) as u8,
        }
    }
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end {
            End::Exited(code) => writeln!(f, "{}: exited with {code}", self.command)?,
            End::Killed(signal) => writeln!(f, "{}: killed by signal {signal}", self.command)?,
        }
        match self.core {
            Some(core) => writeln!(f, "  core       {core}: {}", self.core_why.join("; "))?,
            None => writeln!(f, "  core       none")?,
        }
        lines(f, "applied", &self.applied)?;
        let mut said: Vec<(&str, &str)> = Vec::new();
        for NotApplied { what, why, remedy } in &self.not_applied {
            // Several parts may lack the same right.
            match said.contains(&(why, remedy)) {
                true => writeln!(f, "  missing    {what}: for the same reason")?,
                false => writeln!(f, "  missing    {what}: {why}; {remedy}")?,
            }
            said.push((why, remedy));
        }
        lines(f, "events", &self.events)?;
        for Demotion { thread, name, ran_ms } in &self.demotions {
            writeln!(
                f,
                "  demoted    thread {thread} ({name}), which ran for {ran_ms:.1} ms without sleeping"
            )?;
        }
        writeln!(
            f,
            "  time       {:.1} ms wall, {:.1} ms user, {:.1} ms system, {:.1} ms in the run queue",
            self.wall_ms, self.user_ms, self.system_ms, self.run_queue_ms
        )?;
        writeln!(f, "  faults     {} minor, {} major", self.minor_faults, self.major_faults)?;
        writeln!(
            f,
            "  switches   {} voluntary, {} involuntary",
            self.voluntary_switches, self.involuntary_switches
        )?;
        write!(f, "  threads    {}, {} processes started", self.threads, self.children)?;
        if let Some(interrupts) = self.interrupts {
            write!(f, ", {interrupts} interrupts on the core")?;
        }
        if let Some(stolen_ms) = self.stolen_ms.filter(|ms| *ms > 0.0) {
            write!(f, ", {stolen_ms:.0} ms stolen by the host of this machine")?;
        }
        writeln!(f)?;
        lines(f, "undone", &self.undone)
    }
}

fn lines(f: &mut fmt::Formatter<'_>, head: &str, lines: &[impl fmt::Display]) -> fmt::Result {
    lines.iter().try_for_each(|line| writeln!(f, "  {head:<10} {line}"))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
