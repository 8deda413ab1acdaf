//! `nowait` mode: a helper reads ahead into locked memory at the rate at which the program reads.
//! Reads that it has not covered try `RWF_NOWAIT`, which returns data of the page cache without
//! waiting, and then wait for the disk. Both are counted.

use std::io::IoSliceMut;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::ahead::Ahead;
use super::buffer::{READ_BYTES, make_room, memory, say_if_unlocked};
use super::subject::Subject;
use super::{Note, Reader, Served, Way, limit};
use crate::Result;
use crate::sys::memory::{Lock, Memory};
use crate::sys::mirror::Mirror;

/// Ring size for files whose reads are not known in advance.
const RING_BYTES: u64 = 16 << 20;
/// Bytes read ahead before the rate is known.
const FIRST_BYTES: u64 = 4 << 20;
/// Maximum size of a ring.
const RING_BYTES_MAX: u64 = 1 << 30;
/// Longest wait for the first read-ahead when opening.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// Time over which the rate is measured.
const RATE_TIME: Duration = Duration::from_millis(100);

pub(super) struct Nowait {
    subject: Subject,
    ahead: Option<Ahead>,
    is_looping: bool,
    /// End of the last read, as a position in the stream.
    position: u64,
    memory: Memory,
    lock: Lock,
    rate: Rate,
    can_nowait: bool,
    notes: Vec<Note>,
}

impl Nowait {
    pub(super) fn open(path: &Path, way: &Way) -> Result<Self> {
        let subject = Subject::open(path)?;
        let _ = rustix::fs::fadvise(&subject.file, 0, None, rustix::fs::Advice::Sequential);
        let mut notes = Vec::new();
        let memory = memory(way.read_bytes.unwrap_or(READ_BYTES), way.lock, path)?;
        notes.extend(say_if_unlocked(memory.is_locked(), way.lock, memory.len(), path));
        let ahead = start(&subject, way, &mut notes)?;
        let reader = Self {
            subject,
            ahead,
            is_looping: way.is_looping,
            position: 0,
            memory,
            lock: way.lock,
            rate: Rate::new(way),
            can_nowait: true,
            notes,
        };
        reader.wait_for_first();
        Ok(reader)
    }

    fn wait_for_first(&self) {
        let Some(ahead) = &self.ahead else { return };
        let until = Instant::now() + FIRST_WAIT;
        while !ahead.is_full() && ahead.works() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Continues without the helper, which ended after a failed read while the program's own read
    /// succeeded.
    fn go_on_alone(&mut self) {
        self.ahead = None;
        let why = format!(
            "one read-ahead of {} failed: from now on, reads wait for data that is not in the page cache. Open the file again",
            self.subject.path.display()
        );
        self.notes.push(Note::new("read-ahead until the end", why));
    }

    /// Position of a read in the stream: the next position with this offset if the file loops.
    fn place(&self, offset: u64) -> u64 {
        let length_bytes = self.subject.facts.length_bytes.max(1);
        let holds_all = self.ahead.as_ref().is_none_or(Ahead::holds_all);
        if !self.is_looping || holds_all {
            return offset;
        }
        let lap = self.position / length_bytes * length_bytes;
        let here = lap.saturating_add(offset);
        if here < self.position { here.saturating_add(length_bytes) } else { here }
    }

    /// Reads data that the helper does not have.
    fn read_now(&mut self, offset: u64, length: usize) -> Result<Served> {
        make_room(&mut self.memory, length, self.lock, &self.subject.path)?;
        let memory = &mut self.memory.bytes_mut()[..length];
        let came = match self.can_nowait {
            true => nowait(&self.subject, memory, offset),
            false => Ok(0),
        };
        let came = match came {
            Ok(came) => came,
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.can_nowait = false;
                let why = format!(
                    "the file system of {} does not support them: reads that the helper has not covered wait for the disk",
                    self.subject.path.display()
                );
                self.notes.push(Note::new("non-blocking reads (RWF_NOWAIT)", why));
                0
            }
            Err(error) => return Err(self.subject.failed("read", error.into())),
        };
        let served = if came == length { Served::Cached } else { Served::Waited };
        let rest = self.subject.fill(&mut memory[came..], offset + came as u64)?;
        if came + rest < length {
            return Err(self.subject.too_short());
        }
        self.subject.verify()?;
        Ok(served)
    }

    fn adapt(&mut self, length: usize) {
        let Some(ahead) = &self.ahead else { return };
        let Some(wanted) = self.rate.read(length) else { return };
        let ring_bytes = ahead.ring_bytes() as u64;
        ahead.set_ahead(wanted.min(ring_bytes));
        if wanted > ring_bytes && !ahead.holds_all() && !self.rate.is_told {
            self.rate.is_told = true;
            let why = format!(
                "at the rate of {} this needs {} KiB, but the ring has {} KiB: set the bytes per frame when opening the file",
                self.subject.path.display(),
                wanted >> 10,
                ring_bytes >> 10
            );
            self.notes
                .push(Note::new(format!("read-ahead of {} ms", self.rate.ahead.as_millis()), why));
        }
    }
}

/// Reads from the page cache. Returns 0 where it would have to wait.
fn nowait(subject: &Subject, memory: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut came = 0;
    while came < memory.len() {
        let mut vector = [IoSliceMut::new(&mut memory[came..])];
        let at = offset + came as u64;
        match preadv2(&subject.file, &mut vector, at, ReadWriteFlags::NOWAIT) {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(bytes) => came += bytes,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(came)
}

/// Starts the helper and its ring. Returns `None` and adds a note if there can be no thread.
fn start(subject: &Subject, way: &Way, notes: &mut Vec<Note>) -> Result<Option<Ahead>> {
    let length_bytes = subject.facts.length_bytes;
    let wished = ring_bytes(way).min(length_bytes).max(1);
    let room = room(way.lock);
    let bytes = room.map_or(wished, |(room_bytes, _)| wished.min(room_bytes)).max(1);
    let failed = |source| subject.failed("allocate the read-ahead ring of", source);
    let bytes_usize =
        usize::try_from(bytes).map_err(|_| failed(std::io::ErrorKind::OutOfMemory.into()))?;
    let mirror = Mirror::new(bytes_usize, way.lock).map_err(failed)?;
    let first_bytes = way.read_bytes.map_or(FIRST_BYTES, |_| wished).min(bytes);
    let nap = (way.ahead / 8).clamp(Duration::from_millis(1), Duration::from_millis(100));
    let ring = mirror.len() as u64;
    if let Some((_, whose)) = room.filter(|_| ring < wished) {
        let what = match way.lock {
            Lock::Wanted => format!("{} KiB of locked read-ahead ring", wished >> 10),
            Lock::Unwanted => format!("{} KiB of read-ahead ring", wished >> 10),
        };
        notes.push(Note::new(what, format!("{whose} leaves only {} KiB", ring >> 10)));
    }
    match Ahead::start(mirror, subject.again()?, way.is_looping, first_bytes, nap, &way.helper) {
        Ok(ahead) => {
            let path = &subject.path;
            notes.extend(say_if_unlocked(ahead.is_locked(), way.lock, ring as usize, path));
            Ok(Some(ahead))
        }
        Err(error) => {
            let why = format!(
                "cannot start its thread ({error}): reads wait for data that is not in the page cache"
            );
            notes.push(Note::new("a read-ahead helper", why));
            Ok(None)
        }
    }
}

/// Maximum size of a ring, and the name of the limit.
fn room(lock: Lock) -> Option<(u64, &'static str)> {
    let lockable_bytes = match lock {
        Lock::Wanted => limit::locked_room_bytes(),
        Lock::Unwanted => None,
    };
    // Leaves a part of the limits to other users of locked and available memory.
    let lockable = lockable_bytes
        .map(|bytes| (bytes / 4 * 3, "the limit of locked memory (`ulimit -l`, CAP_IPC_LOCK)"));
    let there =
        evermap_observe::available_bytes().map(|bytes| (bytes / 2, "half of the available memory"));
    lockable.into_iter().chain(there).min_by_key(|(bytes, _)| *bytes)
}

/// Ring size for the read-ahead distance and one more read, which is lent to the program.
fn ring_bytes(way: &Way) -> u64 {
    let (Some(read_bytes), Some(period)) = (way.read_bytes, way.period) else { return RING_BYTES };
    let reads = way.ahead.as_nanos().div_ceil(period.as_nanos().max(1)) as u64 + 2;
    (read_bytes as u64).saturating_mul(reads).min(RING_BYTES_MAX)
}

/// Rate at which the program reads.
struct Rate {
    ahead: Duration,
    since: Option<Instant>,
    bytes: u64,
    longest: u64,
    /// Distance that the helper was last given.
    ahead_bytes: u64,
    /// A note on the ring's size was made.
    is_told: bool,
}

impl Rate {
    fn new(way: &Way) -> Self {
        let ahead_bytes = way.read_bytes.map_or(FIRST_BYTES, |_| ring_bytes(way));
        let ahead = way.ahead;
        Self { ahead, since: None, bytes: 0, longest: 0, ahead_bytes, is_told: false }
    }

    /// Counts a read. Returns the read-ahead distance if it has changed.
    fn read(&mut self, length: usize) -> Option<u64> {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        self.longest = self.longest.max(length as u64);
        let passed = now - since;
        // The read that ends an interval is counted in the next one.
        if passed < RATE_TIME {
            self.bytes += length as u64;
            return None;
        }
        let wanted = self.bytes as f64 / passed.as_secs_f64() * self.ahead.as_secs_f64();
        (self.since, self.bytes) = (Some(now), length as u64);
        // A pause at most halves the distance; it is at least two reads.
        let wanted = (wanted as u64).max(2 * self.longest).max(self.ahead_bytes / 2);
        let is_new = wanted != self.ahead_bytes;
        self.ahead_bytes = wanted;
        is_new.then_some(wanted)
    }
}

impl Reader for Nowait {
    fn read(&mut self, offset: u64, length: usize) -> Result<(&[u8], Served)> {
        if let Some(ahead) = &self.ahead {
            ahead.verify()?;
        }
        let length = self.subject.clamp(offset, length);
        if length == 0 {
            return Ok((&[], Served::Ahead));
        }
        let position = self.place(offset);
        let end = position + length as u64;
        self.position = end;
        self.adapt(length);
        if self.ahead.as_mut().is_some_and(|ahead| ahead.take(position, length)) {
            let lent = self.ahead.as_ref().map_or(&[][..], Ahead::lent);
            return Ok((lent, Served::Ahead));
        }
        let served = self.read_now(offset, length)?;
        match self.ahead.as_mut() {
            Some(ahead) if !ahead.works() => self.go_on_alone(),
            Some(ahead) if !ahead.holds_all() => ahead.aim(end),
            _ => {}
        }
        Ok((&self.memory.bytes()[..length], served))
    }

    fn length_bytes(&self) -> u64 {
        self.subject.facts.length_bytes
    }

    fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::super::Helper;
    use super::super::tests::{clip, wait_until, way};
    use super::*;
    use crate::IoMode;

    fn ahead(subject: Subject, ring_bytes: usize) -> Ahead {
        let mirror = Mirror::new(ring_bytes, Lock::Unwanted).unwrap();
        let nap = Duration::from_millis(1);
        Ahead::start(mirror, subject, false, FIRST_BYTES, nap, &Helper::default()).unwrap()
    }

    #[test]
    fn the_helper_is_done_when_the_ring_is_full_or_the_file_ends() {
        let clip = clip(100_000);
        // The read-ahead distance exceeds both the ring and the file.
        for ring_bytes in [8_192, 1 << 20] {
            let ahead = ahead(Subject::open(&clip.path).unwrap(), ring_bytes);
            wait_until("the helper is done", || ahead.is_full());
        }
    }

    #[test]
    fn reads_continue_with_a_note_after_the_helper_fails() {
        let clip = clip(100_000);
        let mut reader = Nowait::open(&clip.path, &way(IoMode::Nowait)).unwrap();
        let mut unreadable = reader.subject.again().unwrap();
        unreadable.file = File::options().write(true).open(&clip.path).unwrap();
        let broken = ahead(unreadable, 8_192);
        wait_until("the helper fails", || !broken.works());
        reader.ahead = Some(broken);
        for _ in 0..2 {
            assert_eq!(reader.read(50_000, 9).unwrap().0, &clip.bytes[50_000..50_009]);
        }
        let notes = reader.notes();
        let said = notes.iter().filter(|note| note.why.contains("one read-ahead"));
        assert_eq!(said.count(), 1, "{notes:?}");
    }
}
