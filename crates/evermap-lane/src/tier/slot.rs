//! Directories that belong to this user, and locked ones in them: where copies and records are.
//!
//! A **home** is a directory that is this user's alone to change. A **slot** is a directory in it for one file, locked by
//! whoever works with it; the kernel's lock ends with its holder. What a killed holder left in a slot, the next one may remove.

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
use super::layout::home_of;
use super::watch::Watch;

/// The name of a record in its slot.
const RECORD: &str = "record";
/// What a record in the making is called.
const RECORD_NEW: &str = "record.new";
/// A record with two paths of 4 KiB, each byte written as a number, is a fifth of this.
const RECORD_BYTES_MAX: u64 = 256 << 10;
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// A directory that nobody else can change.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) path: PathBuf,
    directory: OwnedFd,
}

impl Home {
    /// Opens it; none if it is not there.
    pub(super) fn find(path: &Path) -> Result<Option<Self>> {
        let directory = match open(path, DIRECTORY, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let why = "it is no directory, or a link: remove it".into();
                return Err(Error::UnsafeDirectory { path: path.into(), why });
            }
            Err(errno) => return Err(Error::io("open", path)(errno)),
        };
        let found = fstat(&directory).map_err(Error::io("look at", path))?;
        let why = match (found.st_uid == geteuid().as_raw(), found.st_mode & 0o022) {
            (false, _) => "it belongs to somebody else: have it removed, or name another directory",
            (true, 0) => return Ok(Some(Self { path: path.into(), directory })),
            (true, _) => "others may write to it: `chmod go-w` it",
        };
        Err(Error::UnsafeDirectory { path: path.into(), why: why.into() })
    }

    /// Opens it, and makes it first if it is not there; not what it is in.
    pub(super) fn make(path: &Path, mode: u32) -> Result<Self> {
        match mkdirat(CWD, path, Mode::from_raw_mode(mode)) {
            Ok(()) => flush_directory(parent(path))?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(Error::io("make", path)(errno)),
        }
        Self::find(path)?.ok_or_else(|| Error::io("open", path)(Errno::NOENT))
    }

    /// This user's on a tier, which others may pass through to files that they may read.
    pub(super) fn on_tier(tier: &Path) -> Result<Self> {
        let found = stat(tier).map_err(Error::io("look at the tier", tier))?;
        if found.st_mode & 0o1002 == 0o0002 {
            let why = "others could move this user's directory away: `chmod +t` or `chmod o-w` it";
            return Err(Error::UnsafeDirectory { path: tier.into(), why: why.into() });
        }
        Self::make(&home_of(tier), 0o711)
    }

    /// The names in it.
    pub(super) fn names(&self) -> Result<Vec<String>> {
        let entries = fs::read_dir(&self.path).map_err(Error::io("list", &self.path))?;
        let mut names: Vec<_> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }

    /// Locks a slot, and makes it first if it is not there. Waits for whoever has it; `subject` is what that would be called.
    pub(super) fn lock(&self, name: &str, subject: &Path, watch: &Watch) -> Result<Slot> {
        watch.until(subject, || {
            match mkdirat(&self.directory, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(Error::io("make", self.path.join(name))(errno)),
            }
            match self.attempt(name)? {
                Attempt::Locked(slot) => Ok(Some(slot)),
                Attempt::Held | Attempt::Absent => Ok(None),
            }
        })
    }

    /// The same for one that is there; none if it is not.
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

    /// Locks one that is there, now or not at all.
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
        // Whoever had it may have removed it, and another one may have its name by now.
        let opened = fstat(&directory).map_err(Error::io("look at", &path))?;
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

/// What became of an attempt to lock a slot.
pub(super) enum Attempt {
    Locked(Slot),
    /// Somebody else has it.
    Held,
    /// It is not there.
    Absent,
}

/// A directory for one file, which nobody else works with while this is there.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) path: PathBuf,
    directory: OwnedFd,
}

impl Slot {
    /// The record; none if there is none.
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
            return Err(Error::Record { path, what: "it is longer than any record".into() });
        }
        match serde_json::from_slice(&bytes) {
            Ok(record) => Ok(Some(record)),
            Err(error) => Err(Error::Record { path, what: error.to_string() }),
        }
    }

    pub(super) fn record_path(&self) -> PathBuf {
        self.path.join(RECORD)
    }

    /// Writes the record in place of the one that there is: wholly, durably, or not at all.
    pub(super) fn write_record(&self, record: &impl serde::Serialize) -> Result<()> {
        let path = self.path.join(RECORD_NEW);
        let failed = |what| Error::io(what, &path);
        let bytes = serde_json::to_vec_pretty(record)
            .map_err(|error| Error::Record { path: path.clone(), what: error.to_string() })?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(&self.directory, RECORD_NEW, flags, Mode::RUSR | Mode::WUSR)
            .map_err(failed("make"))?;
        let mut file = File::from(file);
        file.write_all(&bytes).map_err(Error::io("write", &path))?;
        file.sync_all().map_err(Error::io("flush", &path))?;
        renameat(&self.directory, RECORD_NEW, &self.directory, RECORD).map_err(failed("rename"))?;
        fsync(&self.directory).map_err(Error::io("flush", &self.path))?;
        // The slot itself may be new.
        flush_directory(parent(&self.path))
    }

    /// Removes all that is in it but these.
    pub(super) fn clean(&self, but: &[&str]) -> Result<()> {
        clean(&self.path, &self.directory, but)
    }

    /// Removes it if nothing is in it but a record that was never complete: it may be somebody else's directory.
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

    /// Removes it with all that is in it, the record last.
    pub(super) fn remove(self) -> Result<()> {
        self.clean(&[RECORD])?;
        self.clean(&[])?;
        remove_directory(&self.path)
    }
}

/// Removes the files of a directory of ours, but for these.
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

/// Removes an empty directory, durably; it is no error if it is not there.
pub(super) fn remove_directory(path: &Path) -> Result<()> {
    match unlinkat(CWD, path, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => flush_directory(parent(path)),
        Err(errno) => Err(Error::io("remove", path)(errno)),
    }
}

/// Makes the names in a directory durable.
pub(super) fn flush_directory(path: &Path) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = open(path, flags, Mode::empty()).map_err(Error::io("open", path))?;
    fsync(&directory).map_err(Error::io("flush", path))
}

/// The directory that something is in.
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

    fn impatient() -> Watch {
        Watch::default().patience(Duration::from_millis(1))
    }

    #[test]
    fn a_slot_is_one_holders_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::make(&place.path().join("home"), 0o700).unwrap();
        let subject = Path::new("/a/file");
        let slot = home.lock("one", subject, &impatient()).unwrap();
        let error = home.lock("one", subject, &impatient()).unwrap_err();
        assert!(matches!(&error, Error::Busy { path } if path == subject), "{error}");
        home.lock("other", subject, &impatient()).unwrap();
        slot.write_record(&7).unwrap();
        drop(slot);
        let slot = home.lock("one", subject, &impatient()).unwrap();
        assert_eq!(slot.record::<u32>().unwrap(), Some(7));
        slot.remove().unwrap();
        assert!(home.lock_if_there("one", subject, &impatient()).unwrap().is_none());
    }

    #[test]
    fn a_record_that_makes_no_sense_is_named_and_kept() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::make(&place.path().join("home"), 0o700).unwrap();
        let slot = home.lock("one", Path::new("/a"), &impatient()).unwrap();
        for bytes in [&b"{"[..], b"", b"\xff", &vec![b'1'; 300 << 10]] {
            fs::write(slot.record_path(), bytes).unwrap();
            let error = slot.record::<u32>().unwrap_err();
            assert!(matches!(&error, Error::Record { path, .. } if path.ends_with("one/record")));
            assert!(slot.record_path().exists());
        }
    }

    #[test]
    fn a_home_that_others_can_change_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("home");
        drop(Home::make(&path, 0o700).unwrap());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(Home::find(&path), Err(Error::UnsafeDirectory { .. })));
        let link = place.path().join("link");
        std::os::unix::fs::symlink("/", &link).unwrap();
        assert!(matches!(Home::make(&link, 0o700), Err(Error::UnsafeDirectory { .. })));
        assert!(Home::find(&place.path().join("none")).unwrap().is_none());
    }
}
