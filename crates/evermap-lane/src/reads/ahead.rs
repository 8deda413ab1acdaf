//! Read-ahead: a helper thread fills a ring of memory, and the program takes slices of it.
//!
//! Both address the ring by positions in a stream: the file, or for a looping reader the file
//! repeated forever. A *generation* is a stream from where the program last restarted it. Within a
//! generation, `kept_from <= position of the lent slice <= filled <= kept_from + bytes of the
//! ring`. Only the program moves `kept_from`. Only the helper moves `filled`, and it writes only
//! between `filled` and the end of the ring. After a restart the program takes nothing until the
//! helper has acknowledged the new generation, so it never sees data of the old one. There is no
//! lock, so the program never waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

use super::HelperOptions;
use super::source_file::SourceFile;
use crate::sys::mirror::Mirror;
use crate::sys::scheduler::{self, Scheduling};
use crate::{Error, Result};

/// Bytes of one read of the helper: long enough for the disk's full rate, short enough to notice a
/// restart soon.
const CHUNK_BYTES: u64 = 512 << 10;
/// Above ordinary programs, below all other real-time programs.
const PRIORITY: u32 = 1;

const RUNNING: u8 = 0;
const CHANGED: u8 = 1;
const FAILED: u8 = 2;

/// State shared by the program and the helper.
pub(super) struct Shared {
    mirror: Mirror,
    input: SourceFile,
    is_looping: bool,
    /// Generation that the program wants. Its beginning (`wanted_begin`) is stored before it.
    wanted: AtomicU64,
    wanted_begin: AtomicU64,
    /// Positions below this may be overwritten.
    kept_from: AtomicU64,
    /// Distance that the helper should stay ahead of `kept_from`.
    ahead_bytes: AtomicU64,
    is_over: AtomicBool,
    /// Generation that `filled` belongs to.
    acknowledged: AtomicU64,
    filled: AtomicU64,
    status: AtomicU8,
}

/// Program's side.
pub(super) struct ReadAhead {
    shared: Arc<Shared>,
    helper: Thread,
    /// Position and length of the last slice taken.
    lent: (u64, usize),
}

impl ReadAhead {
    /// Starts a helper, which begins to read at once. Fails if the thread cannot be started.
    pub(super) fn start(
        mirror: Mirror,
        input: SourceFile,
        is_looping: bool,
        ahead_bytes: u64,
        pause: Duration,
        place: &HelperOptions,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::new(mirror, input, is_looping, ahead_bytes));
        let (of_helper, place) = (Arc::clone(&shared), place.clone());
        let thread = std::thread::Builder::new()
            .name("evermap-ahead".into())
            .stack_size(128 << 10)
            .spawn(move || {
                apply_placement(&place);
                of_helper.fill(pause);
            })?;
        // The thread is not joined: a disk that does not answer would block the close of the file.
        Ok(Self { helper: thread.thread().clone(), shared, lent: (0, 0) })
    }

    pub(super) fn ring_bytes(&self) -> usize {
        self.shared.mirror.len()
    }

    /// Returns true if the ring holds the whole file.
    pub(super) fn holds_whole_file(&self) -> bool {
        self.shared.input.version.length_bytes <= self.shared.mirror.len() as u64
    }

    pub(super) fn is_locked(&self) -> bool {
        self.shared.mirror.is_locked()
    }

    /// Position up to which the stream is in memory. Makes no system call.
    fn filled(&self) -> u64 {
        let shared = &self.shared;
        let is_current =
            shared.acknowledged.load(Ordering::Acquire) == shared.wanted.load(Ordering::Relaxed);
        if is_current { shared.filled.load(Ordering::Acquire) } else { 0 }
    }

    /// Returns true if everything that should be read ahead is in memory: up to the ring's size and
    /// the end of the file.
    pub(super) fn is_full(&self) -> bool {
        let shared = &*self.shared;
        let wanted = shared.ahead_bytes.load(Ordering::Relaxed);
        self.filled()
            >= wanted.min(shared.mirror.len() as u64).min(shared.input.version.length_bytes)
    }

    /// Returns false after a failed read or a change of the file, which end the helper. The
    /// program's own read then reports the error.
    pub(super) fn is_running(&self) -> bool {
        self.shared.status.load(Ordering::Acquire) == RUNNING
    }

    /// Fails if the helper saw that the file was truncated or written to. Makes a system call only
    /// then.
    pub(super) fn verify(&self) -> Result<()> {
        if self.shared.status.load(Ordering::Acquire) != CHANGED {
            return Ok(());
        }
        let input = &self.shared.input;
        // The file may look unchanged again, but the ring may hold other data.
        input.verify()?;
        Err(Error::Changed { path: input.path.clone(), what: "another process wrote to it" })
    }

    pub(super) fn set_ahead(&self, bytes: u64) {
        self.shared.ahead_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Takes a slice if all of it is in memory, and releases the positions before it.
    pub(super) fn try_take(&mut self, position: u64, length: usize) -> bool {
        let shared = &*self.shared;
        let kept_from = shared.kept_from.load(Ordering::Relaxed);
        let is_there = position >= kept_from
            && length <= shared.mirror.len()
            && position.checked_add(length as u64).is_some_and(|end| end <= self.filled());
        if is_there {
            self.lent = (position, length);
            if !self.holds_whole_file() {
                // The helper writes to released positions once it sees this value.
                self.shared.kept_from.store(position, Ordering::Release);
            }
        }
        is_there
    }

    /// Last slice taken.
    pub(super) fn last_slice(&self) -> &[u8] {
        let (position, length) = self.lent;
        // SAFETY: the helper writes only at positions from `filled` up to `kept_from + bytes of the
        // ring` of this generation. These positions lie outside until `take` or `aim` is called,
        // for which the borrow of this slice must end. After `restart_at` the slice is empty.
        unsafe { self.shared.mirror.slice(position, length) }
    }

    /// Restarts the stream at a position. Cost: a system call that wakes the helper.
    pub(super) fn restart_at(&mut self, position: u64) {
        self.lent = (0, 0);
        let shared = &*self.shared;
        shared.kept_from.store(position, Ordering::Relaxed);
        shared.wanted_begin.store(position, Ordering::Relaxed);
        shared.wanted.fetch_add(1, Ordering::Release);
        self.helper.unpark();
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.helper.unpark();
    }
}

/// Moves the helper off the lane's core and gives it its priority, as far as its rights allow.
fn apply_placement(place: &HelperOptions) {
    place.placement.apply();
    if place.is_real_time {
        let _ = scheduler::set(scheduler::Thread::CURRENT, &Scheduling::fifo(PRIORITY));
    }
}

impl Shared {
    fn new(mirror: Mirror, input: SourceFile, is_looping: bool, ahead_bytes: u64) -> Self {
        Self {
            mirror,
            input,
            is_looping,
            wanted: AtomicU64::new(0),
            wanted_begin: AtomicU64::new(0),
            kept_from: AtomicU64::new(0),
            ahead_bytes: AtomicU64::new(ahead_bytes),
            is_over: AtomicBool::new(false),
            acknowledged: AtomicU64::new(0),
            filled: AtomicU64::new(0),
            status: AtomicU8::new(RUNNING),
        }
    }

    /// Main loop of the helper.
    fn fill(&self, pause: Duration) {
        while !self.is_over.load(Ordering::Relaxed) {
            self.acknowledge();
            match self.fill_chunk() {
                Ok(true) => {}
                Ok(false) => std::thread::park_timeout(pause),
                Err(status) => return self.status.store(status, Ordering::Release),
            }
        }
    }

    fn acknowledge(&self) {
        let wanted = self.wanted.load(Ordering::Acquire);
        if wanted != self.acknowledged.load(Ordering::Relaxed) {
            self.filled.store(self.wanted_begin.load(Ordering::Relaxed), Ordering::Relaxed);
            self.acknowledged.store(wanted, Ordering::Release);
        }
    }

    /// Reads one chunk if there is room. Returns false if there was none.
    fn fill_chunk(&self) -> Result<bool, u8> {
        let generation = self.acknowledged.load(Ordering::Relaxed);
        let filled = self.filled.load(Ordering::Relaxed);
        let chunk = self.room_at(filled).min(CHUNK_BYTES);
        if chunk == 0 {
            // Even without a read, data already in the ring must still match the file.
            self.input.verify().map_err(|_| CHANGED)?;
            return Ok(false);
        }
        let length_bytes = self.input.version.length_bytes;
        let offset = filled % length_bytes;
        // SAFETY: positions from `filled` on are within the ring's free part, where `take` lends
        // nothing.
        let memory = unsafe { self.mirror.slice_mut(filled, chunk as usize) };
        let came = self.input.fill(memory, offset).map_err(|_| FAILED)?;
        self.input.verify().map_err(|_| CHANGED)?;
        if (came as u64) < chunk {
            return Err(FAILED);
        }
        // After a restart this chunk is discarded.
        if self.wanted.load(Ordering::Acquire) == generation {
            self.filled.store(filled + chunk, Ordering::Release);
        }
        Ok(true)
    }

    /// Bytes that may be filled from `filled` on, contiguous in the file.
    fn room_at(&self, filled: u64) -> u64 {
        let length_bytes = self.input.version.length_bytes;
        let ring_bytes = self.mirror.len() as u64;
        if length_bytes == 0 {
            return 0;
        }
        if length_bytes <= ring_bytes {
            return length_bytes.saturating_sub(filled);
        }
        let kept_from = self.kept_from.load(Ordering::Acquire);
        let ahead_bytes = self.ahead_bytes.load(Ordering::Relaxed).min(ring_bytes);
        let room = kept_from.saturating_add(ahead_bytes).saturating_sub(filled);
        // A restart in progress may have moved `kept_from` but not yet `filled`.
        let room = room.min(ahead_bytes);
        match self.is_looping {
            true => room.min(length_bytes - filled % length_bytes),
            false => room.min(length_bytes.saturating_sub(filled)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::clip;
    use super::*;
    use crate::sys::memory::Lock;

    #[test]
    fn a_half_visible_restart_does_not_overfill_the_ring() {
        let clip = clip(4_000_000);
        let mirror = Mirror::new(8_192, Lock::Unwanted).unwrap();
        let (ring, wanted_begin) = (mirror.len() as u64, 3_000_000);
        let shared = Shared::new(mirror, SourceFile::open(&clip.path).unwrap(), false, ring);
        shared.kept_from.store(wanted_begin, Ordering::Relaxed);
        shared.wanted_begin.store(wanted_begin, Ordering::Relaxed);
        shared.wanted.store(1, Ordering::Relaxed);
        assert_eq!(shared.fill_chunk(), Ok(true));
        assert_eq!(shared.filled.load(Ordering::Relaxed), 0, "the chunk is discarded");
        shared.acknowledge();
        assert_eq!(shared.fill_chunk(), Ok(true));
        assert_eq!(shared.filled.load(Ordering::Relaxed), wanted_begin + ring);
        assert_eq!(shared.fill_chunk(), Ok(false));
    }
}
