//! State files of the host: tables that are each replaced as a whole.
//!
//! The first line is `evermap-access 1 LENGTH CRC32C` (`evermap-keys` in the key ring): the length
//! in bytes and the checksum, in eight hexadecimal digits, of the JSON text that follows. A change
//! writes a new file next to the old one, flushes it, renames it over the old one and flushes the
//! directory. A lock on a separate file serialises changes of several processes, so none is lost.
//!
//! A file that another user could have changed is refused. File and directory must belong to this
//! user or root. No other user may have permission to write the file, nor the directory unless it
//! has the sticky bit.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// Lock file held during a change of any state file.
const LOCK: &str = "sandbox.lock";
const FORMAT: &str = "1";
/// Upper bound on a file's length; no store has a table this large.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Write permission bits of group and others.
const OTHERS_WRITE: u32 = 0o022;

/// Contents of a state file in the store's directory.
pub(crate) trait Contents:
    Clone + Default + PartialEq + Serialize + DeserializeOwned
{
    /// The file's name.
    const FILE: &'static str;
    /// The first word of the file.
    const MAGIC: &'static str;
    /// The name in error messages.
    const DISPLAY_NAME: &'static str;

    /// Returns an error if the file must exist in this directory. Otherwise the first change
    /// creates it.
    fn check_missing(directory: &Path) -> Result<()> {
        let _ = directory;
        Ok(())
    }
}

/// Identifies the file version: inode, change time and length. The link count drops when the file
/// is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    links: u64,
    changed: (i64, i64),
    length: u64,
}

/// Age of the last change in seconds after which every further change has another time, even on
/// file systems with a coarse clock.
const STABLE_AFTER_SECONDS: i64 = 3;

#[derive(Debug)]
pub(crate) struct StateFile<T> {
    directory: PathBuf,
    last: Mutex<Option<LastRead<T>>>,
}

/// The table that was read last.
#[derive(Debug)]
struct LastRead<T> {
    /// The file that was read; `None` if there was none.
    source: Option<Source>,
    table: Arc<T>,
}

#[derive(Debug)]
struct Source {
    file: File,
    version: FileVersion,
    /// The last change is old enough that any later change, even a rename, changes the metadata.
    /// Then `fstat` on the open file is enough, and the name is not looked up.
    stable: bool,
}

impl<T: Contents> StateFile<T> {
    pub(crate) fn new(directory: &Path) -> StateFile<T> {
        StateFile { directory: directory.to_path_buf(), last: Mutex::default() }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self) -> PathBuf {
        self.directory.join(T::FILE)
    }

    fn last_read(&self) -> MutexGuard<'_, Option<LastRead<T>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `ask` with the current table. Costs one `stat` if the file has not changed since it
    /// was last read.
    pub(crate) fn query<R>(&self, ask: impl FnOnce(&T) -> R) -> Result<R> {
        let known = self.known()?;
        let table = match known {
            Some(table) => table,
            None => {
                let read = self.load()?;
                let table = Arc::clone(&read.table);
                *self.last_read() = Some(read);
                table
            }
        };
        Ok(ask(&table))
    }

    /// Returns the table that was read last, if the file is unchanged.
    fn known(&self) -> Result<Option<Arc<T>>> {
        let mut last = self.last_read();
        let Some(LastRead { source, table }) = last.as_mut() else { return Ok(None) };
        let same = match source {
            Some(source) if source.stable => source.is_unchanged(),
            Some(source) => {
                let same = self.version()? == Some(source.version);
                source.stable = same && source.version.is_stable();
                same
            }
            // `load` checks again if the file may be missing.
            None => false,
        };
        Ok(same.then(|| Arc::clone(table)))
    }

    /// Changes the table durably. If `change` fails, the table is unchanged.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        let _lock = self.lock()?;
        let before = self.load()?.table;
        let mut table = T::clone(&before);
        let result = change(&mut table)?;
        if table != *before {
            self.replace(&table)?;
            *self.last_read() = None;
        }
        Ok(result)
    }

    fn lock(&self) -> Result<File> {
        let path = self.directory.join(LOCK);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
            .open(&path)
            .map_err(Error::io("open", &path))?;
        flock(&file, FlockOperation::LockExclusive)
            .map_err(|e| Error::io("lock", &path)(e.into()))?;
        Ok(file)
    }

    fn version(&self) -> Result<Option<FileVersion>> {
        match fs::symlink_metadata(self.path()) {
            Ok(found) => Ok(Some(FileVersion::of(&found))),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("inspect", self.path())(e)),
        }
    }

    fn load(&self) -> Result<LastRead<T>> {
        let path = self.path();
        let mut options = OpenOptions::new();
        // O_NONBLOCK: opening a FIFO in the file's place must not wait.
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK);
        let mut file = match options.open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                T::check_missing(&self.directory)?;
                return Ok(LastRead { source: None, table: Arc::default() });
            }
            Err(e) => return Err(Error::io("open", &path)(e)),
        };
        // Taken before the read, so a concurrent change gives another version.
        let found = file.metadata().map_err(Error::io("inspect", &path))?;
        self.check_private(&path, &found)?;
        if !found.is_file() || found.len() > FILE_BYTES_MAX {
            let why = format!("it is not a regular file of at most {FILE_BYTES_MAX} bytes");
            return Err(Error::DamagedTable { what: T::DISPLAY_NAME, path, why });
        }
        let version = FileVersion::of(&found);
        let mut bytes = Vec::new();
        (&mut file)
            .take(FILE_BYTES_MAX)
            .read_to_end(&mut bytes)
            .map_err(Error::io("read", &path))?;
        let table = Arc::new(parse(&path, &bytes)?);
        Ok(LastRead { source: Some(Source { file, version, stable: false }), table })
    }

    /// Refuses a file that a user other than this one and root could have changed or created.
    fn check_private(&self, path: &Path, file: &Metadata) -> Result<()> {
        let directory = &self.directory;
        let found = fs::metadata(directory).map_err(Error::io("inspect", directory))?;
        // The sticky bit, as on `/tmp`, keeps others from replacing files that exist.
        let is_sticky = found.mode() & libc::S_ISVTX != 0;
        for (path, found, protected) in [(path, file, false), (directory, &found, is_sticky)] {
            let refused = |why: String, remedy: String| Error::UnsafeTable {
                what: T::DISPLAY_NAME,
                path: path.to_path_buf(),
                why,
                remedy,
            };
            // SAFETY: the call cannot fail.
            let user = unsafe { libc::geteuid() };
            let shown = path.display();
            if found.uid() != user && found.uid() != 0 {
                let why = format!("it belongs to user {}, who can change it", found.uid());
                return Err(refused(why, format!("chown {user} {shown}")));
            }
            if found.mode() & OTHERS_WRITE != 0 && !protected {
                let why = format!("others can change it (mode {:o})", found.mode() & 0o7777);
                return Err(refused(why, format!("chmod go-w {shown}")));
            }
        }
        Ok(())
    }

    /// Creates the file if it does not exist.
    pub(crate) fn ensure(&self) -> Result<()> {
        let _lock = self.lock()?;
        match self.load()?.source {
            Some(_) => Ok(()),
            None => self.replace(&T::default()),
        }
    }

    fn replace(&self, table: &T) -> Result<()> {
        let new = self.directory.join(format!("{}.new", T::FILE));
        let body = serde_json::to_vec_pretty(table).map_err(|e| Error::DamagedTable {
            what: T::DISPLAY_NAME,
            path: self.path(),
            why: format!("it cannot be written: {e}"),
        })?;
        let head = first_line::<T>(&body) + "\n";
        // A killed process can have left a file there.
        match fs::remove_file(&new) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(Error::io("remove", &new)(e));
            }
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&new).map_err(Error::io("create", &new))?;
        let written = file
            .write_all(head.as_bytes())
            .and_then(|()| file.write_all(&body))
            .and_then(|()| file.sync_all());
        written.map_err(Error::io("write", &new))?;
        fs::rename(&new, self.path()).map_err(Error::io("rename", &new))?;
        File::open(&self.directory)
            .and_then(|directory| directory.sync_all())
            .map_err(Error::io("flush", &self.directory))
    }
}

impl FileVersion {
    fn of(found: &Metadata) -> FileVersion {
        FileVersion {
            device: found.dev(),
            inode: found.ino(),
            links: found.nlink(),
            changed: (found.ctime(), found.ctime_nsec()),
            length: found.len(),
        }
    }

    fn is_stable(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        now as i64 - self.changed.0 > STABLE_AFTER_SECONDS
    }
}

impl Source {
    fn is_unchanged(&self) -> bool {
        self.file.metadata().is_ok_and(|found| FileVersion::of(&found) == self.version)
    }
}

fn first_line<T: Contents>(body: &[u8]) -> String {
    format!("{} {FORMAT} {} {:08x}", T::MAGIC, body.len(), crc32c::crc32c(body))
}

fn parse<T: Contents>(path: &Path, bytes: &[u8]) -> Result<T> {
    let damaged =
        |why: String| Error::DamagedTable { what: T::DISPLAY_NAME, path: path.to_path_buf(), why };
    let end = bytes.iter().position(|&b| b == b'\n');
    let Some((head, body)) = end.map(|end| (&bytes[..end], &bytes[end + 1..])) else {
        return Err(damaged("it has no first line".to_string()));
    };
    let head = String::from_utf8_lossy(head);
    let mut words = head.split(' ');
    if words.next() != Some(T::MAGIC) {
        return Err(damaged(format!("it does not begin with `{}`", T::MAGIC)));
    }
    match words.next() {
        Some(FORMAT) => {}
        Some(other) if other.parse::<u32>().is_ok_and(|format| format > 1) => {
            let found = other.to_string();
            return Err(Error::NewerTable {
                what: T::DISPLAY_NAME,
                path: path.to_path_buf(),
                found,
            });
        }
        _ => return Err(damaged("its first line has no format number".to_string())),
    }
    let length = words.next().and_then(|word| word.parse::<usize>().ok());
    if length != Some(body.len()) {
        return Err(damaged(format!("it has {} bytes after its first line", body.len())));
    }
    // Compared byte for byte, so damage is not accepted as another spelling of the same values.
    if head != first_line::<T>(body) {
        return Err(damaged("its checksum does not match".to_string()));
    }
    serde_json::from_slice(body).map_err(|e| damaged(format!("its JSON is invalid: {e}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use serde::Deserialize;

    use super::*;

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Words(BTreeSet<String>);

    impl Contents for Words {
        const FILE: &'static str = "words";
        const MAGIC: &'static str = "test-words";
        const DISPLAY_NAME: &'static str = "the words";
    }

    fn file() -> (tempfile::TempDir, StateFile<Words>) {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile::new(directory.path());
        (directory, file)
    }

    fn add(file: &StateFile<Words>, id: &str) {
        file.change(|words| {
            words.0.insert(id.to_string());
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn another_process_sees_a_change_at_once() {
        let (directory, file) = file();
        let other = StateFile::<Words>::new(directory.path());
        assert_eq!(other.query(|table| table.0.len()).unwrap(), 0);
        add(&file, "one");
        assert_eq!(other.query(|table| table.0.len()).unwrap(), 1);
        add(&other, "two");
        assert_eq!(file.query(|table| table.0.len()).unwrap(), 2);
    }

    #[test]
    fn only_its_owner_can_read_the_file() {
        let (directory, file) = file();
        add(&file, "one");
        let mode = fs::metadata(directory.path().join(Words::FILE)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_detected() {
        let (directory, file) = file();
        add(&file, "one");
        let path = directory.path().join(Words::FILE);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                assert!(parse::<Words>(&path, &bytes).is_err(), "byte {at}, bit {bit}");
            }
            assert!(parse::<Words>(&path, &whole[..at]).is_err(), "cut at {at}");
        }
        parse::<Words>(&path, &whole).unwrap();
    }

    #[test]
    fn a_half_written_file_left_by_a_kill_is_replaced() {
        let (directory, file) = file();
        fs::write(directory.path().join("words.new"), "half").unwrap();
        add(&file, "one");
        assert_eq!(file.query(|table| table.0.len()).unwrap(), 1);
    }

    #[test]
    fn a_symbolic_link_in_place_of_the_file_is_not_followed() {
        let (directory, file) = file();
        let elsewhere = directory.path().join("elsewhere");
        add(&file, "one");
        fs::rename(directory.path().join(Words::FILE), &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, directory.path().join(Words::FILE)).unwrap();
        assert!(file.query(|_| ()).is_err());
    }

    /// Marks the last read version as stable, as if the file had not changed for a while.
    fn mark_stable(file: &StateFile<Words>) {
        file.query(|_| ()).unwrap();
        file.last_read().as_mut().unwrap().source.as_mut().unwrap().stable = true;
        // Coarse clocks tick every 10 ms at least.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }

    #[test]
    fn a_change_of_a_stable_file_is_seen() {
        let (directory, file) = file();
        add(&file, "one");
        mark_stable(&file);
        let known = file.known().unwrap().unwrap();
        assert_eq!(file.query(|table| table.0.len()).unwrap(), 1);
        add(&StateFile::<Words>::new(directory.path()), "two");
        assert_eq!(file.query(|table| table.0.len()).unwrap(), 2, "replaced");
        mark_stable(&file);
        let path = directory.path().join(Words::FILE);
        let replaced = fs::read(&path).unwrap();
        file.replace(&known).unwrap();
        fs::write(&path, &replaced).unwrap();
        assert_eq!(file.query(|table| table.0.len()).unwrap(), 2, "written in place");
        mark_stable(&file);
        fs::rename(&path, directory.path().join("elsewhere")).unwrap();
        assert_eq!(file.query(|table| table.0.len()).unwrap(), 0, "moved away");
        fs::rename(directory.path().join("elsewhere"), &path).unwrap();
        assert_eq!(file.query(|table| table.0.len()).unwrap(), 2, "moved back");
    }

    #[test]
    fn a_recently_changed_file_is_looked_up_by_name() {
        let (directory, file) = file();
        add(&file, "one");
        for _ in 0..3 {
            assert_eq!(file.query(|table| table.0.len()).unwrap(), 1);
            assert!(!file.last_read().as_ref().unwrap().source.as_ref().unwrap().stable);
        }
        fs::remove_file(directory.path().join(Words::FILE)).unwrap();
        assert_eq!(file.query(|table| table.0.len()).unwrap(), 0);
    }

    #[test]
    fn a_failed_change_changes_nothing() {
        let (_directory, file) = file();
        add(&file, "one");
        let failed: Result<()> = file.change(|table| {
            table.0.clear();
            Err(Error::GuardTooLate)
        });
        assert!(failed.is_err());
        assert_eq!(file.query(|table| table.0.len()).unwrap(), 1);
    }
}
