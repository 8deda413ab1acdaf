//! `blocking` mode: `pread` into a preallocated buffer. Waits for the disk without a limit.

use std::path::Path;

use evermap_observe::DirectAlignment;

use super::buffer::{READ_BYTES, make_room, memory, note_if_unlocked};
use super::source_file::{Blocks, SourceFile, no_direct_note};
use super::{Note, ReadOptions, Reader, Served};
use crate::Result;
use crate::sys::memory::{Lock, Memory};

pub(super) struct Blocking {
    input: SourceFile,
    direct: Option<DirectAlignment>,
    memory: Memory,
    lock: Lock,
    notes: Vec<Note>,
}

impl Blocking {
    pub(super) fn open(path: &Path, options: &ReadOptions) -> Result<Self> {
        let mut notes = Vec::new();
        let direct = if options.is_direct { SourceFile::open_direct(path)? } else { None };
        if options.is_direct && direct.is_none() {
            notes.push(no_direct_note(path));
        }
        let (input, direct) = match direct {
            Some((input, alignment)) => (input, Some(alignment)),
            None => (SourceFile::open(path)?, None),
        };
        let memory = memory(options.read_bytes.unwrap_or(READ_BYTES), options.lock, path)?;
        notes.extend(note_if_unlocked(memory.is_locked(), options.lock, memory.len(), path));
        Ok(Self { input, direct, memory, lock: options.lock, notes })
    }
}

impl Reader for Blocking {
    fn read(&mut self, offset: u64, length: usize) -> Result<(&[u8], Served)> {
        let length = self.input.clamp(offset, length);
        if length == 0 {
            return Ok((&[], Served::Blocked));
        }
        let blocks = Blocks::around(offset, length, self.direct);
        make_room(&mut self.memory, blocks.length, self.lock, &self.input.path)?;
        let came = self.input.fill(&mut self.memory.bytes_mut()[..blocks.length], blocks.offset)?;
        if came < blocks.skip + length {
            return Err(self.input.unexpected_end());
        }
        self.input.verify()?;
        Ok((&self.memory.bytes()[blocks.skip..][..length], Served::Blocked))
    }

    fn length_bytes(&self) -> u64 {
        self.input.version.length_bytes
    }

    fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }
}
