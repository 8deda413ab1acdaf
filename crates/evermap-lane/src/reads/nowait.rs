//! `nowait`: a helper reads ahead into locked memory, at the rate at which the program reads. What it has not got in time is asked for with `RWF_NOWAIT`, which takes
//! from the page cache and does not wait; what is not there either is waited for, and counted.

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

/// The ring of a file whose reads are not known beforehand.
const RING_BYTES: u64 = 16 << 20;
/// How much of that is read ahead before the rate is known.
const FIRST_BYTES: u64 = 4 << 20;
/// A ring is no larger, however long and large the reads are.
const RING_BYTES_MAX: u64 = 1 << 30;
/// How long opening waits for the helper's first bytes.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// The rate is that of this time.
const RATE_TIME: Duration = Duration::from_millis(100);

pub(super) struct Nowait {
    subject: Subject,
    ahead: Option<Ahead>,
    is_looping: bool,
    /// Where the stream is: the end of the last read.
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

    /// The helper ended since the disk failed, and the program's own read did not.
    fn go_on_alone(&mut self) {
        self.ahead = None;
        let why = format!(
            "a read of {} ahead failed once: what is not in the page cache is waited for from now on. Open it again",
            self.subject.path.display()
        );
        self.notes.push(Note::new("reading ahead to the end", why));
    }

    /// Where a read lies in the stream: of a file that is read over and over, where it comes next.
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

    /// What the helper does not have.
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
                    "the file system of {} has none: what the helper has not got in time is waited for",
                    self.subject.path.display()
                );
                self.notes.push(Note::new("reads that do not wait (RWF_NOWAIT)", why));
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
                "at the rate of {} that takes {} KiB, and the ring has {} KiB: say how much a frame reads when the file is opened",
                self.subject.path.display(),
                wanted >> 10,
                ring_bytes >> 10
            );
            self.notes
                .push(Note::new(format!("reading {} ms ahead", self.rate.ahead.as_millis()), why));
        }
    }
}

/// As much as the page cache has; 0 where it would have to wait.
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

/// The helper and its ring; none, and a note, where there can be no thread.
fn start(subject: &Subject, way: &Way, notes: &mut Vec<Note>) -> Result<Option<Ahead>> {
    let length_bytes = subject.facts.length_bytes;
    let wished = ring_bytes(way).min(length_bytes).max(1);
    let room = room(way.lock);
    let bytes = room.map_or(wished, |(room_bytes, _)| wished.min(room_bytes)).max(1);
    let failed = |source| subject.failed("get memory to read ahead for", source);
    let bytes_usize =
        usize::try_from(bytes).map_err(|_| failed(std::io::ErrorKind::OutOfMemory.into()))?;
    let mirror = Mirror::new(bytes_usize, way.lock).map_err(failed)?;
    let first_bytes = way.read_bytes.map_or(FIRST_BYTES, |_| wished).min(bytes);
    let nap = (way.ahead / 8).clamp(Duration::from_millis(1), Duration::from_millis(100));
    let ring = mirror.len() as u64;
    if let Some((_, whose)) = room.filter(|_| ring < wished) {
        let what = match way.lock {
            Lock::Wanted => format!("{} KiB to read ahead into, locked", wished >> 10),
            Lock::Unwanted => format!("{} KiB to read ahead into", wished >> 10),
        };
        notes.push(Note::new(what, format!("{whose} leaves {} KiB for it", ring >> 10)));
    }
    match Ahead::start(mirror, subject.again()?, way.is_looping, first_bytes, nap, &way.helper) {
        Ok(ahead) => {
            let path = &subject.path;
            notes.extend(say_if_unlocked(ahead.is_locked(), way.lock, ring as usize, path));
            Ok(Some(ahead))
        }
        Err(error) => {
            let why =
                format!("no thread for it ({error}): what is not in the page cache is waited for");
            notes.push(Note::new("a helper that reads ahead", why));
            Ok(None)
        }
    }
}

/// How large a ring may be, and what says so.
fn room(lock: Lock) -> Option<(u64, &'static str)> {
    let lockable_bytes = match lock {
        Lock::Wanted => limit::locked_room_bytes(),
        Lock::Unwanted => None,
    };
    // Others want some of what may be locked, too, and of what there is.
    let lockable = lockable_bytes.map(|bytes| {
        (bytes / 4 * 3, "the limit of locked memory of this process (`ulimit -l`, CAP_IPC_LOCK)")
    });
    let there = evermap_observe::available_bytes()
        .map(|bytes| (bytes / 2, "half of the memory that can be had"));
    lockable.into_iter().chain(there).min_by_key(|(bytes, _)| *bytes)
}

/// What `ahead` takes, and one read more, which is lent meanwhile.
fn ring_bytes(way: &Way) -> u64 {
    let (Some(read_bytes), Some(period)) = (way.read_bytes, way.period) else { return RING_BYTES };
    let reads = way.ahead.as_nanos().div_ceil(period.as_nanos().max(1)) as u64 + 2;
    (read_bytes as u64).saturating_mul(reads).min(RING_BYTES_MAX)
}

/// How fast the program reads.
struct Rate {
    ahead: Duration,
    since: Option<Instant>,
    bytes: u64,
    longest: u64,
    /// What the helper was told last.
    ahead_bytes: u64,
    /// That the ring is too small was said.
    is_told: bool,
}

impl Rate {
    fn new(way: &Way) -> Self {
        let ahead_bytes = way.read_bytes.map_or(FIRST_BYTES, |_| ring_bytes(way));
        let ahead = way.ahead;
        Self { ahead, since: None, bytes: 0, longest: 0, ahead_bytes, is_told: false }
    }

    /// Notes a read. Gives how far ahead the helper is to be, when that is another than before.
    fn read(&mut self, length: usize) -> Option<u64> {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        self.longest = self.longest.max(length as u64);
        let passed = now - since;
        // The read that begins the next stretch is the first of that.
        if passed < RATE_TIME {
            self.bytes += length as u64;
            return None;
        }
        let wanted = self.bytes as f64 / passed.as_secs_f64() * self.ahead.as_secs_f64();
        (self.since, self.bytes) = (Some(now), length as u64);
        // Who pauses goes on as before; two reads are the least.
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
    fn all_is_there_when_the_ring_is_full_or_the_file_is_at_its_end() {
        let clip = clip(100_000);
        // What is to be read ahead is more than either has.
        for ring_bytes in [8_192, 1 << 20] {
            let ahead = ahead(Subject::open(&clip.path).unwrap(), ring_bytes);
            wait_until("all is there", || ahead.is_full());
        }
    }

    #[test]
    fn a_helper_that_fails_is_said_and_the_program_reads_on() {
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
        let said = notes.iter().filter(|note| note.why.contains("failed once"));
        assert_eq!(said.count(), 1, "{notes:?}");
    }
}
