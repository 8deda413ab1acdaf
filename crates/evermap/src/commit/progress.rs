//! Progress of a log, stored beside its header: written after each record, and never flushed by
//! itself.
//!
//! While the machine runs, every process reads the newest progress, so a record that it counts and
//! that cannot be read is damaged, whatever its bytes look like. After a power failure the progress
//! may be an older one: then it is a lower bound of the durable records. A log without readable
//! progress is judged by its records alone. The progress must never claim a record as durable
//! before its flush.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytemuck::{Zeroable, bytes_of, pod_read_unaligned};
use tracing::debug;

use crate::checksum::crc32c;
use crate::format::{
    LOG_PROGRESS_MAGIC, LOG_PROGRESS_OFFSET, LOG_SLOT_BYTES, LogHeader, LogProgress,
};
use crate::mutate::{Mutant, mutated};
use crate::storage::{Boot, File};

/// Progress of an open log. Shared with the thread that flushes the log in the background.
#[derive(Debug)]
pub(super) struct Progress {
    file: Arc<dyn File>,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// Offset in the file; a log of format 1 has none.
    at: Option<u64>,
    salt: u64,
    written: u64,
    durable: u64,
}

impl Progress {
    /// Creates the progress of a generation with `records` records, all durable.
    pub(super) fn new(
        file: Arc<dyn File>,
        header: &LogHeader,
        slot: u64,
        records: u64,
    ) -> Arc<Progress> {
        let begun = State::begin(header, slot);
        let state = State { written: records, durable: records, ..begun };
        Arc::new(Progress { file, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Index of the newest record known to be durable.
    pub(super) fn durable(&self) -> u64 {
        self.lock().durable
    }

    /// Writes the progress before the first record of this run of the machine.
    pub(super) fn announce(&self) {
        self.store(*self.lock());
    }

    /// Notes that a record was written, and if that made it durable.
    pub(super) fn wrote(&self, index: u64, durable: bool) {
        let mut state = self.lock();
        state.written = index;
        if durable || mutated(Mutant::DurableClaimedEarly) {
            state.durable = index;
        }
        self.store(*state);
    }

    /// Notes that the records of a generation up to `index` were flushed.
    pub(super) fn flushed(&self, salt: u64, index: u64) {
        let mut state = self.lock();
        if state.salt == salt && state.durable < index {
            state.durable = index;
            self.store(*state);
        }
    }

    /// Starts a new generation, without records. Its header and progress are already written.
    pub(super) fn begin(&self, header: &LogHeader, slot: u64) {
        *self.lock() = State::begin(header, slot);
    }

    /// Writes the progress. An error is only logged: without it, damage is harder to distinguish
    /// from a torn write, but no promise depends on it.
    fn store(&self, state: State) {
        let Some(at) = state.at.filter(|_| !mutated(Mutant::ProgressNotWritten)) else { return };
        let progress = sealed(state.salt, self.file.boot(), state.written, state.durable);
        if let Err(error) = self.file.write_at(bytes_of(&progress), at) {
            debug!(%error, "the progress of a log could not be written");
        }
    }
}

impl State {
    fn begin(header: &LogHeader, slot: u64) -> State {
        let at = slot * LOG_SLOT_BYTES + LOG_PROGRESS_OFFSET;
        let at = (header.format_version > 1).then_some(at);
        State { at, salt: header.salt, written: 0, durable: 0 }
    }
}

/// Returns a progress record with its checksum.
pub(crate) fn sealed(salt: u64, boot: Boot, written: u64, durable: u64) -> LogProgress {
    let magic = LOG_PROGRESS_MAGIC;
    let zeroed = LogProgress::zeroed();
    let mut progress = LogProgress { magic, salt, boot: boot.0, written, durable, ..zeroed };
    progress.checksum = checksum(&progress);
    progress
}

/// Reads the progress of a generation; `None` if it is invalid or of another generation.
pub(super) fn parse(bytes: &[u8], salt: u64) -> Option<LogProgress> {
    if mutated(Mutant::ProgressIgnored) {
        return None;
    }
    let progress: LogProgress = pod_read_unaligned(bytes.get(..size_of::<LogProgress>())?);
    let right = progress.magic == LOG_PROGRESS_MAGIC
        && progress.salt == salt
        && progress.checksum == checksum(&progress);
    right.then_some(progress)
}

fn checksum(progress: &LogProgress) -> u32 {
    crc32c(&[bytes_of(&LogProgress { checksum: 0, ..*progress })])
}
