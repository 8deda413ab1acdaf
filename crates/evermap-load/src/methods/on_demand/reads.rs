//! Outstanding reads and descriptor events, by io_uring or, if that is forbidden, by one read at a
//! time.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::sys::read::{Caching, read_at};
use crate::sys::ring::{Event, Ring};

/// Reads of a loader thread. See the module.
#[derive(Debug)]
pub(crate) enum Reads {
    Ring(Box<Ring>),
    OneByOne(VecDeque<Event>),
}

impl Reads {
    /// Creates reads for `reads` at a time.
    pub(crate) fn new(reads: usize) -> Reads {
        Ring::new(reads).map_or_else(|_| Reads::one_by_one(), |ring| Reads::Ring(Box::new(ring)))
    }

    /// Creates reads that use the fewest kinds of system calls.
    pub(crate) fn one_by_one() -> Reads {
        Reads::OneByOne(VecDeque::new())
    }

    /// Returns the number of outstanding reads.
    pub(crate) fn under_way(&self) -> usize {
        match self {
            Reads::Ring(ring) => ring.reads(),
            Reads::OneByOne(done) => done.len(),
        }
    }

    /// Starts a read.
    ///
    /// # Safety
    ///
    /// Same requirements as [`Ring::read`].
    pub(crate) unsafe fn begin(
        &mut self,
        tag: u32,
        file: BorrowedFd<'_>,
        address: *mut u8,
        bytes: usize,
        offset: u64,
    ) -> Result<(), Errno> {
        match self {
            // SAFETY: the caller keeps the memory and the descriptor valid until the read
            // completes.
            Reads::Ring(ring) => unsafe { ring.read(tag, file, address, bytes, offset) },
            Reads::OneByOne(done) => {
                // SAFETY: the memory belongs to the caller, is mapped, and has no other user.
                let result = unsafe { read_at(file, address, bytes, offset, Caching::Kept) };
                done.push_back(Event::Read { tag, result });
                Ok(())
            }
        }
    }

    /// Watches a descriptor.
    pub(crate) fn watch(&mut self, tag: u32, file: BorrowedFd<'_>) -> Result<(), Errno> {
        match self {
            Reads::Ring(ring) => ring.watch(tag, file),
            Reads::OneByOne(_) => Ok(()),
        }
    }

    /// Waits for events, at most `timeout`. `watched` lists the descriptors by their tags.
    pub(crate) fn wait(
        &mut self,
        timeout: Duration,
        watched: &[BorrowedFd<'_>],
    ) -> Result<Vec<Event>, Errno> {
        match self {
            Reads::Ring(ring) => {
                let mut lapsed = Vec::new();
                let events = ring.wait(timeout, &mut lapsed)?;
                for tag in lapsed {
                    if let Some(file) = watched.get(tag as usize) {
                        ring.watch(tag, *file)?;
                    }
                }
                Ok(events)
            }
            Reads::OneByOne(done) => {
                let timeout = if done.is_empty() { timeout } else { Duration::ZERO };
                let mut files: Vec<PollFd<'_>> = watched
                    .iter()
                    .map(|file| PollFd::from_borrowed_fd(*file, PollFlags::IN))
                    .collect();
                let limit = rustix::time::Timespec {
                    tv_sec: timeout.as_secs() as i64,
                    tv_nsec: timeout.subsec_nanos().into(),
                };
                match poll(&mut files, Some(&limit)) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno),
                }
                let ready = files.iter().enumerate().filter(|(_, file)| !file.revents().is_empty());
                let mut events: Vec<Event> =
                    ready.map(|(tag, _)| Event::Ready { tag: tag as u32 }).collect();
                events.extend(done.pop_front());
                Ok(events)
            }
        }
    }

    /// Waits for outstanding reads. Returns false if some did not complete.
    pub(crate) fn drain(&mut self) -> bool {
        match self {
            Reads::Ring(ring) => ring.drain(),
            Reads::OneByOne(done) => {
                done.clear();
                true
            }
        }
    }
}
