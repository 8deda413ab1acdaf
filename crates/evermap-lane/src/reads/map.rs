//! `map` mode: reads are slices of a mapped copy on the tier, without system calls or waits.
//!
//! A mapped file raises SIGBUS after a truncation and shows later writes. So only private files are
//! mapped: sealed memory, an unnamed file on the tier, or, if the file itself is on the tier, that
//! file under a read lease. With the lease, a process that truncates or writes the file waits until
//! the next read has noticed it and released the lease.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use evermap_transfer::Move;
use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create, openat,
};

use super::budget::Reservation;
use super::buffer::note_if_unlocked;
use super::lease::ReadLease;
use super::source_file::SourceFile;
use super::{Note, ReadOptions, Reader, Served};
use crate::sys::mapping::Mapping;
use crate::{Error, Result};

pub(super) struct Mapped {
    /// `None` after a lease break: nothing is lent any more.
    mapping: Option<Mapping>,
    protection: Protection,
    input: SourceFile,
    inject: Duration,
    notes: Vec<Note>,
}

/// Protection of the mapped file from changes. Follows the mapping in the struct above, so that it
/// is dropped after it.
enum Protection {
    /// The copy has no name or is sealed.
    Copy {
        _reservation: Reservation,
    },
    Lease(ReadLease),
    /// Nothing is mapped any more.
    Nothing,
}

impl Mapped {
    pub(super) fn open(path: &Path, options: &ReadOptions) -> Result<Self> {
        let input = SourceFile::open(path)?;
        let mut notes = Vec::new();
        let (mapping, protection) = match leased(&input, options, &mut notes)? {
            Some((mapping, lease)) => (mapping, Protection::Lease(lease)),
            None => {
                let (mapping, reservation) = copied(&input, options)?;
                (mapping, Protection::Copy { _reservation: reservation })
            }
        };
        let bytes = mapping.bytes().len();
        notes.extend(note_if_unlocked(mapping.is_locked(), options.lock, bytes, path));
        let inject = Duration::from_nanos(options.inject_ns_per_4k);
        Ok(Self { mapping: Some(mapping), protection, input, inject, notes })
    }
}

/// Maps the file itself if it lies on the tier and a lease protects it.
fn leased(
    input: &SourceFile,
    options: &ReadOptions,
    notes: &mut Vec<Note>,
) -> Result<Option<(Mapping, ReadLease)>> {
    let Some(tier) = options.tier.as_ref() else { return Ok(None) };
    let lies_there = match (input.path.canonicalize(), tier.canonicalize()) {
        (Ok(file), Ok(tier)) => file.starts_with(tier),
        _ => false,
    };
    if !lies_there {
        return Ok(None);
    }
    let file = input.try_clone()?.file;
    match ReadLease::take(file) {
        Ok(lease) => {
            // The file may have changed before the lease was taken.
            input.verify()?;
            let bytes = length(input)?;
            // SAFETY: while the lease is held the file is neither truncated nor written, and `read`
            // lends nothing once it is broken.
            let mapping = unsafe { Mapping::new(lease.file().as_fd(), bytes, options.lock) }
                .map_err(|source| input.failed("map", source))?;
            Ok(Some((mapping, lease)))
        }
        Err(error) => {
            let why = match error.raw_os_error() {
                Some(libc::EAGAIN) => "another process has it open for writing".to_string(),
                Some(libc::EACCES) => "another user owns it".to_string(),
                _ => error.to_string(),
            };
            let what = format!("{} mapped in place", input.path.display());
            notes.push(Note::new(what, format!("no lease: {why}. A copy is mapped")));
            Ok(None)
        }
    }
}

/// Maps a private copy in memory or on the tier.
fn copied(input: &SourceFile, options: &ReadOptions) -> Result<(Mapping, Reservation)> {
    let bytes = length(input)?;
    let no_room = |whose, room_bytes, remedy| Error::NoRoom {
        path: input.path.clone(),
        bytes: input.version.length_bytes,
        whose,
        room_bytes,
        remedy,
    };
    let reservation = options.budget.reserve(input.version.length_bytes).map_err(|room_bytes| {
        no_room("the tier's budget", room_bytes, "raise `budget_mib`, or use `mode = \"nowait\"`")
    })?;
    let target = match &options.tier {
        Some(tier) => {
            // An unnamed file: no other process can open it, and it disappears with this process.
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::EXCL;
            openat(rustix::fs::CWD, tier, flags, Mode::RUSR | Mode::WUSR).map_err(|source| {
                Error::Io {
                    operation: "make an unnamed file on the tier",
                    path: tier.clone(),
                    source: source.into(),
                }
            })?
        }
        None => {
            if let Some(room_bytes) = evermap_observe::available_bytes()
                .filter(|room_bytes| input.version.length_bytes > *room_bytes)
            {
                let remedy = "set `path` of the tier, or use `mode = \"nowait\"`";
                return Err(no_room("memory", room_bytes, remedy));
            }
            memfd_create("evermap-lane-tier", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .map_err(|source| input.failed("allocate memory for a copy of", source.into()))?
        }
    };
    copy(input, &target)?;
    if options.tier.is_none() {
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        fcntl_add_seals(&target, seals)
            .map_err(|source| input.failed("seal the copy of", source.into()))?;
    }
    // SAFETY: the copy is sealed, or has no name and its only other descriptor is closed below.
    let mapping = unsafe { Mapping::new(target.as_fd(), bytes, options.lock) }
        .map_err(|source| input.failed("map the copy of", source))?;
    Ok((mapping, reservation))
}

fn copy(input: &SourceFile, target: &OwnedFd) -> Result<()> {
    let moved = Move::new(&input.file, target).named(&input.path, "the tier").run();
    moved.map_err(|source| Error::NotCopied {
        path: input.path.clone(),
        source: Box::new(source),
    })?;
    // A file written to during the copy would be a mix of old and new contents.
    input.verify()?;
    ftruncate(target, input.version.length_bytes)
        .map_err(|source| input.failed("copy", source.into()))
}

/// Delays the program like a slower tier: spins without sleeping.
fn wait(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn length(input: &SourceFile) -> Result<usize> {
    usize::try_from(input.version.length_bytes)
        .map_err(|_| input.failed("map", std::io::ErrorKind::OutOfMemory.into()))
}

impl Reader for Mapped {
    fn read(&mut self, offset: u64, length: usize) -> Result<(&[u8], Served)> {
        if let Protection::Lease(lease) = &self.protection
            && !lease.is_held()
        {
            // Unmapping and releasing the lease lets the waiting process continue.
            self.mapping = None;
            self.protection = Protection::Nothing;
        }
        let Some(mapping) = &self.mapping else {
            self.input.verify()?;
            let what = "another process wants to write to it, so it was unmapped";
            return Err(Error::Changed { path: self.input.path.clone(), what });
        };
        let length = self.input.clamp(offset, length);
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
        self.input.version.length_bytes
    }

    fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }
}
