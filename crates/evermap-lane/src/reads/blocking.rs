//! `blocking` mode: `pread` into a preallocated buffer. Waits for the disk without a limit.

use std::path::Path;

use evermap_observe::DirectAlignment;

use super::buffer::{READ_BYTES, make_room, memory, say_if_unlocked};
use super::subject::{Blocks, Subject, no_direct};
use super::{Note, Reader, Served, Way};
use crate::Result;
use crate::sys::memory::{Lock, Memory};

pub(super) struct Blocking {
    subject: Subject,
    direct: Option<DirectAlignment>,
    memory: Memory,
    lock: Lock,
    notes: Vec<Note>,
}

impl Blocking {
    pub(super) fn open(path: &Path, way: &Way) -> Result<Self> {
        let mut notes = Vec::new();
        let direct = if way.is_direct { Subject::open_direct(path)? } else { None };
        if way.is_direct && direct.is_none() {
            notes.push(no_direct(path));
        }
        let (subject, direct) = match direct {
            Some((subject, alignment)) => (subject, Some(alignment)),
            None => (Subject::open(path)?, None),
        };
        let memory = memory(way.read_bytes.unwrap_or(READ_BYTES), way.lock, path)?;
        notes.extend(say_if_unlocked(memory.is_locked(), way.lock, memory.len(), path));
        Ok(Self { subject, direct, memory, lock: way.lock, notes })
    }
}

impl Reader for Blocking {
    fn read(&mut self, offset: u64, length: usize) -> Result<(&[u8], Served)> {
        let length = self.subject.clamp(offset, length);
        if length == 0 {
            return Ok((&[], Served::Blocked));
        }
        let blocks = Blocks::around(offset, length, self.direct);
        make_room(&mut self.memory, blocks.length, self.lock, &self.subject.path)?;
        let came =
            self.subject.fill(&mut self.memory.bytes_mut()[..blocks.length], blocks.offset)?;
        if came < blocks.skip + length {
            return Err(self.subject.too_short());
        }
        self.subject.verify()?;
        Ok((&self.memory.bytes()[blocks.skip..][..length], Served::Blocked))
    }

    fn length_bytes(&self) -> u64 {
        self.subject.facts.length_bytes
    }

    fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }
}
