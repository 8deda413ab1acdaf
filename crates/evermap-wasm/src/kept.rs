//! How the host's own tables are kept: each in a file that is replaced as a whole.
//!
//! The first line says what it is: `evermap-access 1 LENGTH CRC32C`, the length in bytes and the
//! checksum, in eight hexadecimal digits, of what follows, which is JSON. A new file is written
//! beside the old one, flushed, and renamed over it; then the directory is flushed. Changes happen under a
//! lock on a file of its own, so of two processes that change something none loses the other's.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// Locked while one of the files is changed.
const LOCK: &str = "sandbox.lock";
const FORMAT: &str = "1";

/// What is kept in a file of its own in the store's directory.
pub(crate) trait Kept: Clone + Default + PartialEq + Serialize + DeserializeOwned {
    /// The file's name.
    const FILE: &'static str;
    /// The first word in it.
    const MAGIC: &'static str;
    /// What people call it.
    const CALLED: &'static str;
}

/// Which file was read: another one has another id, time or length.
type Version = (u64, u64, i64, i64, u64);

/// What was read last. Without a version when there was no file.
type ReadLast<T> = Option<(Option<Version>, Arc<T>)>;

#[derive(Debug)]
pub(crate) struct KeptFile<T> {
    directory: PathBuf,
    read: Mutex<ReadLast<T>>,
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

    fn read_last(&self) -> MutexGuard<'_, ReadLast<T>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the table. Costs a look at the file's id and time when it is the one that was read.
    pub(crate) fn look<R>(&self, ask: impl FnOnce(&T) -> R) -> Result<R> {
        let version = self.version()?;
        let known = self.read_last().clone().filter(|(known, _)| *known == version);
        let table = match known {
            Some((_, table)) => table,
            None => {
                let table = Arc::new(self.load()?);
                // One that is replaced right now is read again the next time.
                *self.read_last() = Some((version, Arc::clone(&table)));
                table
            }
        };
        Ok(ask(&table))
    }

    /// Changes the table, durably; it stays as it is when `change` fails.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        let _lock = self.lock()?;
        let mut table = self.load()?;
        let before = table.clone();
        let result = change(&mut table)?;
        if table != before {
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
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(&path)
            .map_err(Error::io("open", &path))?;
        flock(&file, FlockOperation::LockExclusive)
            .map_err(|e| Error::io("lock", &path)(e.into()))?;
        Ok(file)
    }

    fn version(&self) -> Result<Option<Version>> {
        match fs::symlink_metadata(self.path()) {
            Ok(m) => Ok(Some((m.dev(), m.ino(), m.ctime(), m.ctime_nsec(), m.len()))),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("look at", self.path())(e)),
        }
    }

    fn load(&self) -> Result<T> {
        let path = self.path();
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
        let bytes = match options.open(&path) {
            Ok(mut file) => {
                let mut bytes = Vec::new();
                std::io::Read::read_to_end(&mut file, &mut bytes)
                    .map_err(Error::io("read", &path))?;
                bytes
            }
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(T::default()),
            Err(e) => return Err(Error::io("open", &path)(e)),
        };
        parse(&path, &bytes)
    }

    fn replace(&self, table: &T) -> Result<()> {
        let new = self.directory.join(format!("{}.new", T::FILE));
        let body = serde_json::to_vec_pretty(table).map_err(|e| Error::DamagedTable {
            what: T::CALLED,
            path: self.path(),
            why: format!("it cannot be written: {e}"),
        })?;
        let head = format!("{} {FORMAT} {} {:08x}\n", T::MAGIC, body.len(), crc32c::crc32c(&body));
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
    let stored = words.next().and_then(|word| u32::from_str_radix(word, 16).ok());
    if stored != Some(crc32c::crc32c(body)) {
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
    fn every_flipped_byte_and_every_cut_is_noticed() {
        let (directory, file) = file();
        add(&file, "one");
        let path = directory.path().join(Words::FILE);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            assert!(parse::<Words>(&path, &bytes).is_err(), "byte {at}");
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
