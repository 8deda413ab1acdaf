//! One period's work: reads, and its end.

use std::cell::{Cell, RefCell};

use super::file::File;
use super::lane::Lane;
use super::pace::Beat;
use crate::reads::{Note, Served};
use crate::report::samples::Sample;
use crate::{Reads, Result};

/// The work of one period. It ends when it is dropped, or by [`Frame::end`]: then its completion is noted.
pub struct Frame<'l> {
    lane: &'l mut Lane,
    beat: Beat,
    io_ns: Cell<u64>,
    reads: Cell<Reads>,
    notes: RefCell<Vec<Note>>,
    is_forgotten: bool,
}

impl<'l> Frame<'l> {
    pub(super) fn new(lane: &'l mut Lane, beat: Beat) -> Self {
        let (io_ns, reads, notes) = Default::default();
        Self { lane, beat, io_ns, reads, notes, is_forgotten: false }
    }

    /// The number of its period, from 0. Those that are missing were dropped.
    pub fn period(&self) -> u64 {
        self.beat.period
    }

    /// How late it began: nanoseconds since its period's beginning.
    pub fn wake_up_ns(&self) -> u64 {
        self.beat.woke_ns.saturating_sub(self.beat.begin_ns)
    }

    /// The next bytes of a file: fewer at its end, none behind it, or from its beginning again if it was opened so. They are lent until the file is
    /// read again, beyond this frame's end if need be.
    ///
    /// What it costs is the way's: see [`crate::IoMode`]. Reads that are longer than all before get new memory.
    ///
    /// # Errors
    /// [`Error::Cut`](crate::Error::Cut) and [`Error::Changed`](crate::Error::Changed) if the file is not what it was when it was opened; the disk's.
    pub fn read<'f>(&self, file: &'f mut File, length_bytes: usize) -> Result<&'f [u8]> {
        self.timed(file, |file| file.read(length_bytes))
    }

    /// The bytes from an offset on. Where the next [`Frame::read`] begins stays as it was; but what reads ahead goes by what was read last.
    ///
    /// # Errors
    /// As [`Frame::read`].
    pub fn read_at<'f>(
        &self,
        file: &'f mut File,
        offset_bytes: u64,
        length_bytes: usize,
    ) -> Result<&'f [u8]> {
        self.timed(file, |file| file.read_at(offset_bytes, length_bytes))
    }

    fn timed<'f>(
        &self,
        file: &'f mut File,
        read: impl FnOnce(&'f mut File) -> Result<(&'f [u8], Served)>,
    ) -> Result<&'f [u8]> {
        let notes = file.notes();
        if !notes.is_empty() {
            self.notes.borrow_mut().extend(notes);
        }
        let begin_ns = self.lane.now_ns();
        let outcome = read(file);
        self.io_ns.set(self.io_ns.get() + self.lane.now_ns().saturating_sub(begin_ns));
        let (bytes, served) = outcome?;
        let mut reads = self.reads.get();
        reads.count(served, bytes.len());
        self.reads.set(reads);
        Ok(bytes)
    }

    /// It is done.
    pub fn end(self) {}

    /// It was none: nothing of it is noted, neither frame nor miss.
    pub fn forget(mut self) {
        self.is_forgotten = true;
    }
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        if self.is_forgotten {
            return;
        }
        let wake_up_ns = self.wake_up_ns();
        let (io_ns, notes) = (self.io_ns.get(), self.notes.take());
        self.lane.end_frame(&self.beat, self.reads.get(), notes, |completion_ns| Sample {
            period: self.beat.period,
            wake_up_ns,
            io_ns,
            completion_ns,
        });
    }
}

impl std::fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frame").field("period", &self.beat.period).finish_non_exhaustive()
    }
}
