//! Making a copy that can be trusted: copied, flushed, read back, and of a file that was the same all the time.

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
use crate::sys::lease::{self, Kept};

const CHUNK_BYTES: usize = 1 << 20;

/// A file that is open for reading, and what it was when it was opened.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) file: OwnedFd,
    pub(super) identity: Identity,
    /// There is a lease on it, which whoever copies looks after.
    pub(super) leased: Option<Kept>,
}

impl Source {
    /// Opens it; a link is none of these. Waits for nobody.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = open_to_read(path).map_err(Error::io("open", path))?;
        let identity = Identity::of(&file).map_err(Error::io("look at", path))?;
        Ok(Self { path: path.into(), file, identity, leased: None })
    }

    /// A path that leads to the file itself, whatever has its name by then.
    fn path_of_open(&self) -> PathBuf {
        let open = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        if open.exists() { open } else { self.path.clone() }
    }

    /// Takes a lease, or changes the one there is.
    pub(super) fn lease(&mut self, kept: Kept) -> Result<(), Errno> {
        lease::take(self.file.as_fd(), kept)?;
        self.leased = Some(kept);
        Ok(())
    }

    /// Whether nobody has wanted it since the lease was taken; true without one.
    pub(super) fn is_left_alone(&self) -> bool {
        self.leased.is_none_or(|kept| lease::is_whole(self.file.as_fd(), kept))
    }

    /// Whether it is what it was, under its name and as it is open.
    pub(super) fn check(&self) -> Result<()> {
        if !self.is_left_alone() {
            return Err(Error::Interrupted { path: self.path.clone() });
        }
        let now = Identity::of(&self.file).map_err(Error::io("look at", &self.path))?;
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

/// Opens a file to read it, without waiting for whoever has a lease on it.
pub(super) fn open_to_read(path: &Path) -> Result<OwnedFd, Errno> {
    let flags =
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    open(path, flags, Mode::empty())
}

/// What was copied.
#[derive(Debug)]
pub(super) struct Copied {
    /// BLAKE3 of the contents, in hexadecimal.
    pub(super) hash: String,
    /// The copy's.
    pub(super) identity: Identity,
    /// Attributes that the copy was refused, in words.
    pub(super) refused: Vec<String>,
    /// Those that it has otherwise, though no call failed.
    rounded: Vec<String>,
}

impl Copied {
    /// What the copy has not, in words; none if it has all.
    pub(super) fn not_kept(&self) -> Option<String> {
        let kind = |one: &String| one.split(' ').next().map(str::to_owned);
        let refused: Vec<_> = self.refused.iter().map(kind).collect();
        let rounded = self.rounded.iter().filter(|one| !refused.contains(&kind(one)));
        let all: Vec<&str> = self.refused.iter().chain(rounded).map(String::as_str).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }
}

/// Copies a file to a name that nobody else gives to anything, with its holes and attributes, durably. After an error nothing has the name.
/// `tier` is what is to be named when there is no room.
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
    let look_after = || {
        while !is_over.load(Ordering::Acquire) {
            if watch.is_cancelled() || !source.is_left_alone() {
                stopped.store(true, Ordering::Relaxed);
            }
            watch.progress(&source.path, meter.arrived_bytes().min(size_bytes), 3 * size_bytes);
            thread::park_timeout(TICK);
        }
    };
    let report = thread::scope(|scope| {
        let watcher = thread::Builder::new()
            .spawn_scoped(scope, look_after)
            .map_err(Error::io("start a thread that looks after the copy of", &source.path))?;
        let report = copy.run();
        is_over.store(true, Ordering::Release);
        watcher.thread().unpark();
        report.map_err(|error| of_transfer(error, source, tier))
    })?;
    Ok(report.not_kept.iter().map(|not| format!("{} ({})", not.what, not.why)).collect())
}

/// Copies a file, reads both, and compares. After an error nothing has the name.
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
        // Nothing better can be done than leave it to the next one who works here.
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
            if source.is_left_alone() {
                Ok(())
            } else {
                Err(Error::Interrupted { path: source.path.clone() })
            }
        })
    };
    let of_source = reading(&source.file, &source.path, size_bytes)?;
    let copy = open_to_read(target).map_err(Error::io("open", target))?;
    // So that it is read from where it was stored. Advice: in memory it is there anyway.
    let _ = fadvise(&copy, 0, None, Advice::DontNeed);
    let of_copy = reading(&copy, target, 2 * size_bytes)?;
    source.check()?;
    if of_source != of_copy {
        return Err(Error::Differs { path: source.path.clone(), tier: tier.into() });
    }
    watch.progress(&source.path, 3 * size_bytes, 3 * size_bytes);
    let (has, _) =
        Identity::with_stat(source.file.as_fd()).map_err(Error::io("look at", &source.path))?;
    let (got, identity) =
        Identity::with_stat(copy.as_fd()).map_err(Error::io("look at", target))?;
    Ok((of_copy, identity, rounded(&has, &got)))
}

/// What a copy has otherwise, though no call has said so: some file systems round times, and give all files one mode.
fn rounded(source: &Statx, copy: &Statx) -> Vec<String> {
    let mode = |file: &Statx| file.stx_mode & 0o7777;
    let owner = |file: &Statx| format!("{}:{}", file.stx_uid, file.stx_gid);
    let time = |file: &Statx| (file.stx_mtime.tv_sec, file.stx_mtime.tv_nsec);
    let mut all = Vec::new();
    if owner(source) != owner(copy) {
        all.push(format!("owner {} (it is {} there)", owner(source), owner(copy)));
    }
    if mode(source) != mode(copy) {
        all.push(format!("mode {:o} (it is {:o} there)", mode(source), mode(copy)));
    }
    if time(source) != time(copy) {
        all.push("time of change (less of it is kept there)".into());
    }
    all
}

/// The BLAKE3 hash of a file's contents, in hexadecimal. `read` hears how much was read, and may end it.
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

fn of_transfer(error: evermap_transfer::Error, source: &Source, tier: &Path) -> Error {
    use evermap_transfer::Error as Transfer;
    let path = source.path.clone();
    match error {
        Transfer::NoSpace { needed_bytes, .. } => full(tier, path, needed_bytes),
        Transfer::SourceChanged { what, .. } => Error::Changed { path, what },
        Transfer::Cancelled { .. } if !source.is_left_alone() => Error::Interrupted { path },
        Transfer::Cancelled { .. } => Error::Cancelled { path },
        Transfer::Io { operation, path: at, source: why } => match why.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                full(tier, path, source.identity.size_bytes)
            }
            _ if at == source.path_of_open() => Error::Io { operation, path, source: why },
            _ => Error::Io { operation, path: at, source: why },
        },
        other => Error::Transfer(other),
    }
}

/// There is no room.
pub(super) fn full(tier: &Path, path: PathBuf, needed_bytes: u64) -> Error {
    let free_bytes = statvfs(tier)
        .or_else(|_| statvfs(parent(tier)))
        .map_or(0, |room| room.f_bavail.saturating_mul(room.f_frsize));
    Error::TierFull { tier: tier.into(), path, needed_bytes, free_bytes }
}
