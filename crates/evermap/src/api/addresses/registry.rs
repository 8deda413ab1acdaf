//! The arena registry: a file that records the addresses of one user's stores. A new arena is
//! placed where no other store has one, so that any two stores can be open in one process.
//!
//! The registry is optional: an arena at a random place works as well, unless it overlaps another
//! one. So a failure here is no error for the caller, and nothing waits for long. Without the file,
//! a store uses a random place. Opening a store does not read the registry.
//!
//! Invariants. The file is read and written under an exclusive lock on a separate lock file, which
//! is never replaced. It is a kernel lock, so it ends with its holder. Entries are appended, or the
//! whole file is replaced by rename. A kill leaves at most a torn last line, which the next append
//! terminates. Readers skip it, or take it for the arena of a store with a shorter path. A store is
//! recorded before it has a catalog, and counts as existing while it has its directory `objects`,
//! which is created before the store asks for an arena.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tracing::debug;

use super::registry_lines::{Entry, HEADER, Heading, heading_of, parse_entries};
use crate::api::options::{Options, RegistryChoice};
use crate::error::{Error, Result};
use crate::layout::OBJECTS;
use crate::object::lock_byte;
use crate::storage::{File, LockKind, OpenMode, Storage};

/// Timeout for the lock. Its holder needs a tenth of a millisecond.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit of a sweep for deleted stores. One of them may be on a file system that does not
/// respond.
const SWEEP_TIME: Duration = Duration::from_millis(500);
/// Number of entries after which a sweep is due, if none was needed before.
const SWEEP_EVERY: usize = 1024;
/// Size limit. Of a longer file only the end is read, and at most half of the limit is written
/// back.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The locked registry. It does not change until this value is dropped.
pub(in crate::api) struct ArenaRegistry {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    file: Option<Arc<dyn File>>,
    length_bytes: u64,
    /// The last line is torn.
    is_torn: bool,
    /// The file must be rewritten, because appending cannot bring it up to date.
    is_stale: bool,
    entries: Vec<Entry>,
    _lock: Arc<dyn File>,
}

impl ArenaRegistry {
    /// Locks and reads the registry that the options select. Returns `None` if that fails.
    pub(in crate::api) fn lock(options: &Options) -> Option<ArenaRegistry> {
        let path = match &options.arena_registry {
            RegistryChoice::Without => return None,
            RegistryChoice::At(path) => path.clone(),
            RegistryChoice::OfUser => options.storage.state_directory()?.join("evermap/arenas"),
        };
        match ArenaRegistry::lock_at(&options.storage, &path) {
            Ok(registry) => Some(registry),
            Err(error) => {
                debug!(path = %path.display(), %error, "going on without the arena registry");
                None
            }
        }
    }

    /// Reads the user's registry without a lock. For display only: an entry that is being added may
    /// be missing.
    pub(in crate::api) fn peek(storage: &dyn Storage) -> Vec<Entry> {
        let read = || -> Option<Vec<Entry>> {
            let path = storage.state_directory()?.join("evermap/arenas");
            let file = storage.open(&path, OpenMode::Read).ok()?;
            let from = file.length().ok()?.saturating_sub(FILE_BYTES_MAX);
            let mut text = vec![0; FILE_BYTES_MAX as usize];
            let got = file.read_at(&mut text, from).ok()?;
            text.truncate(got);
            Some(parse_entries(&text))
        };
        read().unwrap_or_default()
    }

    fn lock_at(storage: &Arc<dyn Storage>, path: &Path) -> Result<ArenaRegistry> {
        if path.file_name().is_none() {
            return Err(Error::Foreign { path: path.into(), found: "a directory".to_string() });
        }
        let lock_path = with_ending(path, ".lock");
        let lock = match storage.open(&lock_path, OpenMode::OpenOrCreate) {
            Err(e) if e.is_missing_file() => {
                make_private_directory(&**storage, &crate::storage::parent_of(path))?;
                storage.open(&lock_path, OpenMode::OpenOrCreate)?
            }
            other => other?,
        };
        lock_byte(&*lock, LockKind::Exclusive, 0, LOCK_TIMEOUT, "the arena registry")?;
        let mut registry = ArenaRegistry {
            storage: Arc::clone(storage),
            path: path.to_path_buf(),
            file: None,
            length_bytes: 0,
            is_torn: false,
            is_stale: false,
            entries: Vec::new(),
            _lock: lock,
        };
        registry.read()?;
        Ok(registry)
    }

    fn read(&mut self) -> Result<()> {
        let file = match self.storage.open(&self.path, OpenMode::ReadWrite) {
            Err(e) if e.is_missing_file() => {
                self.is_stale = true;
                return Ok(());
            }
            other => other?,
        };
        let length = file.length()?;
        let mut head = [0; HEADER.len()];
        let got = file.read_at(&mut head, 0)?;
        match heading_of(&head[..got]) {
            Heading::Known => {}
            Heading::Unwritten => {
                self.is_stale = true;
                return Ok(());
            }
            // A file of another program, or of a newer version.
            Heading::Foreign => {
                let found = String::from_utf8_lossy(&head[..got]).into_owned();
                return Err(Error::Foreign { path: self.path.clone(), found });
            }
        }
        let from = length.saturating_sub(FILE_BYTES_MAX).max(HEADER.len() as u64);
        self.is_stale = from > HEADER.len() as u64;
        let mut text = vec![0; length.saturating_sub(from) as usize];
        let got = file.read_at(&mut text, from)?;
        text.truncate(got);
        self.is_torn = text.last().is_some_and(|byte| *byte != b'\n');
        self.length_bytes = from + got as u64;
        self.entries = parse_entries(&text);
        self.file = Some(file);
        Ok(())
    }

    /// Returns base and length of every recorded arena.
    pub(in crate::api) fn arenas(&self) -> Vec<(u64, u64)> {
        self.entries.iter().map(|entry| (entry.base, entry.length)).collect()
    }

    /// Removes the entries of a store, before its current arenas are recorded.
    pub(in crate::api) fn remove(&mut self, store: &Path) {
        self.retain(|entry| entry.store != store);
    }

    /// Removes the entries of deleted stores. A store that cannot be checked in time counts as
    /// existing.
    ///
    /// Takes a microsecond per store. Done only when no other place is left, and once for every
    /// [`SWEEP_EVERY`] entries, because a missing store may have been moved, or may be on a disk
    /// that will be mounted again.
    pub(in crate::api) fn sweep(&mut self) {
        let stores: HashSet<PathBuf> = self.entries.iter().map(|e| e.store.clone()).collect();
        let gone = find_deleted(&self.storage, stores);
        self.retain(|entry| !gone.contains(&entry.store));
    }

    fn retain(&mut self, wanted: impl Fn(&Entry) -> bool) {
        let before = self.entries.len();
        self.entries.retain(wanted);
        self.is_stale |= self.entries.len() < before;
    }

    /// Records arenas of a store, and unlocks the registry.
    pub(in crate::api) fn record(mut self, arenas: &[(u64, u64)], store: &Path) {
        for &(base, length) in arenas {
            let entry = Entry { base, length, store: store.to_path_buf() };
            if self.entries.contains(&entry) {
                continue;
            }
            if self.entries.len() % SWEEP_EVERY == SWEEP_EVERY - 1 {
                self.sweep();
            }
            let added = if self.is_stale { Ok(()) } else { self.append(&entry) };
            self.entries.push(entry);
            if let Err(error) = added {
                debug!(path = %self.path.display(), %error, "cannot add to the arena registry");
                return;
            }
        }
        if self.is_stale
            && let Err(error) = self.replace()
        {
            debug!(path = %self.path.display(), %error, "cannot rewrite the arena registry");
        }
    }

    fn append(&mut self, entry: &Entry) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut text = if self.is_torn { "\n".to_string() } else { String::new() };
        text += &entry.line();
        file.write_at(text.as_bytes(), self.length_bytes)?;
        self.length_bytes += text.len() as u64;
        self.is_torn = false;
        Ok(())
    }

    /// Rewrites the file. Flushes the new file before the rename, because after a power failure an
    /// empty file there would have lost every entry.
    fn replace(&mut self) -> Result<()> {
        let lines: Vec<String> = self.entries.iter().map(Entry::line).collect();
        let mut bytes = 0;
        let fits = |line: &&String| {
            bytes += line.len() as u64;
            bytes <= FILE_BYTES_MAX / 2
        };
        let kept = lines.iter().rev().take_while(fits).count();
        let text = HEADER.to_string() + &lines[lines.len() - kept..].concat();
        let new = with_ending(&self.path, ".new");
        match self.storage.remove(&new) {
            Err(e) if !e.is_missing_file() => return Err(e),
            _ => {}
        }
        let file = self.storage.open(&new, OpenMode::CreateNew)?;
        file.write_at(text.as_bytes(), 0)?;
        file.sync_data()?;
        self.storage.rename(&new, &self.path)
    }
}

/// Appends an ending to a file's name.
fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

/// Creates a directory and its missing parents, accessible to the owner only.
fn make_private_directory(storage: &dyn Storage, path: &Path) -> Result<()> {
    match storage.create_directory(path) {
        Err(e) if e.is_missing_file() => {}
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists => {
            return Ok(());
        }
        other => return other,
    }
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => make_private_directory(storage, parent)?,
        _ => {}
    }
    match storage.create_directory(path) {
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists => {
            Ok(())
        }
        other => other,
    }
}

/// Returns the stores that certainly no longer exist. A separate thread checks them, because a
/// network file system that does not respond can block its caller without limit.
fn find_deleted(storage: &Arc<dyn Storage>, stores: HashSet<PathBuf>) -> HashSet<PathBuf> {
    let storage = Arc::clone(storage);
    let (found, gone) = mpsc::channel();
    let asking = std::thread::Builder::new().name("evermap-sweep".to_string()).spawn(move || {
        for store in stores {
            // The receiver is gone, because the time limit has passed.
            if is_deleted(&*storage, &store) && found.send(store).is_err() {
                return;
            }
        }
    });
    if let Err(error) = asking {
        debug!(%error, "cannot check which stores are gone");
    }
    let deadline = Instant::now() + SWEEP_TIME;
    let next = || gone.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
    std::iter::from_fn(next).collect()
}

pub(in crate::api) fn is_deleted(storage: &dyn Storage, store: &Path) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    match storage.directory_identity(&store.join(OBJECTS)) {
        Err(Error::Io { source, .. }) => matches!(source.kind(), NotFound | NotADirectory),
        _ => false,
    }
}
