//! How the host's own tables are kept: each in a file that is replaced as a whole.
//!
//! The first line says what it is: `evermap-access 1 LENGTH CRC32C`, the length in bytes and the
//! checksum, in eight hexadecimal digits, of what follows, which is JSON. A new file is written
//! beside the old one, flushed, and renamed over it; then the directory is flushed. Changes happen under a
//! lock on a file of its own, so of two processes that change something none loses the other's.
//!
//! A file that another user could have changed is refused. File and directory have to belong to this
//! user or root, and no other user may have permission to write them.

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

/// Locked while one of the files is changed.
const LOCK: &str = "sandbox.lock";
const FORMAT: &str = "1";
/// No table of a store gets so long.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Write permission of a group and of everybody.
const OTHERS_WRITE: u32 = 0o022;

/// What is kept in a file of its own in the store's directory.
pub(crate) trait Kept: Clone + Default + PartialEq + Serialize + DeserializeOwned {
    /// The file's name.
    const FILE: &'static str;
    /// The first word in it.
    const MAGIC: &'static str;
    /// What people call it.
    const CALLED: &'static str;

    /// Refuses if the file must not be missing in this directory. Otherwise the first change makes it.
    fn check_missing(directory: &Path) -> Result<()> {
        let _ = directory;
        Ok(())
    }
}

/// Which file was read: another one has another id, time or length, and one that was replaced has
/// fewer names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    device: u64,
    inode: u64,
    names: u64,
    changed: (i64, i64),
    length: u64,
}

/// A file that was changed so long ago shows each further change by its time, however coarse the
/// clock of its file system is.
const SETTLED_AFTER_SECONDS: i64 = 3;

#[derive(Debug)]
pub(crate) struct KeptFile<T> {
    directory: PathBuf,
    read: Mutex<Option<ReadLast<T>>>,
}

/// What was read last.
#[derive(Debug)]
struct ReadLast<T> {
    /// Where from; none when there was no file.
    source: Option<Source>,
    table: Arc<T>,
}

#[derive(Debug)]
struct Source {
    file: File,
    version: Version,
    /// The file answers for its name: it had it when its last change was long ago, so that taking
    /// the name away shows.
    settled: bool,
}

impl<T: Kept> KeptFile<T> {
    pub(crate) fn new(directory: &Path) -> KeptFile<T> {
        KeptFile { directory: directory.to_path_buf(), read: Mutex::default() }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self) -> PathBuf {
        self.directory.join(T::FILE)
    }

    fn read_last(&self) -> MutexGuard<'_, Option<ReadLast<T>>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the table. Costs a look at the file's state when it is the one that was read.
    pub(crate) fn look<R>(&self, ask: impl FnOnce(&T) -> R) -> Result<R> {
        let known = self.known()?;
        let table = match known {
            Some(table) => table,
            None => {
                let read = self.load()?;
                let table = Arc::clone(&read.table);
                *self.read_last() = Some(read);
                table
            }
        };
        Ok(ask(&table))
    }

    /// What was read last, if that is what there is.
    fn known(&self) -> Result<Option<Arc<T>>> {
        let mut last = self.read_last();
        let Some(ReadLast { source, table }) = last.as_mut() else { return Ok(None) };
        let same = match source {
            Some(source) if source.settled => source.is_unchanged(),
            Some(source) => {
                let same = self.version()? == Some(source.version);
                source.settled = same && source.version.is_settled();
                same
            }
            // Check again whether the file may be missing.
            None => false,
        };
        Ok(same.then(|| Arc::clone(table)))
    }

    /// Changes the table, durably; it stays as it is when `change` fails.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        let _lock = self.lock()?;
        let before = self.load()?.table;
        let mut table = T::clone(&before);
        let result = change(&mut table)?;
        if table != *before {
            self.replace(&table)?;
            *self.read_last() = None;
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

    fn version(&self) -> Result<Option<Version>> {
        match fs::symlink_metadata(self.path()) {
            Ok(found) => Ok(Some(Version::of(&found))),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("look at", self.path())(e)),
        }
    }

    fn load(&self) -> Result<ReadLast<T>> {
        let path = self.path();
        let mut options = OpenOptions::new();
        // O_NONBLOCK: opening a FIFO in the file's place must not wait.
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK);
        let mut file = match options.open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                T::check_missing(&self.directory)?;
                return Ok(ReadLast { source: None, table: Arc::default() });
            }
            Err(e) => return Err(Error::io("open", &path)(e)),
        };
        // Before it is read: what is changed meanwhile is another version.
        let found = file.metadata().map_err(Error::io("look at", &path))?;
        self.check_private(&path, &found)?;
        if !found.is_file() || found.len() > FILE_BYTES_MAX {
            let why = format!("it is no file of at most {FILE_BYTES_MAX} bytes");
            return Err(Error::DamagedTable { what: T::CALLED, path, why });
        }
        let version = Version::of(&found);
        let mut bytes = Vec::new();
        (&mut file)
            .take(FILE_BYTES_MAX)
            .read_to_end(&mut bytes)
            .map_err(Error::io("read", &path))?;
        let table = Arc::new(parse(&path, &bytes)?);
        Ok(ReadLast { source: Some(Source { file, version, settled: false }), table })
    }

    /// Refuses a file that another user than this one and root could have changed or put there.
    fn check_private(&self, path: &Path, file: &Metadata) -> Result<()> {
        let directory = &self.directory;
        let found = fs::metadata(directory).map_err(Error::io("look at", directory))?;
        // The sticky bit, as on `/tmp`, keeps others from replacing files that exist.
        let is_sticky = found.mode() & libc::S_ISVTX != 0;
        for (path, found, protected) in [(path, file, false), (directory, &found, is_sticky)] {
            let refused = |why: String, remedy: String| Error::UnsafeTable {
                what: T::CALLED,
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

    /// Makes the file if it does not exist.
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
            what: T::CALLED,
            path: self.path(),
            why: format!("it cannot be written: {e}"),
        })?;
        let head = first_line::<T>(&body) + "\n";
        // What a killed process left there.
        match fs::remove_file(&new) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(Error::io("remove", &new)(e));
            }
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&new).map_err(Error::io("make", &new))?;
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

impl Version {
    fn of(found: &Metadata) -> Version {
        Version {
            device: found.dev(),
            inode: found.ino(),
            names: found.nlink(),
            changed: (found.ctime(), found.ctime_nsec()),
            length: found.len(),
        }
    }

    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        now as i64 - self.changed.0 > SETTLED_AFTER_SECONDS
    }
}

impl Source {
    fn is_unchanged(&self) -> bool {
        self.file.metadata().is_ok_and(|found| Version::of(&found) == self.version)
    }
}

fn first_line<T: Kept>(body: &[u8]) -> String {
    format!("{} {FORMAT} {} {:08x}", T::MAGIC, body.len(), crc32c::crc32c(body))
}

fn parse<T: Kept>(path: &Path, bytes: &[u8]) -> Result<T> {
    let damaged =
        |why: String| Error::DamagedTable { what: T::CALLED, path: path.to_path_buf(), why };
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
            return Err(Error::NewerTable { what: T::CALLED, path: path.to_path_buf(), found });
        }
        _ => return Err(damaged("its first line names no format".to_string())),
    }
    let length = words.next().and_then(|word| word.parse::<usize>().ok());
    if length != Some(body.len()) {
        return Err(damaged(format!("it has {} bytes after its first line", body.len())));
    }
    // As it was written, to the letter: no damage is taken for another way to say the same.
    if head != first_line::<T>(body) {
        return Err(damaged("its checksum does not fit".to_string()));
    }
    serde_json::from_slice(body).map_err(|e| damaged(format!("its contents are none: {e}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use serde::Deserialize;

    use super::*;

    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Words(BTreeSet<String>);

    impl Kept for Words {
        const FILE: &'static str = "words";
        const MAGIC: &'static str = "test-words";
        const CALLED: &'static str = "the words";
    }

    fn file() -> (tempfile::TempDir, KeptFile<Words>) {
        let directory = tempfile::tempdir().unwrap();
        let file = KeptFile::new(directory.path());
        (directory, file)
    }

    fn add(file: &KeptFile<Words>, id: &str) {
        file.change(|words| {
            words.0.insert(id.to_string());
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn what_was_changed_is_there_for_another_process_at_once() {
        let (directory, file) = file();
        let other = KeptFile::<Words>::new(directory.path());
        assert_eq!(other.look(|table| table.0.len()).unwrap(), 0);
        add(&file, "one");
        assert_eq!(other.look(|table| table.0.len()).unwrap(), 1);
        add(&other, "two");
        assert_eq!(file.look(|table| table.0.len()).unwrap(), 2);
    }

    #[test]
    fn only_its_owner_may_read_it() {
        let (directory, file) = file();
        add(&file, "one");
        let mode = fs::metadata(directory.path().join(Words::FILE)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
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
    fn a_half_written_table_that_a_kill_left_is_in_nobodys_way() {
        let (directory, file) = file();
        fs::write(directory.path().join("words.new"), "half").unwrap();
        add(&file, "one");
        assert_eq!(file.look(|table| table.0.len()).unwrap(), 1);
    }

    #[test]
    fn a_link_in_the_tables_place_is_not_followed() {
        let (directory, file) = file();
        let elsewhere = directory.path().join("elsewhere");
        add(&file, "one");
        fs::rename(directory.path().join(Words::FILE), &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, directory.path().join(Words::FILE)).unwrap();
        assert!(file.look(|_| ()).is_err());
    }

    /// As if what was read last had not changed for a while.
    fn settle(file: &KeptFile<Words>) {
        file.look(|_| ()).unwrap();
        file.read_last().as_mut().unwrap().source.as_mut().unwrap().settled = true;
        // Coarse clocks tick every 10 ms at least.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }

    #[test]
    fn a_table_that_has_not_changed_for_long_is_seen_to_change() {
        let (directory, file) = file();
        add(&file, "one");
        settle(&file);
        let known = file.known().unwrap().unwrap();
        assert_eq!(file.look(|table| table.0.len()).unwrap(), 1);
        add(&KeptFile::<Words>::new(directory.path()), "two");
        assert_eq!(file.look(|table| table.0.len()).unwrap(), 2, "replaced");
        settle(&file);
        let path = directory.path().join(Words::FILE);
        let replaced = fs::read(&path).unwrap();
        file.replace(&known).unwrap();
        fs::write(&path, &replaced).unwrap();
        assert_eq!(file.look(|table| table.0.len()).unwrap(), 2, "written in its place");
        settle(&file);
        fs::rename(&path, directory.path().join("elsewhere")).unwrap();
        assert_eq!(file.look(|table| table.0.len()).unwrap(), 0, "moved away");
        fs::rename(directory.path().join("elsewhere"), &path).unwrap();
        assert_eq!(file.look(|table| table.0.len()).unwrap(), 2, "and back");
    }

    #[test]
    fn a_table_that_was_changed_just_now_is_looked_for_by_its_name() {
        let (directory, file) = file();
        add(&file, "one");
        for _ in 0..3 {
            assert_eq!(file.look(|table| table.0.len()).unwrap(), 1);
            assert!(!file.read_last().as_ref().unwrap().source.as_ref().unwrap().settled);
        }
        fs::remove_file(directory.path().join(Words::FILE)).unwrap();
        assert_eq!(file.look(|table| table.0.len()).unwrap(), 0);
    }

    #[test]
    fn a_change_that_fails_changes_nothing() {
        let (_directory, file) = file();
        add(&file, "one");
        let failed: Result<()> = file.change(|table| {
            table.0.clear();
            Err(Error::GuardTooLate)
        });
        assert!(failed.is_err());
        assert_eq!(file.look(|table| table.0.len()).unwrap(), 1);
    }
}
