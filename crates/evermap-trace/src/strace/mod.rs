//! Parser for `strace -f -ttt -T -y`: one line per system call, with its time, duration and the
//! files of its descriptors.
//!
//! Times are seconds since 1970 at the start of the call; durations are seconds in angle brackets.
//! A call interrupted by other lines is printed as two lines, which are joined here. Module `calls`
//! has the meaning of calls. The parser tracks the offsets of plain reads and writes through
//! `open`, `lseek`, `dup`, `fork` and `close`, so the recording must include these.

mod calls;
mod descriptor;
mod line;
mod processes;

use std::collections::HashMap;

use crate::collect::Collector;
use crate::parser::Parser;
use crate::warning::Problem;
use calls::{Mapped, Origin};
use processes::Processes;

/// Maximum total text of unfinished calls. Further ones are treated as calls that never return. A
/// hundred thousand waiting threads need less.
const PENDING_BYTES_MAX: usize = 16 << 20;

const UNFINISHED: &str = "<unfinished ...>";
const DETACHED: &str = "<detached ...>";

/// Parser for strace.
#[derive(Debug)]
pub(super) struct Strace {
    processes: Processes,
    pending: HashMap<u32, Pending>,
    pending_bytes: usize,
    mappings_are_reads: bool,
    mapped: Mapped,
    is_ring_seen: bool,
}

/// First line of an interrupted call.
#[derive(Debug)]
struct Pending {
    text: String,
    at_ns: u64,
    line: u64,
}

pub(super) fn is_line(text: &str) -> bool {
    let Some(line) = line::split(text) else { return false };
    ["+++ ", "--- ", "<... "].iter().any(|start| line.rest.starts_with(start))
        || line::call(line.rest).is_some()
}

impl Strace {
    pub fn new(mappings_are_reads: bool) -> Self {
        Self {
            processes: Processes::default(),
            pending: HashMap::new(),
            pending_bytes: 0,
            mappings_are_reads,
            mapped: Mapped::default(),
            is_ring_seen: false,
        }
    }

    /// Handles `<... read resumed>"...", 32768) = 32768 <0.000029>`.
    fn resume(&mut self, line: &line::Line<'_>, text: &str, collector: &mut Collector) -> bool {
        let Some((name, tail)) = text.split_once(" resumed>") else { return false };
        let process = line.process.unwrap_or(0);
        let is_of = |pending: &Pending| {
            pending.text.strip_prefix(name).is_some_and(|rest| rest.starts_with('('))
        };
        let pending = match self.take_pending(process) {
            Some(pending) if is_of(&pending) => pending,
            other => {
                // Lines are missing: the pending call ended without a line.
                if let Some(other) = other {
                    self.abandon(line.process, &other, collector);
                }
                collector.warn(Problem::Unstarted, name);
                return true;
            }
        };
        let Pending { mut text, at_ns, line: number } = pending;
        text.push_str(tail);
        let Some(call) = line::call(&text).filter(|call| call.result.is_some()) else {
            return false;
        };
        let waited_ns = Some(line.at_ns.saturating_sub(at_ns));
        let process = line.process;
        self.take_call(&Origin { process, at_ns, waited_ns, line: number }, &call, collector);
        true
    }

    /// Handles `read(3</tmp/clip.mkv>,  <unfinished ...>`.
    fn suspend(&mut self, line: &line::Line<'_>, text: &str, collector: &mut Collector) {
        let process = line.process.unwrap_or(0);
        let number = collector.line();
        if let Some(call) = line::call(text) {
            self.begin_call(process, &call);
        }
        if let Some(before) = self.take_pending(process) {
            self.abandon(line.process, &before, collector);
        }
        let pending = Pending { text: text.to_string(), at_ns: line.at_ns, line: number };
        if self.pending_bytes + text.len() > PENDING_BYTES_MAX {
            return self.abandon(line.process, &pending, collector);
        }
        self.pending_bytes += text.len();
        self.pending.insert(process, pending);
    }

    /// Removes the pending call of a process.
    fn take_pending(&mut self, process: u32) -> Option<Pending> {
        let pending = self.pending.remove(&process)?;
        self.pending_bytes -= pending.text.len();
        Some(pending)
    }

    /// Handles a pending call as one that never returned.
    fn abandon(&mut self, process: Option<u32>, pending: &Pending, collector: &mut Collector) {
        let &Pending { ref text, at_ns, line } = pending;
        if let Some(call) = line::call(text) {
            self.take_call(&Origin { process, at_ns, waited_ns: None, line }, &call, collector);
        }
    }
}

impl Parser for Strace {
    fn take(&mut self, text: &str, collector: &mut Collector) -> bool {
        if text.starts_with("strace: ") {
            return true;
        }
        let Some(line) = line::split(text) else { return false };
        let rest = line.rest.trim_end();
        let is_taken = if rest.starts_with("--- ") {
            true
        } else if rest.starts_with("+++ ") {
            let process = line.process.unwrap_or(0);
            if let Some(pending) = self.take_pending(process) {
                self.abandon(line.process, &pending, collector);
            }
            self.processes.exit(process);
            true
        } else if let Some(resumed) = rest.strip_prefix("<... ") {
            self.resume(&line, resumed, collector)
        } else if let Some(text) = rest.strip_suffix(UNFINISHED).or(rest.strip_suffix(DETACHED)) {
            self.suspend(&line, text, collector);
            true
        } else {
            let call = line::call(rest).filter(|call| call.result.is_some());
            let origin = Origin {
                process: line.process,
                at_ns: line.at_ns,
                waited_ns: None,
                line: collector.line(),
            };
            call.inspect(|call| self.take_call(&origin, call, collector)).is_some()
        };
        if is_taken {
            collector.check_order(line.at_ns);
        }
        is_taken
    }

    fn end(&mut self, collector: &mut Collector) {
        let mut left: Vec<(u32, Pending)> = self.pending.drain().collect();
        left.sort_by_key(|(_, pending)| pending.line);
        for (process, pending) in left {
            self.abandon((process > 0).then_some(process), &pending, collector);
        }
        self.mapped.warn(self.mappings_are_reads, collector);
    }
}
