//! Traces of reads and writes, converted from other tools to one form.
//!
//! A [`Trace`] is a list of [`Event`]s ordered by time. Each format has its own parser, which reads
//! one line at a time. A parser never panics, never stores more than its [`Options`] allow, and
//! reports what it left out as a [`Warning`]. Only [`record()`] starts programs; everything else
//! reads its input. Section 10 of `docs/lane.md` documents the units and how they were determined.

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
pub use record::{Recorded, Recorder, record};
pub use statistics::{
    FileStatistics, Flushes, Frames, PAGE_BYTES, Pages, Statistics, Transfers, stat,
};
pub use warning::{Problem, Warning};

/// Operation on a file or device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Bytes were read.
    Read,
    /// Bytes were written.
    Write,
    /// Earlier writes were made durable: `fsync` and similar calls, or a flush of a device.
    Flush,
    /// A range was discarded: a discard, or a hole punched.
    Discard,
    /// Any other call that names a file: opening, mapping, reading ahead.
    Other,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time of the request, since the begin of the trace.
    pub at_ns: u64,
    /// Frame of the request, if the trace has frames.
    pub frame: Option<u64>,
    /// Operation.
    pub operation: Operation,
    /// File or device. Bytes of a name that are not UTF-8 are written as `\xff`.
    pub file: Option<Arc<str>>,
    /// Offset in the file, below 2^63. `None` if the trace does not contain it.
    pub offset_bytes: Option<u64>,
    /// Bytes transferred, if the trace contains them, else bytes requested. At most
    /// [`LENGTH_BYTES_MAX`] for reads and writes.
    pub length_bytes: u64,
    /// Time from the request to its answer.
    pub latency_ns: Option<u64>,
    /// Thread or process that made the request, as in the trace.
    pub process: Option<u32>,
}

/// Maximum length of a read or write, as in Linux, which truncates longer calls. It bounds loops
/// over the pages of an event.
pub const LENGTH_BYTES_MAX: u64 = 0x7fff_f000;

/// Requests ordered by time, and warnings from reading them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Format of the recording. Kept when a trace is imported.
    pub format: Format,
    /// Events ordered by `at_ns`. Events with equal times keep their original order.
    pub events: Vec<Event>,
    /// Problems found while reading: some of each kind, with the number of further ones.
    pub warnings: Vec<Warning>,
}

/// Options for reading a trace.
#[derive(Clone, Debug)]
pub struct Options {
    /// Format of the trace, or `None` to detect it from the first lines.
    pub format: Option<Format>,
    /// Unit of time in fio logs of version 3. `None` means microseconds, as fio writes them.
    pub time_unit: Option<TimeUnit>,
    /// Counts mapping a file as reading the mapped range. Otherwise it is [`Operation::Other`].
    pub mappings_are_reads: bool,
    /// Maximum number of events to keep; more cause a warning. An event takes about 100 bytes.
    pub events_max: usize,
}

impl Default for Options {
    /// Detects the format, does not count mappings as reads, and keeps up to 10 million events.
    fn default() -> Self {
        Self { format: None, time_unit: None, mappings_are_reads: false, events_max: 10_000_000 }
    }
}

impl Trace {
    /// Reads the file `path`, or standard input for `-`. Without a format, detects it from the
    /// first lines.
    ///
    /// # Errors
    /// The file cannot be read, its format is unknown, or it contains no request.
    pub fn read(path: impl AsRef<Path>, format: Option<Format>) -> Result<Trace> {
        Self::read_with(path, &Options { format, ..Options::default() })
    }

    /// Like [`read`](Self::read), with options.
    ///
    /// # Errors
    /// Same errors as [`read`](Self::read).
    pub fn read_with(path: impl AsRef<Path>, options: &Options) -> Result<Trace> {
        let path = path.as_ref();
        if path == Path::new("-") {
            return Self::read_from(io::stdin().lock(), "standard input", options);
        }
        let name = path.display().to_string();
        let failed = |source| Error::Io { operation: "open", name: name.clone(), source };
        let file = File::open(path).map_err(failed)?;
        // Opening a directory succeeds, but reading it fails with the same kind of error.
        Self::read_from(BufReader::with_capacity(1 << 16, file), &name, options)
    }

    /// Reads a trace from a reader. `name` is used in messages.
    ///
    /// Makes one pass, and sorts the events if they are out of order. Stores the events, the names
    /// of files, and one line.
    ///
    /// # Errors
    /// Same errors as [`read`](Self::read).
    pub fn read_from(reader: impl BufRead, name: &str, options: &Options) -> Result<Trace> {
        format::read(reader, name, options)
    }

    /// Writes the trace in the format of this crate (section 10 of `docs/lane.md`). Omits warnings.
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write(&self, writer: impl Write) -> io::Result<()> {
        json::write(self, writer)
    }

    /// Sets the frame of each event to the period of its request, counted from the begin of the
    /// trace.
    pub fn mark_frames(&mut self, period: Period) {
        for event in &mut self.events {
            event.frame = Some(period.at(event.at_ns));
        }
    }
}
