//! Directories private to this user, and locked directories in them, which hold copies and records.
//!
//! Only this user can change a **private directory**. A **slot** is a directory in it for one file.
//! A process that works with a slot holds its lock; the kernel releases the lock when the process
//! ends. The next holder may remove whatever a killed holder left in the slot.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, flock, fstat, fsync, mkdirat, open, openat,
    renameat, stat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::error::{Error, Result};
use super::layout::user_directory;
use super::watch::Watch;

/// Name of a record in its slot.
const RECORD: &str = "record";
/// Name of an unfinished record.
const RECORD_NEW: &str = "record.new";
/// Limit for a record. One with two paths of 4 KiB, with each byte written as a number, needs a
/// fifth of this.
const RECORD_BYTES_MAX: u64 = 256 << 10;
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// Directory that only this user can change.
#[derive(Debug)]
pub(super) struct PrivateDirectory {
    pub(super) path: PathBuf,
    directory: OwnedFd,
}

impl PrivateDirectory {
    /// Opens the directory. Returns `None` if it does not exist.
    pub(super) fn find(path: &Path) -> Result<Option<Self>> {
        let directory = match open(path, DIRECTORY, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let why = "it is a link or not a directory: remove it".into();
                return Err(Error::UnsafeDirectory { path: path.into(), why });
            }
            Err(errno) => return Err(Error::io("open", path)(errno)),
        };
        let found = fstat(&directory).map_err(Error::io("inspect", path))?;
        let why = match (found.st_uid == geteuid().as_raw(), found.st_mode & 0o022) {
            (false, _) => "it belongs to another user: have it removed, or name another directory",
            (true, 0) => return Ok(Some(Self { path: path.into(), directory })),
            (true, _) => "others may write to it: run `chmod go-w` on it",
        };
        Err(Error::UnsafeDirectory { path: path.into(), why: why.into() })
    }

    /// Opens the directory, and creates it if it does not exist. Does not create its parent.
    pub(super) fn make(path: &Path, mode: u32) -> Result<Self> {
        match mkdirat(CWD, path, Mode::from_raw_mode(mode)) {
            Ok(()) => flush_directory(parent(path))?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(Error::io("create", path)(errno)),
        }
        Self::find(path)?.ok_or_else(|| Error::io("open", path)(Errno::NOENT))
    }

    /// Opens or creates this user's directory on a tier. Other users can pass through it to files
    /// they may read.
    pub(super) fn on_tier(tier: &Path) -> Result<Self> {
        let found = stat(tier).map_err(Error::io("inspect the tier", tier))?;
        if found.st_mode & 0o1002 == 0o0002 {
            let why =
                "others could move this user's directory away: run `chmod +t` or `chmod o-w` on it";
            return Err(Error::UnsafeDirectory { path: tier.into(), why: why.into() });
        }
        Self::make(&user_directory(tier), 0o711)
    }

    /// Returns the names of the entries, sorted.
    pub(super) fn names(&self) -> Result<Vec<String>> {
        let entries = fs::read_dir(&self.path).map_err(Error::io("list", &self.path))?;
        let mut names: Vec<_> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }

    /// Locks a slot, and creates it if it does not exist. Waits for the current holder. `subject`
    /// is the path for messages.
    pub(super) fn lock(&self, name: &str, subject: &Path, watch: &Watch) -> Result<Slot> {
        watch.until(subject, || {
            match mkdirat(&self.directory, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(Error::io("create", self.path.join(name))(errno)),
            }
            match self.attempt(name)? {
                Attempt::Locked(slot) => Ok(Some(slot)),
                Attempt::Held | Attempt::Absent => Ok(None),
            }
        })
    }

    /// Like [`PrivateDirectory::lock`], but returns `None` if the slot does not exist.
    pub(super) fn lock_if_there(
        &self,
        name: &str,
        subject: &Path,
        watch: &Watch,
    ) -> Result<Option<Slot>> {
        watch.until(subject, || match self.attempt(name)? {
            Attempt::Locked(slot) => Ok(Some(Some(slot))),
            Attempt::Absent => Ok(Some(None)),
            Attempt::Held => Ok(None),
        })
    }

    /// Tries to lock a slot once, without waiting.
    pub(super) fn attempt(&self, name: &str) -> Result<Attempt> {
        let path = self.path.join(name);
        let directory = match openat(&self.directory, name, DIRECTORY, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(Attempt::Absent),
            Err(errno) => return Err(Error::io("open", path)(errno)),
        };
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::AGAIN) => return Ok(Attempt::Held),
            Err(errno) => return Err(Error::io("lock", path)(errno)),
        }
        // A previous holder may have removed the slot, and a new one may have its name.
        let opened = fstat(&directory).map_err(Error::io("inspect", &path))?;
        match stat(&path) {
            Ok(named) if (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino) => {
                Ok(Attempt::Locked(Slot { path, directory }))
            }
            _ => Ok(Attempt::Absent),
        }
    }

    pub(super) fn flush(&self) -> Result<()> {
        fsync(&self.directory).map_err(Error::io("flush", &self.path))
    }
}

/// Result of an attempt to lock a slot.
pub(super) enum Attempt {
    Locked(Slot),
    /// Another process holds the lock.
    Held,
    /// The slot does not exist.
    Absent,
}

/// Locked directory for one file. No other process works with it until this is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) path: PathBuf,
    directory: OwnedFd,
}

impl Slot {
    /// Reads the record. Returns `None` if it does not exist.
    pub(super) fn record<T: serde::de::DeserializeOwned>(&self) -> Result<Option<T>> {
        let path = self.record_path();
        let file = match openat(
            &self.directory,
            RECORD,
            OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK,
            Mode::empty(),
        ) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(Error::io("open", path)(errno)),
        };
        let mut bytes = Vec::new();
        file.take(RECORD_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(Error::io("read", &path))?;
        if bytes.len() as u64 > RECORD_BYTES_MAX {
            return Err(Error::Record { path, what: "it is too long".into() });
        }
        match serde_json::from_slice(&bytes) {
            Ok(record) => Ok(Some(record)),
            Err(error) => Err(Error::Record { path, what: error.to_string() }),
        }
    }

    pub(super) fn record_path(&self) -> PathBuf {
        self.path.join(RECORD)
    }

    /// Replaces the record atomically and durably.
    pub(super) fn write_record(&self, record: &impl serde::Serialize) -> Result<()> {
        let path = self.path.join(RECORD_NEW);
        let failed = |what| Error::io(what, &path);
        let bytes = serde_json::to_vec_pretty(record)
            .map_err(|error| Error::Record { path: path.clone(), what: error.to_string() })?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(&self.directory, RECORD_NEW, flags, Mode::RUSR | Mode::WUSR)
            .map_err(failed("create"))?;
        let mut file = File::from(file);
        file.write_all(&bytes).map_err(Error::io("write", &path))?;
        file.sync_all().map_err(Error::io("flush", &path))?;
        renameat(&self.directory, RECORD_NEW, &self.directory, RECORD).map_err(failed("rename"))?;
        fsync(&self.directory).map_err(Error::io("flush", &self.path))?;
        // The slot itself may be new.
        flush_directory(parent(&self.path))
    }

    /// Removes all entries except those in `but`.
    pub(super) fn clean(&self, but: &[&str]) -> Result<()> {
        clean(&self.path, &self.directory, but)
    }

    /// Removes the slot if it holds at most an unfinished record. Other contents may belong to
    /// another program.
    pub(super) fn remove_unused(self) -> Result<()> {
        match unlinkat(&self.directory, RECORD_NEW, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(Error::io("remove", self.path.join(RECORD_NEW))(errno)),
        }
        match remove_directory(&self.path) {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::DirectoryNotEmpty => {
                Ok(())
            }
            other => other,
        }
    }

    /// Removes the slot with its contents, the record last.
    pub(super) fn remove(self) -> Result<()> {
        self.clean(&[RECORD])?;
        self.clean(&[])?;
        remove_directory(&self.path)
    }
}

/// Removes the files of a directory, except those in `but`.
fn clean(path: &Path, directory: &OwnedFd, but: &[&str]) -> Result<()> {
    for entry in fs::read_dir(path).map_err(Error::io("list", path))? {
        let name = entry.map_err(Error::io("list", path))?.file_name();
        if but.iter().any(|kept| name == *kept) {
            continue;
        }
        match unlinkat(directory, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(Error::io("remove", path.join(&name))(errno)),
        }
    }
    Ok(())
}

/// Removes an empty directory durably. Succeeds if it does not exist.
pub(super) fn remove_directory(path: &Path) -> Result<()> {
    match unlinkat(CWD, path, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => flush_directory(parent(path)),
        Err(errno) => Err(Error::io("remove", path)(errno)),
    }
}

/// Flushes the names in a directory to disk.
pub(super) fn flush_directory(path: &Path) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = open(path, flags, Mode::empty()).map_err(Error::io("open", path))?;
    fsync(&directory).map_err(Error::io("flush", path))
}

/// Returns the directory that contains `path`.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    fn short_timeout() -> Watch {
        Watch::default().timeout(Duration::from_millis(1))
    }

    #[test]
    fn a_slot_has_one_holder_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let home = PrivateDirectory::make(&dir.path().join("home"), 0o700).unwrap();
        let subject = Path::new("/a/file");
        let slot = home.lock("one", subject, &short_timeout()).unwrap();
        let error = home.lock("one", subject, &short_timeout()).unwrap_err();
        assert!(matches!(&error, Error::Busy { path } if path == subject), "{error}");
        home.lock("other", subject, &short_timeout()).unwrap();
        slot.write_record(&7).unwrap();
        drop(slot);
        let slot = home.lock("one", subject, &short_timeout()).unwrap();
        assert_eq!(slot.record::<u32>().unwrap(), Some(7));
        slot.remove().unwrap();
        assert!(home.lock_if_there("one", subject, &short_timeout()).unwrap().is_none());
    }

    #[test]
    fn an_invalid_record_is_reported_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let home = PrivateDirectory::make(&dir.path().join("home"), 0o700).unwrap();
        let slot = home.lock("one", Path::new("/a"), &short_timeout()).unwrap();
        for bytes in [&b"{"[..], b"", b"\xff", &vec![b'1'; 300 << 10]] {
            fs::write(slot.record_path(), bytes).unwrap();
            let error = slot.record::<u32>().unwrap_err();
            assert!(matches!(&error, Error::Record { path, .. } if path.ends_with("one/record")));
            assert!(slot.record_path().exists());
        }
    }

    #[test]
    fn a_directory_that_other_users_can_change_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("home");
        drop(PrivateDirectory::make(&path, 0o700).unwrap());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(PrivateDirectory::find(&path), Err(Error::UnsafeDirectory { .. })));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/", &link).unwrap();
        assert!(matches!(PrivateDirectory::make(&link, 0o700), Err(Error::UnsafeDirectory { .. })));
        assert!(PrivateDirectory::find(&dir.path().join("none")).unwrap().is_none());
    }
}
