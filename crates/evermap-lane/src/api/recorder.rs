//! Clock and results of a lane's frames. A frame records its end here.

use super::clock::Monotonic;
use super::frame_loop::{FrameLoop, FrameStart};
use crate::report::samples::{Sample, Samples};
use crate::{Note, Reads};

/// Frame loop of a lane, with the results of the frames that have ended.
pub(super) struct Recorder {
    pub(super) frame_loop: FrameLoop<Monotonic>,
    pub(super) samples: Samples,
    pub(super) reads: Reads,
    pub(super) notes: Vec<Note>,
}

impl Recorder {
    pub(super) fn new(frame_loop: FrameLoop<Monotonic>, samples: Samples) -> Self {
        Self { frame_loop, samples, reads: Reads::default(), notes: Vec::new() }
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.frame_loop.now_ns()
    }

    /// Ends a frame. `sample` makes its sample from the time of its completion.
    pub(super) fn end_frame(
        &mut self,
        start: &FrameStart,
        reads: Reads,
        notes: Vec<Note>,
        sample: impl FnOnce(u64) -> Sample,
    ) {
        let completion_ns = self.frame_loop.end(start);
        self.samples.push(sample(completion_ns));
        self.reads.add(reads);
        self.notes.extend(notes);
    }
}
