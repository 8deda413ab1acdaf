//! `map`: the tier's copy, mapped. A read is a slice of it: no system call, no waiting.
//!
//! A mapping of a file that is cut raises SIGBUS, and one that is written to changes under its reader. So what is mapped here is
//! nobody else's: memory that is sealed, a file of the tier that has no name, or, for a file that lies on the tier already, the file itself under a read lease: whoever
//! wants to cut it or to write to it waits until the next read has noticed and given the lease back.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use evermap_transfer::Move;
use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create, openat,
};

use super::budget::Taken;
use super::buffer::say_if_unlocked;
use super::lease::ReadLease;
use super::subject::Subject;
use super::{Note, Reader, Served, Way};
use crate::sys::mapping::Mapping;
use crate::{Error, Result};

pub(super) struct Mapped {
    /// `None` once the lease is over: nothing is lent any more.
    mapping: Option<Mapping>,
    kept: Kept,
    subject: Subject,
    inject: Duration,
    notes: Vec<Note>,
}

/// What keeps others from changing what is mapped. After the mapping in the structure above, so that it is dropped after it.
enum Kept {
    /// It has no name, or is sealed.
    Copy {
        _of_budget: Taken,
    },
    Lease(ReadLease),
    /// Nothing is mapped any more.
    Nothing,
}

impl Mapped {
    pub(super) fn open(path: &Path, way: &Way) -> Result<Self> {
        let subject = Subject::open(path)?;
        let mut notes = Vec::new();
        let (mapping, kept) = match leased(&subject, way, &mut notes)? {
            Some((mapping, lease)) => (mapping, Kept::Lease(lease)),
            None => {
                let (mapping, taken) = copied(&subject, way)?;
                (mapping, Kept::Copy { _of_budget: taken })
            }
        };
        let bytes = mapping.bytes().len();
        notes.extend(say_if_unlocked(mapping.is_locked(), way.lock, bytes, path));
        let inject = Duration::from_nanos(way.inject_ns_per_4k);
        Ok(Self { mapping: Some(mapping), kept, subject, inject, notes })
    }
}

/// The file itself, if it lies on the tier, and if nobody can change it meanwhile.
fn leased(
    subject: &Subject,
    way: &Way,
    notes: &mut Vec<Note>,
) -> Result<Option<(Mapping, ReadLease)>> {
    let Some(tier) = way.tier.as_ref() else { return Ok(None) };
    let lies_there = match (subject.path.canonicalize(), tier.canonicalize()) {
        (Ok(file), Ok(tier)) => file.starts_with(tier),
        _ => false,
    };
    if !lies_there {
        return Ok(None);
    }
    let file = subject.again()?.file;
    match ReadLease::take(file) {
        Ok(lease) => {
            // What was written before the lease was there.
            subject.verify()?;
            let bytes = length(subject)?;
            // SAFETY: nobody cuts the file or writes to it while the lease is kept, and `read` lends nothing once it is not.
            let mapping = unsafe { Mapping::new(lease.file().as_fd(), bytes, way.lock) }
                .map_err(|source| subject.failed("map", source))?;
            Ok(Some((mapping, lease)))
        }
        Err(error) => {
            let why = match error.raw_os_error() {
                Some(libc::EAGAIN) => "somebody has it open for writing".to_string(),
                Some(libc::EACCES) => "it is another user's".to_string(),
                _ => error.to_string(),
            };
            let what = format!("{} itself, mapped where it lies", subject.path.display());
            notes.push(Note::new(what, format!("no lease on it: {why}. A copy of it is mapped")));
            Ok(None)
        }
    }
}

/// A copy that is nobody else's, in memory or on the tier.
fn copied(subject: &Subject, way: &Way) -> Result<(Mapping, Taken)> {
    let bytes = length(subject)?;
    let no_room = |whose, room_bytes, remedy| Error::NoRoom {
        path: subject.path.clone(),
        bytes: subject.facts.length_bytes,
        whose,
        room_bytes,
        remedy,
    };
    let taken = way.budget.take(subject.facts.length_bytes).map_err(|room_bytes| {
        no_room("the tier's budget", room_bytes, "raise `budget_mib`, or read by `nowait`")
    })?;
    let target = match &way.tier {
        Some(tier) => {
            // Nobody has a way to it, and it is gone with this process.
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::EXCL;
            openat(rustix::fs::CWD, tier, flags, Mode::RUSR | Mode::WUSR).map_err(|source| {
                Error::Io {
                    operation: "make a file without a name on the tier",
                    path: tier.clone(),
                    source: source.into(),
                }
            })?
        }
        None => {
            if let Some(room_bytes) = evermap_observe::available_bytes()
                .filter(|room_bytes| subject.facts.length_bytes > *room_bytes)
            {
                let remedy = "name a tier (`path`), or read by `nowait`";
                return Err(no_room("memory", room_bytes, remedy));
            }
            memfd_create("evermap-lane-tier", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .map_err(|source| subject.failed("get memory for a copy of", source.into()))?
        }
    };
    copy(subject, &target)?;
    if way.tier.is_none() {
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        fcntl_add_seals(&target, seals)
            .map_err(|source| subject.failed("seal the copy of", source.into()))?;
    }
    // SAFETY: sealed, or a file that has no name and whose only other descriptor is closed below.
    let mapping = unsafe { Mapping::new(target.as_fd(), bytes, way.lock) }
        .map_err(|source| subject.failed("map the copy of", source))?;
    Ok((mapping, taken))
}

fn copy(subject: &Subject, target: &OwnedFd) -> Result<()> {
    let moved = Move::new(&subject.file, target).named(&subject.path, "the tier").run();
    moved.map_err(|source| Error::NotCopied {
        path: subject.path.clone(),
        source: Box::new(source),
    })?;
    // What was written to meanwhile is half the one and half the other.
    subject.verify()?;
    ftruncate(target, subject.facts.length_bytes)
        .map_err(|source| subject.failed("copy", source.into()))
}

/// As a slower tier would have the program wait: without sleeping.
fn wait(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn length(subject: &Subject) -> Result<usize> {
    usize::try_from(subject.facts.length_bytes)
        .map_err(|_| subject.failed("map", std::io::ErrorKind::OutOfMemory.into()))
}

impl Reader for Mapped {
    fn read(&mut self, offset: u64, length: usize) -> Result<(&[u8], Served)> {
        if let Kept::Lease(lease) = &self.kept
            && !lease.is_whole()
        {
            // Whoever waits may go on: nothing of it is lent any more.
            self.mapping = None;
            self.kept = Kept::Nothing;
        }
        let Some(mapping) = &self.mapping else {
            self.subject.verify()?;
            let what = "somebody wants to write to it, and it is mapped no more";
            return Err(Error::Changed { path: self.subject.path.clone(), what });
        };
        let length = self.subject.clamp(offset, length);
        let slice = match length {
            0 => &[][..],
            _ => &mapping.bytes()[offset as usize..][..length],
        };
        if !self.inject.is_zero() {
            let pages = u32::try_from(length.div_ceil(4096)).unwrap_or(u32::MAX);
            wait(self.inject.saturating_mul(pages));
        }
        Ok((slice, Served::Mapped))
    }

    fn length_bytes(&self) -> u64 {
        self.subject.facts.length_bytes
    }

    fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }
}
