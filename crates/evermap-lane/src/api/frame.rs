//! Work of one period: its reads and its end.

use std::cell::{Cell, RefCell};

use super::file::File;
use super::frame_loop::FrameStart;
use super::recorder::Recorder;
use crate::reads::{Note, Served};
use crate::report::samples::Sample;
use crate::{Reads, Result};

/// Work of one period. Dropping it or calling [`Frame::end`] ends it and records its completion.
pub struct Frame<'l> {
    recorder: &'l mut Recorder,
    start: FrameStart,
    io_ns: Cell<u64>,
    reads: Cell<Reads>,
    notes: RefCell<Vec<Note>>,
    is_discarded: bool,
}

impl<'l> Frame<'l> {
    pub(super) fn new(recorder: &'l mut Recorder, start: FrameStart) -> Self {
        let (io_ns, reads, notes) = Default::default();
        Self { recorder, start, io_ns, reads, notes, is_discarded: false }
    }

    /// Number of the frame's period, from 0. Missing numbers are drops.
    pub fn period(&self) -> u64 {
        self.start.period
    }

    /// Delay of the frame's beginning in nanoseconds after its period's.
    pub fn wake_up_ns(&self) -> u64 {
        self.start.woke_ns.saturating_sub(self.start.begin_ns)
    }

    /// Reads the next bytes of a file. Returns fewer at the end of the file and none after it, or
    /// continues at the beginning if the file was opened as looping. The slice stays valid until
    /// the next read of the file, even after the frame.
    ///
    /// The cost depends on the I/O mode: see [`crate::IoMode`]. A read longer than all before
    /// allocates memory.
    ///
    /// # Errors
    /// [`Error::Truncated`](crate::Error::Truncated) and [`Error::Changed`](crate::Error::Changed)
    /// if the file has changed since it was opened; I/O errors.
    pub fn read<'f>(&self, file: &'f mut File, length_bytes: usize) -> Result<&'f [u8]> {
        self.timed_read(file, |file| file.read(length_bytes))
    }

    /// Reads bytes at an offset. The position of [`Frame::read`] is unchanged, but read-ahead
    /// follows the last read.
    ///
    /// # Errors
    /// Same errors as [`Frame::read`].
    pub fn read_at<'f>(
        &self,
        file: &'f mut File,
        offset_bytes: u64,
        length_bytes: usize,
    ) -> Result<&'f [u8]> {
        self.timed_read(file, |file| file.read_at(offset_bytes, length_bytes))
    }

    fn timed_read<'f>(
        &self,
        file: &'f mut File,
        read: impl FnOnce(&'f mut File) -> Result<(&'f [u8], Served)>,
    ) -> Result<&'f [u8]> {
        let notes = file.notes();
        if !notes.is_empty() {
            self.notes.borrow_mut().extend(notes);
        }
        let begin_ns = self.recorder.now_ns();
        let outcome = read(file);
        self.io_ns.set(self.io_ns.get() + self.recorder.now_ns().saturating_sub(begin_ns));
        let (bytes, served) = outcome?;
        let mut reads = self.reads.get();
        reads.count(served, bytes.len());
        self.reads.set(reads);
        Ok(bytes)
    }

    /// Ends the frame.
    pub fn end(self) {}

    /// Discards the frame: neither a frame nor a miss is recorded.
    pub fn discard(mut self) {
        self.is_discarded = true;
    }
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        if self.is_discarded {
            return;
        }
        let wake_up_ns = self.wake_up_ns();
        let (io_ns, notes) = (self.io_ns.get(), self.notes.take());
        self.recorder.end_frame(&self.start, self.reads.get(), notes, |completion_ns| Sample {
            period: self.start.period,
            wake_up_ns,
            io_ns,
            completion_ns,
        });
    }
}

impl std::fmt::Debug for Frame<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frame").field("period", &self.start.period).finish_non_exhaustive()
    }
}
