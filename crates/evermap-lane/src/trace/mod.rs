//! What a program read and wrote, and when: traces of other tools, brought into one form.
//!
//! A [`Trace`] is a list of [`Event`]s by time. Each format has a parser of its own that sees one line at a time and promises never to
//! panic, never to hold more than its [`Options`] allow, and to say what it left out ([`Warning`]). Only [`record()`] starts programs; the
//! rest reads what it is given. Units, and how they were found out: `docs/lane.md`, section 10.

mod blkparse;
mod block;
mod collect;
mod error;
mod fio;
mod format;
mod json;
mod lines;
mod msr;
mod numbers;
mod perf;
mod ranges;
mod record;
mod spc;
mod statistics;
mod strace;
mod warning;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;

use crate::Period;

use collect::Collector;
pub use error::{Error, Result};
pub use format::{Format, TimeUnit};
pub use record::{Recorded, With, record};
pub use statistics::{Answers, Frames, OfFile, PAGE_BYTES, Pages, Statistics, Transfers, stat};
pub use warning::{Problem, Warning};

/// What was asked of a file or device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Bytes were brought in.
    Read,
    /// Bytes were put out.
    Write,
    /// What was written before shall be durable: `fsync` and its like, a flush of a device.
    Flush,
    /// A range is no longer needed: a discard, a hole punched.
    Discard,
    /// Anything else that names a file: opening, mapping, reading ahead.
    Other,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it was made, since the trace's beginning.
    pub at_ns: u64,
    /// The frame that it belongs to; none when nobody said which.
    pub frame: Option<u64>,
    /// What it was.
    pub operation: Operation,
    /// Of which file or device. Bytes of a name that are no UTF-8 are written as `\xff`.
    pub file: Option<Arc<str>>,
    /// From where on; below 2^63. None when the trace doesn't tell.
    pub offset_bytes: Option<u64>,
    /// How much was read or written in fact, where the trace tells; else how much was asked for. At most
    /// [`LENGTH_BYTES_MAX`] in reads and writes.
    pub length_bytes: u64,
    /// How long it took until it was answered.
    pub latency_ns: Option<u64>,
    /// Who made it: a thread or a process, as the trace has it.
    pub process: Option<u32>,
}

/// What one read or write may be at most: Linux itself cuts every call to this. Whoever walks over an event's pages has an end.
pub const LENGTH_BYTES_MAX: u64 = 0x7fff_f000;

/// Requests by time, and what was noticed when they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// What it was recorded as: kept when a trace is imported.
    pub format: Format,
    /// By `at_ns`; those of one moment in the order they were found in.
    pub events: Vec<Event>,
    /// What could not be read as it stands, some of each kind and how many more.
    pub warnings: Vec<Warning>,
}

/// How a trace is read.
#[derive(Clone, Debug)]
pub struct Options {
    /// What it is; looked for in its first lines when none.
    pub format: Option<Format>,
    /// The unit of time of fio's version 3 logs; guessed from fio's own practice when none.
    pub time_unit: Option<TimeUnit>,
    /// Mapping a file counts as reading all that was mapped. Otherwise it is [`Operation::Other`].
    pub mappings_are_reads: bool,
    /// No more events than this are kept, and a warning says so. An event takes about 100 bytes.
    pub events_max: usize,
}

impl Default for Options {
    /// The format is detected, mappings are no reads, 10 million events.
    fn default() -> Self {
        Self { format: None, time_unit: None, mappings_are_reads: false, events_max: 10_000_000 }
    }
}

impl Trace {
    /// Reads the file `path`, or standard input for `-`. Without a format, the first lines tell it.
    ///
    /// # Errors
    /// The file cannot be read; no format fits; nothing in it is a request.
    pub fn read(path: impl AsRef<Path>, format: Option<Format>) -> Result<Trace> {
        Self::read_with(path, &Options { format, ..Options::default() })
    }

    /// As [`read`](Self::read), with more to say about it.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_with(path: impl AsRef<Path>, options: &Options) -> Result<Trace> {
        let path = path.as_ref();
        if path == Path::new("-") {
            return Self::read_from(io::stdin().lock(), "standard input", options);
        }
        let name = path.display().to_string();
        let failed = |source| Error::Io { operation: "open", name: name.clone(), source };
        let file = File::open(path).map_err(failed)?;
        // Opening a directory succeeds, reading it doesn't; that comes out as the same error.
        Self::read_from(BufReader::with_capacity(1 << 16, file), &name, options)
    }

    /// From anything; `name` is for messages.
    ///
    /// Cost: one pass, and a sort if the events are out of order. Memory: the events, the names of files, and one line.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_from(reader: impl BufRead, name: &str, options: &Options) -> Result<Trace> {
        format::read(reader, name, options)
    }

    /// Writes it in the format of this crate, see `docs/lane.md`, section 10. Warnings are not kept.
    ///
    /// # Errors
    /// What the writer says.
    pub fn write(&self, writer: impl Write) -> io::Result<()> {
        json::write(self, writer)
    }

    /// Says for each event which frame it belongs to: the period that its request was made in, from the trace's beginning.
    pub fn mark_frames(&mut self, period: Period) {
        for event in &mut self.events {
            event.frame = Some(period.at(event.at_ns));
        }
    }
}
