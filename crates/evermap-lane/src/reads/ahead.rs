//! Reading ahead: a helper thread fills a ring of memory, and the program takes slices of it.
//!
//! Both go by positions in a stream: the file, or for a program that begins again at its end the file over and over. A *generation* is a stream from where
//! the program aimed. Within a generation, `kept_from <= position of the slice that is lent <= filled <= kept_from + bytes of the ring`: the program alone moves `kept_from`,
//! the helper alone moves `filled`, and writes only from there up to the ring's end. When the program aims elsewhere it takes nothing until the
//! helper has acknowledged the new generation, so what the helper was writing meanwhile is seen by nobody. No lock: the program waits for nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

use super::Helper;
use super::subject::Subject;
use crate::sys::mirror::Mirror;
use crate::sys::scheduler::{self, Scheduling};
use crate::{Error, Result};

/// What the helper reads at a time: long enough for a disk's rate, short enough that a new aim is soon noticed.
const CHUNK_BYTES: u64 = 512 << 10;
/// Above ordinary programs, below everything else that is real-time.
const PRIORITY: u32 = 1;

const FINE: u8 = 0;
const CHANGED: u8 = 1;
const FAILED: u8 = 2;

/// What program and helper share.
pub(super) struct Shared {
    mirror: Mirror,
    subject: Subject,
    is_looping: bool,
    /// The generation that the program wants, and where it begins; set in the other order.
    wanted: AtomicU64,
    aim: AtomicU64,
    /// Positions below may be written over.
    kept_from: AtomicU64,
    /// How far the helper is to be ahead of that.
    ahead_bytes: AtomicU64,
    is_over: AtomicBool,
    /// The generation that `filled` is of.
    acknowledged: AtomicU64,
    filled: AtomicU64,
    trouble: AtomicU8,
}

/// The program's side.
pub(super) struct Ahead {
    shared: Arc<Shared>,
    helper: Thread,
    /// Position and length of what was taken last.
    lent: (u64, usize),
}

impl Ahead {
    /// Starts a helper, which begins at once. An error if there can be no thread.
    pub(super) fn start(
        mirror: Mirror,
        subject: Subject,
        is_looping: bool,
        ahead_bytes: u64,
        nap: Duration,
        place: &Helper,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::new(mirror, subject, is_looping, ahead_bytes));
        let (of_helper, place) = (Arc::clone(&shared), place.clone());
        let thread = std::thread::Builder::new()
            .name("evermap-ahead".into())
            .stack_size(128 << 10)
            .spawn(move || {
                go_to(&place);
                of_helper.fill(nap);
            })?;
        // Nobody waits for its end: a disk that does not answer would hold up whoever closes the file.
        Ok(Self { helper: thread.thread().clone(), shared, lent: (0, 0) })
    }

    pub(super) fn ring_bytes(&self) -> usize {
        self.shared.mirror.len()
    }

    /// The whole file lies in the ring, or will.
    pub(super) fn holds_all(&self) -> bool {
        self.shared.subject.facts.length_bytes <= self.shared.mirror.len() as u64
    }

    pub(super) fn is_locked(&self) -> bool {
        self.shared.mirror.is_locked()
    }

    /// How far the stream is there. Cost: none.
    fn filled(&self) -> u64 {
        let shared = &self.shared;
        let is_current =
            shared.acknowledged.load(Ordering::Acquire) == shared.wanted.load(Ordering::Relaxed);
        if is_current { shared.filled.load(Ordering::Acquire) } else { 0 }
    }

    /// Whether all is there that is to be read ahead: what there is room for, and as far as the file goes.
    pub(super) fn is_full(&self) -> bool {
        let shared = &*self.shared;
        let wanted = shared.ahead_bytes.load(Ordering::Relaxed);
        self.filled()
            >= wanted.min(shared.mirror.len() as u64).min(shared.subject.facts.length_bytes)
    }

    /// Whether the helper still works: it ends when the disk fails, and the program's own read will say how.
    pub(super) fn works(&self) -> bool {
        self.shared.trouble.load(Ordering::Acquire) == FINE
    }

    /// An error if the helper saw that the file was cut or written to. No system call unless it did.
    pub(super) fn verify(&self) -> Result<()> {
        if self.shared.trouble.load(Ordering::Acquire) != CHANGED {
            return Ok(());
        }
        let subject = &self.shared.subject;
        // It may have been written to and look as before again; what is in the ring is not trusted any more.
        subject.verify()?;
        Err(Error::Changed { path: subject.path.clone(), what: "it was written to" })
    }

    pub(super) fn set_ahead(&self, bytes: u64) {
        self.shared.ahead_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether all of this is there; if so it is lent, and positions before it are given up.
    pub(super) fn take(&mut self, position: u64, length: usize) -> bool {
        let shared = &*self.shared;
        let kept_from = shared.kept_from.load(Ordering::Relaxed);
        let is_there = position >= kept_from
            && length <= shared.mirror.len()
            && position.checked_add(length as u64).is_some_and(|end| end <= self.filled());
        if is_there {
            self.lent = (position, length);
            if !self.holds_all() {
                // The helper writes there once it has seen this.
                self.shared.kept_from.store(position, Ordering::Release);
            }
        }
        is_there
    }

    /// What was taken last.
    pub(super) fn lent(&self) -> &[u8] {
        let (position, length) = self.lent;
        // SAFETY: the helper writes at and behind `filled` of this generation only, up to `kept_from + bytes of the ring`: not to these positions, before
        // `take` or `aim` is called again, for which this slice has to be gone. After `aim` nothing is lent.
        unsafe { self.shared.mirror.slice(position, length) }
    }

    /// Has the stream begin here. Costs a system call: the helper may be asleep.
    pub(super) fn aim(&mut self, position: u64) {
        self.lent = (0, 0);
        let shared = &*self.shared;
        shared.kept_from.store(position, Ordering::Relaxed);
        shared.aim.store(position, Ordering::Relaxed);
        shared.wanted.fetch_add(1, Ordering::Release);
        self.helper.unpark();
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.helper.unpark();
    }
}

/// Off the lane's core, and before ordinary programs, as far as that may be.
fn go_to(place: &Helper) {
    place.aside.go();
    if place.is_real_time {
        let _ = scheduler::set(scheduler::Thread::CURRENT, &Scheduling::fifo(PRIORITY));
    }
}

impl Shared {
    fn new(mirror: Mirror, subject: Subject, is_looping: bool, ahead_bytes: u64) -> Self {
        Self {
            mirror,
            subject,
            is_looping,
            wanted: AtomicU64::new(0),
            aim: AtomicU64::new(0),
            kept_from: AtomicU64::new(0),
            ahead_bytes: AtomicU64::new(ahead_bytes),
            is_over: AtomicBool::new(false),
            acknowledged: AtomicU64::new(0),
            filled: AtomicU64::new(0),
            trouble: AtomicU8::new(FINE),
        }
    }

    /// The helper's life.
    fn fill(&self, nap: Duration) {
        while !self.is_over.load(Ordering::Relaxed) {
            self.acknowledge();
            match self.fill_some() {
                Ok(true) => {}
                Ok(false) => std::thread::park_timeout(nap),
                Err(trouble) => return self.trouble.store(trouble, Ordering::Release),
            }
        }
    }

    fn acknowledge(&self) {
        let wanted = self.wanted.load(Ordering::Acquire);
        if wanted != self.acknowledged.load(Ordering::Relaxed) {
            self.filled.store(self.aim.load(Ordering::Relaxed), Ordering::Relaxed);
            self.acknowledged.store(wanted, Ordering::Release);
        }
    }

    /// One chunk, if there is room; whether there was.
    fn fill_some(&self) -> Result<bool, u8> {
        let generation = self.acknowledged.load(Ordering::Relaxed);
        let filled = self.filled.load(Ordering::Relaxed);
        let chunk = self.room_at(filled).min(CHUNK_BYTES);
        if chunk == 0 {
            // Nothing is read, and what was must still hold.
            self.subject.verify().map_err(|_| CHANGED)?;
            return Ok(false);
        }
        let length_bytes = self.subject.facts.length_bytes;
        let offset = filled % length_bytes;
        // SAFETY: at and behind `filled`, within the ring: `take` lends nothing there.
        let memory = unsafe { self.mirror.slice_mut(filled, chunk as usize) };
        let came = self.subject.fill(memory, offset).map_err(|_| FAILED)?;
        self.subject.verify().map_err(|_| CHANGED)?;
        if (came as u64) < chunk {
            return Err(FAILED);
        }
        // The program aims elsewhere: this was for nothing.
        if self.wanted.load(Ordering::Acquire) == generation {
            self.filled.store(filled + chunk, Ordering::Release);
        }
        Ok(true)
    }

    /// Bytes that may be filled from there on, in one piece of the file.
    fn room_at(&self, filled: u64) -> u64 {
        let length_bytes = self.subject.facts.length_bytes;
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
        // Who aims elsewhere in this moment has moved the one and not the other.
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
    fn an_aim_that_is_seen_halfway_fills_no_more_than_the_ring_has() {
        let clip = clip(4_000_000);
        let mirror = Mirror::new(8_192, Lock::Unwanted).unwrap();
        let (ring, aim) = (mirror.len() as u64, 3_000_000);
        let shared = Shared::new(mirror, Subject::open(&clip.path).unwrap(), false, ring);
        shared.kept_from.store(aim, Ordering::Relaxed);
        shared.aim.store(aim, Ordering::Relaxed);
        shared.wanted.store(1, Ordering::Relaxed);
        assert_eq!(shared.fill_some(), Ok(true));
        assert_eq!(shared.filled.load(Ordering::Relaxed), 0, "it was for nothing");
        shared.acknowledge();
        assert_eq!(shared.fill_some(), Ok(true));
        assert_eq!(shared.filled.load(Ordering::Relaxed), aim + ring);
        assert_eq!(shared.fill_some(), Ok(false));
    }
}
