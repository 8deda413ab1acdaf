//! What a program had in its lane, and how it ended: as text and as JSON.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use serde::Serialize;

use super::Program;
use crate::Result;
use crate::guard::UndoneLane;
use crate::sys::wait::Used;

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum End {
    /// With this code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

/// What the lane could not have, and went on without.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NotApplied {
    /// What.
    pub what: String,
    /// Which right or setting is missing.
    pub why: String,
    /// Where that would be given.
    pub remedy: String,
}

/// A thread that lost its priority because it did not sleep.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Demotion {
    /// Its number.
    pub thread: u32,
    /// Its name.
    pub name: String,
    /// Processor time that it took without sleeping once, in milliseconds.
    pub ran_ms: f64,
}

/// A program that was in a lane. Times and counts are the kernel's, of the program and the processes that it waited for, unless said.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Ended {
    /// The program and its arguments.
    pub command: String,
    /// How it ended.
    pub end: End,
    /// The core that it had last; none if it had none of its own.
    pub core: Option<u32>,
    /// Why that one, in sentences.
    pub core_why: Vec<String>,
    /// What it had, in sentences.
    pub applied: Vec<String>,
    /// What it could not have.
    pub not_applied: Vec<NotApplied>,
    /// What happened meanwhile, in sentences: lanes of others that were undone first, the end of its time, a core that went offline.
    pub events: Vec<String>,
    /// Its threads that did not sleep.
    pub demotions: Vec<Demotion>,
    /// What was undone at its end, in sentences.
    pub undone: Vec<String>,
    /// From the beginning of the lane's making to the end of its undoing.
    pub wall_ms: f64,
    /// Processor time in the program.
    pub user_ms: f64,
    /// Processor time in the kernel for it.
    pub system_ms: f64,
    /// Time that its own threads could have run and did not, as last seen of each.
    pub run_queue_ms: f64,
    /// Pages that came without the disk.
    pub minor_faults: u64,
    /// Pages that were waited for.
    pub major_faults: u64,
    /// Times that it waited for something.
    pub voluntary_switches: u64,
    /// Times that another program was given its core.
    pub involuntary_switches: u64,
    /// Its own threads, those that were seen: each lives longer than a look.
    pub threads: usize,
    /// Processes that it started and that were sent to where all others run.
    pub children: usize,
    /// Interrupts on its core meanwhile; none where that is not known.
    pub interrupts: Option<u64>,
    /// The time for which its core could have run and the host of this virtual machine ran others, to 10 ms; none where that is not known.
    pub stolen_ms: Option<f64>,
}

impl Ended {
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

    pub(super) fn take(&mut self, status: ExitStatus, used: &Used) {
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

    /// What could not be undone takes nothing from how the program ended: it is told beside that.
    pub(super) fn take_undone(&mut self, undone: Result<UndoneLane>) {
        match undone {
            Ok(lane) => self.undone.extend(lane.did),
            Err(error) => self.events.push(format!("not all of the lane is undone: {error}")),
        }
    }

    /// As a shell has it: its code, or 128 and the signal.
    pub fn exit_code(&self) -> u8 {
        match self.end {
            End::Exited(code) => code as u8,
            End::Killed(signal) => (128 + signal) as u8,
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end {
            End::Exited(code) => writeln!(f, "{}: ended with {code}", self.command)?,
            End::Killed(signal) => writeln!(f, "{}: ended by signal {signal}", self.command)?,
        }
        match self.core {
            Some(core) => writeln!(f, "  core       {core}: {}", self.core_why.join("; "))?,
            None => writeln!(f, "  core       none of its own")?,
        }
        lines(f, "had", &self.applied)?;
        let mut said: Vec<(&str, &str)> = Vec::new();
        for NotApplied { what, why, remedy } in &self.not_applied {
            // One lack may be behind several.
            match said.contains(&(why, remedy)) {
                true => writeln!(f, "  had not    {what}: for the same reason")?,
                false => writeln!(f, "  had not    {what}: {why}; {remedy}")?,
            }
            said.push((why, remedy));
        }
        lines(f, "meanwhile", &self.events)?;
        for Demotion { thread, name, ran_ms } in &self.demotions {
            writeln!(
                f,
                "  demoted    thread {thread} ({name}), which ran for {ran_ms:.1} ms without sleeping"
            )?;
        }
        writeln!(
            f,
            "  time       {:.1} ms, of these {:.1} ms running, {:.1} ms for it in the kernel, {:.1} ms waiting for the core",
            self.wall_ms, self.user_ms, self.system_ms, self.run_queue_ms
        )?;
        writeln!(
            f,
            "  pages      {} came at once, {} were waited for",
            self.minor_faults, self.major_faults
        )?;
        writeln!(
            f,
            "  switches   {} to wait, {} for another program",
            self.voluntary_switches, self.involuntary_switches
        )?;
        write!(f, "  threads    {}, {} processes started", self.threads, self.children)?;
        if let Some(interrupts) = self.interrupts {
            write!(f, ", {interrupts} interrupts on the core")?;
        }
        if let Some(stolen_ms) = self.stolen_ms.filter(|ms| *ms > 0.0) {
            write!(f, ", and {stolen_ms:.0} ms in which this machine's host ran others on it")?;
        }
        writeln!(f)?;
        lines(f, "undone", &self.undone)
    }
}

fn lines(f: &mut fmt::Formatter<'_>, head: &str, lines: &[String]) -> fmt::Result {
    lines.iter().try_for_each(|line| writeln!(f, "  {head:<10} {line}"))
}
