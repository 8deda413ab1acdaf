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

use super::buffer::{READ_BYTES, make_room, memory, say_if_unlocked};
use super::subject::{Blocks, Subject, no_direct};
use super::{Note, Reader, Served, Way};
use crate::Result;
use crate::sys::memory::{Lock, Memory};
use crate::sys::ring::{Completions, Ring, Seen};

/// Polling time of the first read on a ring with IOPOLL, before it sleeps between polls.
const FIRST_SPIN: Duration = Duration::from_millis(5);

pub(super) struct Uring {
    subject: Subject,
    direct: Option<DirectAlignment>,
    by: By,
    spin: Duration,
    lock: Lock,
    notes: Vec<Note>,
}

/// Method of reading.
enum By {
    Ring(Box<Ring>),
    /// `pread`, if no ring is available.
    Call(Memory),
}

impl Uring {
    pub(super) fn open(path: &Path, way: &Way) -> Result<Self> {
        let mut notes = Vec::new();
        let (subject, direct) = match Subject::open_direct(path)? {
            Some((subject, alignment)) => (subject, Some(alignment)),
            None => {
                notes.push(no_direct(path));
                (Subject::open(path)?, None)
            }
        };
        let around_bytes = direct.map_or(0, |alignment| 2 * alignment.offset_bytes as usize);
        let bytes = way.read_bytes.unwrap_or(READ_BYTES) + around_bytes;
        let by = ring(&subject, direct, bytes, way.lock, &mut notes)?;
        let memory = match &by {
            By::Ring(ring) => ring.memory(),
            By::Call(memory) => memory,
        };
        notes.extend(say_if_unlocked(memory.is_locked(), way.lock, memory.len(), path));
        if let By::Ring(ring) = &by
            && !ring.is_registered()
        {
            let why = "the limit of locked memory is too low (`ulimit -l`, CAP_IPC_LOCK): each read pins its memory again";
            notes.push(Note::new("registered buffers of the ring", why));
        }
        Ok(Self { subject, direct, by, spin: way.spin, lock: way.lock, notes })
    }

    fn make_room(&mut self, bytes: usize) -> Result<()> {
        let path = &self.subject.path;
        match &mut self.by {
            By::Ring(ring) if bytes > ring.memory().len() => {
                let memory = memory(bytes.next_power_of_two(), self.lock, path)?;
                ring.replace_memory(memory)
                    .map_err(|source| self.subject.failed("read with a ring", source))
            }
            By::Ring(_) => Ok(()),
            By::Call(memory) => make_room(memory, bytes, self.lock, path),
        }
    }
}

/// Makes a ring with IOPOLL if that works for this file; otherwise one with interrupts; otherwise
/// none.
fn ring(
    subject: &Subject,
    direct: Option<DirectAlignment>,
    bytes: usize,
    lock: Lock,
    notes: &mut Vec<Note>,
) -> Result<By> {
    let mut memory = memory(bytes, lock, &subject.path)?;
    if let Some(alignment) = direct {
        match asking_ring(memory, subject, alignment) {
            Ok(ring) => return Ok(By::Ring(Box::new(ring))),
            Err((given_back, error)) => {
                memory = match given_back {
                    Some(memory) => memory,
                    None => self::memory(bytes, lock, &subject.path)?,
                };
                notes.push(not_asked(&error));
            }
        }
    }
    Ok(match Ring::new(memory, Completions::Interrupt) {
        Ok(ring) => By::Ring(Box::new(ring)),
        Err((memory, error)) => {
            let why = format!(
                "the kernel refused it ({error}), because of a sandbox or `kernel.io_uring_disabled`: reads use `pread`"
            );
            notes.push(Note::new("a ring (io_uring)", why));
            By::Call(memory)
        }
    })
}

/// Makes a ring with IOPOLL. Only a first read shows whether the device supports that.
fn asking_ring(
    memory: Memory,
    subject: &Subject,
    alignment: DirectAlignment,
) -> Result<Ring, (Option<Memory>, io::Error)> {
    let mut ring =
        Ring::new(memory, Completions::Asked).map_err(|(memory, error)| (Some(memory), error))?;
    let block_bytes = alignment.offset_bytes as usize;
    match ring.read(&subject.file, 0, block_bytes, FIRST_SPIN) {
        Ok(_) => Ok(ring),
        Err(error) => Err((ring.into_memory(), error)),
    }
}

fn not_asked(error: &io::Error) -> Note {
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
        let length = self.subject.clamp(offset, length);
        if length == 0 {
            return Ok((&[], Served::Polled));
        }
        let blocks = Blocks::around(offset, length, self.direct);
        self.make_room(blocks.length)?;
        let wanted = blocks.skip + length;
        let served = match &mut self.by {
            By::Ring(ring) => {
                let read = ring.read(&self.subject.file, blocks.offset, blocks.length, self.spin);
                let (came, seen) = match read {
                    // The kernel cancels a read itself if it gets no worker thread, for example
                    // under many signals.
                    Err(source) if is_cancelled(&source) => (0, Seen::Slept),
                    read => read.map_err(|source| self.subject.failed("read", source))?,
                };
                match seen {
                    _ if came < wanted => {
                        self.subject.verify()?;
                        // The kernel may end a read early.
                        let memory = ring
                            .memory_mut()
                            .map_err(|source| self.subject.failed("read", source))?;
                        let memory = &mut memory.bytes_mut()[..blocks.length];
                        if self.subject.fill(memory, blocks.offset)? < wanted {
                            return Err(self.subject.too_short());
                        }
                        Served::Slept
                    }
                    Seen::Polled => Served::Polled,
                    Seen::Slept => Served::Slept,
                }
            }
            By::Call(memory) => {
                let memory = &mut memory.bytes_mut()[..blocks.length];
                if self.subject.fill(memory, blocks.offset)? < wanted {
                    return Err(self.subject.too_short());
                }
                Served::Blocked
            }
        };
        self.subject.verify()?;
        let memory = match &self.by {
            By::Ring(ring) => ring.memory(),
            By::Call(memory) => memory,
        };
        Ok((&memory.bytes()[blocks.skip..][..length], served))
    }

    fn length_bytes(&self) -> u64 {
        self.subject.facts.length_bytes
    }

    fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }
}
