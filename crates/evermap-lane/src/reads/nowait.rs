//! `nowait` mode: a helper reads ahead into locked memory at the rate at which the program reads.
//! Reads that it has not covered try `RWF_NOWAIT`, which returns data of the page cache without
//! waiting, and then wait for the disk. Both are counted.

use std::io::IoSliceMut;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::ahead::ReadAhead;
use super::buffer::{READ_BYTES, make_room, memory, note_if_unlocked};
use super::source_file::SourceFile;
use super::{Note, ReadOptions, Reader, Served, limit};
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
    input: SourceFile,
    ahead: Option<ReadAhead>,
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
    pub(super) fn open(path: &Path, options: &ReadOptions) -> Result<Self> {
        let input = SourceFile::open(path)?;
        let _ = rustix::fs::fadvise(&input.file, 0, None, rustix::fs::Advice::Sequential);
        let mut notes = Vec::new();
        let memory = memory(options.read_bytes.unwrap_or(READ_BYTES), options.lock, path)?;
        notes.extend(note_if_unlocked(memory.is_locked(), options.lock, memory.len(), path));
        let ahead = start(&input, options, &mut notes)?;
        let reader = Self {
            input,
            ahead,
            is_looping: options.is_looping,
            position: 0,
            memory,
            lock: options.lock,
            rate: Rate::new(options),
            can_nowait: true,
            notes,
        };
        reader.wait_for_first();
        Ok(reader)
    }

    fn wait_for_first(&self) {
        let Some(ahead) = &self.ahead else { return };
        let until = Instant::now() + FIRST_WAIT;
        while !ahead.is_full() && ahead.is_running() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Continues without the helper, which ended after a failed read while the program's own read
    /// succeeded.
    fn continue_without_helper(&mut self) {
        self.ahead = None;
        let why = format!(
            "one read-ahead of {} failed: from now on, reads wait for data that is not in the page cache. Open the file again",
            self.input.path.display()
        );
        self.notes.push(Note::new("read-ahead until the end", why));
    }

    /// Position of a read in the stream: the next position with this offset if the file loops.
    fn place(&self, offset: u64) -> u64 {
        let length_bytes = self.input.version.length_bytes.max(1);
        let holds_whole_file = self.ahead.as_ref().is_none_or(ReadAhead::holds_whole_file);
        if !self.is_looping || holds_whole_file {
            return offset;
        }
        let lap = self.position / length_bytes * length_bytes;
        let here = lap.saturating_add(offset);
        if here < self.position { here.saturating_add(length_bytes) } else { here }
    }

    /// Reads data that the helper does not have.
    fn read_now(&mut self, offset: u64, length: usize) -> Result<Served> {
        make_room(&mut self.memory, length, self.lock, &self.input.path)?;
        let memory = &mut self.memory.bytes_mut()[..length];
        let came = match self.can_nowait {
            true => nowait(&self.input, memory, offset),
            false => Ok(0),
        };
        let came = match came {
            Ok(came) => came,
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.can_nowait = false;
                let why = format!(
                    "the file system of {} does not support them: reads that the helper has not covered wait for the disk",
                    self.input.path.display()
                );
                self.notes.push(Note::new("non-blocking reads (RWF_NOWAIT)", why));
                0
            }
            Err(error) => return Err(self.input.failed("read", error.into())),
        };
        let served = if came == length { Served::Cached } else { Served::Waited };
        let rest = self.input.fill(&mut memory[came..], offset + came as u64)?;
        if came + rest < length {
            return Err(self.input.unexpected_end());
        }
        self.input.verify()?;
        Ok(served)
    }

    fn adapt(&mut self, length: usize) {
        let Some(ahead) = &self.ahead else { return };
        let Some(wanted) = self.rate.read(length) else { return };
        let ring_bytes = ahead.ring_bytes() as u64;
        ahead.set_ahead(wanted.min(ring_bytes));
        if wanted > ring_bytes && !ahead.holds_whole_file() && !self.rate.is_noted {
            self.rate.is_noted = true;
            let why = format!(
                "at the rate of {} this needs {} KiB, but the ring has {} KiB: set the bytes per frame when opening the file",
                self.input.path.display(),
                wanted >> 10,
                ring_bytes >> 10
            );
            self.notes
                .push(Note::new(format!("read-ahead of {} ms", self.rate.ahead.as_millis()), why));
        }
    }
}

/// Reads from the page cache. Returns 0 where it would have to wait.
fn nowait(input: &SourceFile, memory: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut came = 0;
    while came < memory.len() {
        let mut vector = [IoSliceMut::new(&mut memory[came..])];
        let at = offset + came as u64;
        match preadv2(&input.file, &mut vector, at, ReadWriteFlags::NOWAIT) {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(bytes) => came += bytes,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(came)
}

/// Starts the helper and its ring. Returns `None` and adds a note if there can be no thread.
fn start(
    input: &SourceFile,
    options: &ReadOptions,
    notes: &mut Vec<Note>,
) -> Result<Option<ReadAhead>> {
    let length_bytes = input.version.length_bytes;
    let wished = ring_bytes(options).min(length_bytes).max(1);
    let room = room(options.lock);
    let bytes = room.map_or(wished, |(room_bytes, _)| wished.min(room_bytes)).max(1);
    let failed = |source| input.failed("allocate the read-ahead ring of", source);
    let bytes_usize =
        usize::try_from(bytes).map_err(|_| failed(std::io::ErrorKind::OutOfMemory.into()))?;
    let mirror = Mirror::new(bytes_usize, options.lock).map_err(failed)?;
    let first_bytes = options.read_bytes.map_or(FIRST_BYTES, |_| wished).min(bytes);
    let pause = (options.ahead / 8).clamp(Duration::from_millis(1), Duration::from_millis(100));
    let ring = mirror.len() as u64;
    if let Some((_, whose)) = room.filter(|_| ring < wished) {
        let what = match options.lock {
            Lock::Wanted => format!("{} KiB of locked read-ahead ring", wished >> 10),
            Lock::Unwanted => format!("{} KiB of read-ahead ring", wished >> 10),
        };
        notes.push(Note::new(what, format!("{whose} leaves only {} KiB", ring >> 10)));
    }
    match ReadAhead::start(
        mirror,
        input.try_clone()?,
        options.is_looping,
        first_bytes,
        pause,
        &options.helper,
    ) {
        Ok(ahead) => {
            let path = &input.path;
            notes.extend(note_if_unlocked(ahead.is_locked(), options.lock, ring as usize, path));
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
fn ring_bytes(options: &ReadOptions) -> u64 {
    let (Some(read_bytes), Some(period)) = (options.read_bytes, options.period) else {
        return RING_BYTES;
    };
    let reads = options.ahead.as_nanos().div_ceil(period.as_nanos().max(1)) as u64 + 2;
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
    is_noted: bool,
}

impl Rate {
    fn new(options: &ReadOptions) -> Self {
        let ahead_bytes = options.read_bytes.map_or(FIRST_BYTES, |_| ring_bytes(options));
        let ahead = options.ahead;
        Self { ahead, since: None, bytes: 0, longest: 0, ahead_bytes, is_noted: false }
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
        let length = self.input.clamp(offset, length);
        if length == 0 {
            return Ok((&[], Served::Ahead));
        }
        let position = self.place(offset);
        let end = position + length as u64;
        self.position = end;
        self.adapt(length);
        if self.ahead.as_mut().is_some_and(|ahead| ahead.try_take(position, length)) {
            let lent = self.ahead.as_ref().map_or(&[][..], ReadAhead::last_slice);
            return Ok((lent, Served::Ahead));
        }
        let served = self.read_now(offset, length)?;
        match self.ahead.as_mut() {
            Some(ahead) if !ahead.is_running() => self.continue_without_helper(),
            Some(ahead) if !ahead.holds_whole_file() => ahead.restart_at(end),
            _ => {}
        }
        Ok((&self.memory.bytes()[..length], served))
    }

    fn length_bytes(&self) -> u64 {
        self.input.version.length_bytes
    }

    fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::super::HelperOptions;
    use super::super::tests::{clip, options, wait_until};
    use super::*;
    use crate::IoMode;

    fn ahead(input: SourceFile, ring_bytes: usize) -> ReadAhead {
        let mirror = Mirror::new(ring_bytes, Lock::Unwanted).unwrap();
        let pause = Duration::from_millis(1);
        ReadAhead::start(mirror, input, false, FIRST_BYTES, pause, &HelperOptions::default())
            .unwrap()
    }

    #[test]
    fn the_helper_is_done_when_the_ring_is_full_or_the_file_ends() {
        let clip = clip(100_000);
        // The read-ahead distance exceeds both the ring and the file.
        for ring_bytes in [8_192, 1 << 20] {
            let ahead = ahead(SourceFile::open(&clip.path).unwrap(), ring_bytes);
            wait_until("the helper is done", || ahead.is_full());
        }
    }

    #[test]
    fn reads_continue_with_a_note_after_the_helper_fails() {
        let clip = clip(100_000);
        let mut reader = Nowait::open(&clip.path, &options(IoMode::Nowait)).unwrap();
        let mut unreadable = reader.input.try_clone().unwrap();
        unreadable.file = File::options().write(true).open(&clip.path).unwrap();
        let broken = ahead(unreadable, 8_192);
        wait_until("the helper fails", || !broken.is_running());
        reader.ahead = Some(broken);
        for _ in 0..2 {
            assert_eq!(reader.read(50_000, 9).unwrap().0, &clip.bytes[50_000..50_009]);
        }
        let notes = reader.notes();
        let said = notes.iter().filter(|note| note.why.contains("one read-ahead"));
        assert_eq!(said.count(), 1, "{notes:?}");
    }
}
