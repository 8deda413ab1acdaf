//! Requests, and the trace that lists them.

use std::sync::Arc;

use crate::format::Format;
use crate::period::Period;
use crate::warning::Warning;

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

impl Trace {
    /// Sets the frame of each event to the period of its request, counted from the begin of the
    /// trace.
    pub fn mark_frames(&mut self, period: Period) {
        for event in &mut self.events {
            event.frame = Some(period.at(event.at_ns));
        }
    }
}
