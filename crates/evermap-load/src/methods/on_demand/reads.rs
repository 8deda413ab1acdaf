//! Reads under way, and waiting for them and for descriptors: by a ring, or, where rings are forbidden, one after the other.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::sys::read::{Caching, read_at};
use crate::sys::ring::{Event, Ring};

/// See the module.
#[derive(Debug)]
pub(crate) enum Reads {
    Ring(Box<Ring>),
    OneByOne(VecDeque<Event>),
}

impl Reads {
    /// For so many at a time.
    pub(crate) fn new(reads: usize) -> Reads {
        Ring::new(reads).map_or_else(|_| Reads::one_by_one(), |ring| Reads::Ring(Box::new(ring)))
    }

    /// The same by the fewest system calls.
    pub(crate) fn one_by_one() -> Reads {
        Reads::OneByOne(VecDeque::new())
    }

    /// How many are under way.
    pub(crate) fn under_way(&self) -> usize {
        match self {
            Reads::Ring(ring) => ring.reads(),
            Reads::OneByOne(done) => done.len(),
        }
    }

    /// Begins one.
    ///
    /// # Safety
    ///
    /// As `Ring::read`.
    pub(crate) unsafe fn begin(
        &mut self,
        tag: u32,
        file: BorrowedFd<'_>,
        address: *mut u8,
        bytes: usize,
        offset: u64,
    ) -> Result<(), Errno> {
        match self {
            // SAFETY: the caller's promise.
            Reads::Ring(ring) => unsafe { ring.read(tag, file, address, bytes, offset) },
            Reads::OneByOne(done) => {
                // SAFETY: the caller's promise.
                let result = unsafe { read_at(file, address, bytes, offset, Caching::Kept) };
                done.push_back(Event::Read { tag, result });
                Ok(())
            }
        }
    }

    /// Has a descriptor watched from now on.
    pub(crate) fn watch(&mut self, tag: u32, file: BorrowedFd<'_>) -> Result<(), Errno> {
        match self {
            Reads::Ring(ring) => ring.watch(tag, file),
            Reads::OneByOne(_) => Ok(()),
        }
    }

    /// What has happened; waits for it, `patience` at most. `watched` are the descriptors, by their tags.
    pub(crate) fn wait(
        &mut self,
        patience: Duration,
        watched: &[BorrowedFd<'_>],
    ) -> Result<Vec<Event>, Errno> {
        match self {
            Reads::Ring(ring) => {
                let mut lapsed = Vec::new();
                let events = ring.wait(patience, &mut lapsed)?;
                for tag in lapsed {
                    if let Some(file) = watched.get(tag as usize) {
                        ring.watch(tag, *file)?;
                    }
                }
                Ok(events)
            }
            Reads::OneByOne(done) => {
                let patience = if done.is_empty() { patience } else { Duration::ZERO };
                let mut files: Vec<PollFd<'_>> = watched
                    .iter()
                    .map(|file| PollFd::from_borrowed_fd(*file, PollFlags::IN))
                    .collect();
                let limit = rustix::time::Timespec {
                    tv_sec: patience.as_secs() as i64,
                    tv_nsec: patience.subsec_nanos().into(),
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

    /// Waits for what is under way; whether all of it is over.
    pub(crate) fn settle(&mut self) -> bool {
        match self {
            Reads::Ring(ring) => ring.settle(),
            Reads::OneByOne(done) => {
                done.clear();
                true
            }
        }
    }
}
