//! `uring` mode: submits a read to a ring, polls for its completion for a bounded time, then
//! sleeps.
//!
//! The bound keeps a real-time program from starving the kernel work that would complete its read:
//! on the core that serves the disk's interrupts an unbounded poller missed 68 % of its deadlines,
//! on the other core 0.5 %.

use std::io;
use std::path::Path;
use std::time::Duration;

use evermap_observe::DirectAlignment;
use rustix::io::Errno;

use super::buffer::{READ_BYTES, make_room, memory, note_if_unlocked};
use super::source_file::{Blocks, SourceFile, no_direct_note};
use super::{Note, ReadOptions, Reader, Served};
use crate::Result;
use crate::sys::memory::{Lock, Memory};
use crate::sys::ring::{CompletionMode, Ring, Seen};

/// Polling time of the first read on a ring with IOPOLL, before it sleeps between polls.
const FIRST_SPIN: Duration = Duration::from_millis(5);

pub(super) struct Uring {
    input: SourceFile,
    direct: Option<DirectAlignment>,
    backend: Backend,
    spin: Duration,
    lock: Lock,
    notes: Vec<Note>,
}

/// Method of reading.
enum Backend {
    Ring(Box<Ring>),
    /// `pread`, if no ring is available.
    Pread(Memory),
}

impl Uring {
    pub(super) fn open(path: &Path, options: &ReadOptions) -> Result<Self> {
        let mut notes = Vec::new();
        let (input, direct) = match SourceFile::open_direct(path)? {
            Some((input, alignment)) => (input, Some(alignment)),
            None => {
                notes.push(no_direct_note(path));
                (SourceFile::open(path)?, None)
            }
        };
        let around_bytes = direct.map_or(0, |alignment| 2 * alignment.offset_bytes as usize);
        let bytes = options.read_bytes.unwrap_or(READ_BYTES) + around_bytes;
        let backend = ring(&input, direct, bytes, options.lock, &mut notes)?;
        let memory = match &backend {
            Backend::Ring(ring) => ring.memory(),
            Backend::Pread(memory) => memory,
        };
        notes.extend(note_if_unlocked(memory.is_locked(), options.lock, memory.len(), path));
        if let Backend::Ring(ring) = &backend
            && !ring.is_registered()
        {
            let why = "the limit of locked memory is too low (`ulimit -l`, CAP_IPC_LOCK): each read pins its memory again";
            notes.push(Note::new("registered buffers of the ring", why));
        }
        Ok(Self { input, direct, backend, spin: options.spin, lock: options.lock, notes })
    }

    fn make_room(&mut self, bytes: usize) -> Result<()> {
        let path = &self.input.path;
        match &mut self.backend {
            Backend::Ring(ring) if bytes > ring.memory().len() => {
                let memory = memory(bytes.next_power_of_two(), self.lock, path)?;
                ring.replace_memory(memory)
                    .map_err(|source| self.input.failed("read with a ring", source))
            }
            Backend::Ring(_) => Ok(()),
            Backend::Pread(memory) => make_room(memory, bytes, self.lock, path),
        }
    }
}

/// Makes a ring with IOPOLL if that works for this file; otherwise one with interrupts; otherwise
/// none.
fn ring(
    input: &SourceFile,
    direct: Option<DirectAlignment>,
    bytes: usize,
    lock: Lock,
    notes: &mut Vec<Note>,
) -> Result<Backend> {
    let mut memory = memory(bytes, lock, &input.path)?;
    if let Some(alignment) = direct {
        match polling_ring(memory, input, alignment) {
            Ok(ring) => return Ok(Backend::Ring(Box::new(ring))),
            Err((given_back, error)) => {
                memory = match given_back {
                    Some(memory) => memory,
                    None => self::memory(bytes, lock, &input.path)?,
                };
                notes.push(not_polled_note(&error));
            }
        }
    }
    Ok(match Ring::new(memory, CompletionMode::Interrupt) {
        Ok(ring) => Backend::Ring(Box::new(ring)),
        Err((memory, error)) => {
            let why = format!(
                "the kernel refused it ({error}), because of a sandbox or `kernel.io_uring_disabled`: reads use `pread`"
            );
            notes.push(Note::new("a ring (io_uring)", why));
            Backend::Pread(memory)
        }
    })
}

/// Makes a ring with IOPOLL. Only a first read shows whether the device supports that.
fn polling_ring(
    memory: Memory,
    input: &SourceFile,
    alignment: DirectAlignment,
) -> Result<Ring, (Option<Memory>, io::Error)> {
    let mut ring = Ring::new(memory, CompletionMode::DevicePolled)
        .map_err(|(memory, error)| (Some(memory), error))?;
    let block_bytes = alignment.offset_bytes as usize;
    match ring.read(&input.file, 0, block_bytes, FIRST_SPIN) {
        Ok(_) => Ok(ring),
        Err(error) => Err((ring.into_memory(), error)),
    }
}

fn not_polled_note(error: &io::Error) -> Note {
    let why = match Errno::from_io_error(error) {
        Some(Errno::OPNOTSUPP) => "EOPNOTSUPP: its driver has no poll queues".to_string(),
        _ => error.to_string(),
    };
    let why = format!(
        "the device does not support it ({why}): it raises interrupts, and the ring is polled"
    );
    Note::new("polling the device (IOPOLL)", why)
}

fn is_cancelled(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::CANCELED | Errno::INTR))
}

impl Reader for Uring {
    fn read(&mut self, offset: u64, length: usize) -> Result<(&[u8], Served)> {
        let length = self.input.clamp(offset, length);
        if length == 0 {
            return Ok((&[], Served::Polled));
        }
        let blocks = Blocks::around(offset, length, self.direct);
        self.make_room(blocks.length)?;
        let wanted = blocks.skip + length;
        let served = match &mut self.backend {
            Backend::Ring(ring) => {
                let read = ring.read(&self.input.file, blocks.offset, blocks.length, self.spin);
                let (came, seen) = match read {
                    // The kernel cancels a read itself if it gets no worker thread, for example
                    // under many signals.
                    Err(source) if is_cancelled(&source) => (0, Seen::Slept),
                    read => read.map_err(|source| self.input.failed("read", source))?,
                };
                match seen {
                    _ if came < wanted => {
                        self.input.verify()?;
                        // The kernel may end a read early.
                        let memory = ring
                            .memory_mut()
                            .map_err(|source| self.input.failed("read", source))?;
                        let memory = &mut memory.bytes_mut()[..blocks.length];
                        if self.input.fill(memory, blocks.offset)? < wanted {
                            return Err(self.input.unexpected_end());
                        }
                        Served::Slept
                    }
                    Seen::Polled => Served::Polled,
                    Seen::Slept => Served::Slept,
                }
            }
            Backend::Pread(memory) => {
                let memory = &mut memory.bytes_mut()[..blocks.length];
                if self.input.fill(memory, blocks.offset)? < wanted {
                    return Err(self.input.unexpected_end());
                }
                Served::Blocked
            }
        };
        self.input.verify()?;
        let memory = match &self.backend {
            Backend::Ring(ring) => ring.memory(),
            Backend::Pread(memory) => memory,
        };
        Ok((&memory.bytes()[blocks.skip..][..length], served))
    }

    fn length_bytes(&self) -> u64 {
        self.input.version.length_bytes
    }

    fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }
}
