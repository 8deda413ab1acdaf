//! Makes verified copies: copies a file, flushes the copy, reads it back, and checks that the file
//! did not change in the meantime.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, thread};

use evermap_transfer::{Copy, Durability, Reflink};
use rustix::fs::{Advice, Mode, OFlags, Statx, fadvise, open, statvfs};
use rustix::io::{Errno, pread};

use super::error::{Error, Result};
use super::identity::{Identity, check_unchanged};
use super::slot::parent;
use super::watch::{TICK, Watch};
use crate::sys::lease::{self, LeaseKind};

const CHUNK_BYTES: usize = 1 << 20;

/// File that is open for reading, with its identity when it was opened.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) file: OwnedFd,
    pub(super) identity: Identity,
    /// Kind of lease held on it. Code that copies checks that the lease is intact.
    pub(super) leased: Option<LeaseKind>,
}

impl Source {
    /// Opens a file without waiting. Does not follow a symbolic link.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = open_to_read(path).map_err(Error::io("open", path))?;
        let identity = Identity::of(&file).map_err(Error::io("inspect", path))?;
        Ok(Self { path: path.into(), file, identity, leased: None })
    }

    /// Returns a path that leads to the open file, even after a rename.
    fn path_of_open(&self) -> PathBuf {
        let open = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        if open.exists() { open } else { self.path.clone() }
    }

    /// Takes a lease, or changes the current one.
    pub(super) fn lease(&mut self, kind: LeaseKind) -> Result<(), Errno> {
        lease::take(self.file.as_fd(), kind)?;
        self.leased = Some(kind);
        Ok(())
    }

    /// Returns true if no process has tried to open the file since the lease was taken, or if there
    /// is no lease.
    pub(super) fn is_undisturbed(&self) -> bool {
        self.leased.is_none_or(|kind| lease::is_held(self.file.as_fd(), kind))
    }

    /// Checks that the file is unchanged, both as opened and by name.
    pub(super) fn check(&self) -> Result<()> {
        if !self.is_undisturbed() {
            return Err(Error::Interrupted { path: self.path.clone() });
        }
        let now = Identity::of(&self.file).map_err(Error::io("inspect", &self.path))?;
        if let Some(what) = self.identity.differs(&now) {
            return Err(Error::Changed { path: self.path.clone(), what });
        }
        check_unchanged(&self.path, &self.identity)
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if self.leased.is_some() {
            lease::release(self.file.as_fd());
        }
    }
}

/// Opens a file for reading, without waiting for the holder of a lease.
pub(super) fn open_to_read(path: &Path) -> Result<OwnedFd, Errno> {
    let flags =
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    open(path, flags, Mode::empty())
}

/// Result of copying.
#[derive(Debug)]
pub(super) struct Copied {
    /// BLAKE3 hash of the contents, in hexadecimal.
    pub(super) hash: String,
    /// Identity of the copy.
    pub(super) identity: Identity,
    /// Attributes that could not be set on the copy, in words.
    pub(super) refused: Vec<String>,
    /// Attributes that differ although no call failed.
    rounded: Vec<String>,
}

impl Copied {
    /// Describes the attributes that the copy lacks. Returns `None` if it has all.
    pub(super) fn not_kept(&self) -> Option<String> {
        let kind = |one: &String| one.split(' ').next().map(str::to_owned);
        let refused: Vec<_> = self.refused.iter().map(kind).collect();
        let rounded = self.rounded.iter().filter(|one| !refused.contains(&kind(one)));
        let all: Vec<&str> = self.refused.iter().chain(rounded).map(String::as_str).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

/// Copies a file durably, with its holes and attributes, to a name that no other process uses.
/// After an error the name is free. `tier` is the directory to report if there is too little space.
/// Returns the attributes that could not be set.
pub(super) fn copy(
    source: &Source,
    target: &Path,
    tier: &Path,
    watch: &Watch,
) -> Result<Vec<String>> {
    source.check()?;
    let stopped = Arc::new(AtomicBool::new(watch.is_cancelled()));
    let copy = Copy::new(source.path_of_open(), target)
        .durability(Durability::Full)
        .reflink(Reflink::Auto)
        .cancelled_by(Arc::clone(&stopped));
    let meter = copy.progress();
    let size_bytes = source.identity.size_bytes;
    let is_over = AtomicBool::new(false);
    let monitor = || {
        while !is_over.load(Ordering::Acquire) {
            if watch.is_cancelled() || !source.is_undisturbed() {
                stopped.store(true, Ordering::Relaxed);
            }
            watch.progress(&source.path, meter.arrived_bytes().min(size_bytes), 3 * size_bytes);
            thread::park_timeout(TICK);
        }
    };
    let report = thread::scope(|scope| {
        let watcher = thread::Builder::new()
            .spawn_scoped(scope, monitor)
            .map_err(Error::io("start a thread to monitor the copy of", &source.path))?;
        let report = copy.run();
        is_over.store(true, Ordering::Release);
        watcher.thread().unpark();
        report.map_err(|error| from_transfer(error, source, tier))
    })?;
    Ok(report.not_kept.iter().map(|not| format!("{} ({})", not.what, not.why)).collect())
}

/// Copies a file, reads both files, and compares them. After an error the name is free.
pub(super) fn copy_and_compare(
    source: &Source,
    target: &Path,
    tier: &Path,
    watch: &Watch,
    mut copied: impl FnMut(),
) -> Result<Copied> {
    let refused = copy(source, target, tier, watch)?;
    copied();
    let compared = compare(source, target, tier, watch);
    if compared.is_err() {
        // If this fails, the next process that works here removes the file.
        let _ = rustix::fs::unlink(target);
    }
    let (hash, identity, rounded) = compared?;
    Ok(Copied { hash, identity, refused, rounded })
}

fn compare(
    source: &Source,
    target: &Path,
    tier: &Path,
    watch: &Watch,
) -> Result<(String, Identity, Vec<String>)> {
    let size_bytes = source.identity.size_bytes;
    let reading = |file: &OwnedFd, path: &Path, before_bytes: u64| {
        hash(file, path, |read_bytes| {
            watch.progress(&source.path, before_bytes + read_bytes, 3 * size_bytes);
            watch.check(&source.path)?;
            if source.is_undisturbed() {
                Ok(())
            } else {
                Err(Error::Interrupted { path: source.path.clone() })
            }
        })
    };
    let of_source = reading(&source.file, &source.path, size_bytes)?;
    let copy = open_to_read(target).map_err(Error::io("open", target))?;
    // Drop the cached pages, so that the copy is read from the storage. On a memory file system
    // this has no effect.
    let _ = fadvise(&copy, 0, None, Advice::DontNeed);
    let of_copy = reading(&copy, target, 2 * size_bytes)?;
    source.check()?;
    if of_source != of_copy {
        return Err(Error::Differs { path: source.path.clone(), tier: tier.into() });
    }
    watch.progress(&source.path, 3 * size_bytes, 3 * size_bytes);
    let (has, _) =
        Identity::with_stat(source.file.as_fd()).map_err(Error::io("inspect", &source.path))?;
    let (got, identity) =
        Identity::with_stat(copy.as_fd()).map_err(Error::io("inspect", target))?;
    Ok((of_copy, identity, rounded(&has, &got)))
}

/// Returns attributes that differ although no call failed. Some file systems round times, or give
/// all files the same mode.
fn rounded(source: &Statx, copy: &Statx) -> Vec<String> {
    let mode = |file: &Statx| file.stx_mode & 0o7777;
    let owner = |file: &Statx| format!("{}:{}", file.stx_uid, file.stx_gid);
    let time = |file: &Statx| (file.stx_mtime.tv_sec, file.stx_mtime.tv_nsec);
    let mut all = Vec::new();
    if owner(source) != owner(copy) {
        all.push(format!("owner {} ({} on the target)", owner(source), owner(copy)));
    }
    if mode(source) != mode(copy) {
        all.push(format!("mode {:o} ({:o} on the target)", mode(source), mode(copy)));
    }
    if time(source) != time(copy) {
        all.push("time of change (rounded on the target)".into());
    }
    all
}

/// Returns the BLAKE3 hash of a file's contents, in hexadecimal. `read` receives the bytes read so
/// far, and can end the loop with an error.
pub(super) fn hash(
    file: &OwnedFd,
    path: &Path,
    mut read: impl FnMut(u64) -> Result<()>,
) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at_bytes = 0;
    loop {
        read(at_bytes)?;
        match pread(file, &mut buffer, at_bytes) {
            Ok(0) => return Ok(hasher.finalize().to_hex().to_string()),
            Ok(length) => {
                hasher.update(&buffer[..length]);
                at_bytes += length as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::io("read", path)(errno)),
        }
    }
}

fn from_transfer(error: evermap_transfer::Error, source: &Source, tier: &Path) -> Error {
    use evermap_transfer::Error as Transfer;
    let path = source.path.clone();
    match error {
        Transfer::NoSpace { needed_bytes, .. } => tier_full(tier, path, needed_bytes),
        Transfer::SourceChanged { what, .. } => Error::Changed { path, what },
        Transfer::Cancelled { .. } if !source.is_undisturbed() => Error::Interrupted { path },
        Transfer::Cancelled { .. } => Error::Cancelled { path },
        Transfer::Io { operation, path: at, source: why } => match why.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                tier_full(tier, path, source.identity.size_bytes)
            }
            _ if at == source.path_of_open() => Error::Io { operation, path, source: why },
            _ => Error::Io { operation, path: at, source: why },
        },
        other => Error::Transfer(other),
    }
}

/// Returns the error for a full tier.
pub(super) fn tier_full(tier: &Path, path: PathBuf, needed_bytes: u64) -> Error {
    let free_bytes = statvfs(tier)
        .or_else(|_| statvfs(parent(tier)))
        .map_or(0, |room| room.f_bavail.saturating_mul(room.f_frsize));
    Error::TierFull { tier: tier.into(), path, needed_bytes, free_bytes }
}
