//! Report of a run: the parts of the lane that were applied, and how the program ended; as text and
//! JSON.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use serde::Serialize;

use super::Program;
use crate::Result;
use crate::guard::UndoneLane;
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

/// Part of a lane that could not be applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NotApplied {
    /// Part that was wanted.
    pub what: String,
    /// Missing right or setting.
    pub why: String,
    /// Way to provide it.
    pub remedy: String,
}

/// Thread that lost its priority because it did not sleep.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Demotion {
    /// Thread number.
    pub thread: u32,
    /// Thread name.
    pub name: String,
    /// Processor time without sleep, in milliseconds.
    pub ran_ms: f64,
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
    /// Parts of the policy that were applied, in sentences.
    pub applied: Vec<String>,
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

impl RunReport {
    pub(super) fn of(program: &Program) -> Self {
        let words = std::iter::once(&program.name).chain(&program.arguments);
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        Self {
            command: words.join(" "),
            end: End::Exited(0),
            core: None,
            core_why: Vec::new(),
            applied: Vec::new(),
            not_applied: Vec::new(),
            events: Vec::new(),
            demotions: Vec::new(),
            undone: Vec::new(),
            wall_ms: 0.0,
            user_ms: 0.0,
            system_ms: 0.0,
            run_queue_ms: 0.0,
            minor_faults: 0,
            major_faults: 0,
            voluntary_switches: 0,
            involuntary_switches: 0,
            threads: 0,
            children: 0,
            interrupts: None,
            stolen_ms: None,
        }
    }

    pub(super) fn take(&mut self, status: ExitStatus, used: &ResourceUse) {
        self.end = match (status.code(), status.signal()) {
            (Some(code), _) => End::Exited(code),
            (None, signal) => End::Killed(signal.unwrap_or_default()),
        };
        self.user_ms = super::milliseconds(used.user);
        self.system_ms = super::milliseconds(used.system);
        self.minor_faults = used.minor_faults;
        self.major_faults = used.major_faults;
        self.voluntary_switches = used.voluntary_switches;
        self.involuntary_switches = used.involuntary_switches;
    }

    /// Adds the result of undoing. A failure to undo is an event: the program's exit status stays
    /// valid.
    pub(super) fn add_undone(&mut self, undone: Result<UndoneLane>) {
        match undone {
            Ok(lane) => self.undone.extend(lane.did),
            Err(error) => self.events.push(format!("the lane is not completely undone: {error}")),
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

fn lines(f: &mut fmt::Formatter<'_>, head: &str, lines: &[String]) -> fmt::Result {
    lines.iter().try_for_each(|line| writeln!(f, "  {head:<10} {line}"))
}
