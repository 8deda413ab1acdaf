//! The arena registry: a file in which the stores of one user note the addresses they have, so that
//! a new arena is put where no other store has one, and any two of them can be open in one process.
//!
//! A convenience and no more: an arena at a random place is as good unless it meets another one.
//! So nothing here is an error for its caller, and nothing waits for long; whoever cannot use the
//! file goes on without it. Opening a store does not look at it.
//!
//! Invariants. The file is read and written under an exclusive lock on a file beside it, which is
//! never replaced: a kernel lock, so that a killed holder is none. Notes are appended, or the file
//! is replaced as a whole by rename: a kill leaves at most a torn last line, which is passed over
//! and ended by whoever appends next. A store is noted before it has a catalog, and counts as there
//! for as long as it has its directory `objects`, which is made before it asks for an arena.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tracing::debug;

use super::options::Options;
use super::registry_lines::{Entry, HEADER, Heading, heading_of, parse_entries};
use crate::error::{Error, Result};
use crate::layout::OBJECTS;
use crate::object::lock_byte;
use crate::storage::{File, LockKind, OpenMode, Storage};

/// How long to wait for the lock. Its holder needs a tenth of a millisecond.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long to look for stores that are gone: one of them may lie where nobody answers.
const SWEEP_TIME: Duration = Duration::from_millis(500);
/// So many notes are made between two looks at which stores are gone, if places last so long.
const SWEEP_EVERY: usize = 1024;
/// Of a longer file only the end is read, and what is written back is half of it at most.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Which file is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RegistryChoice {
    /// The one of the user.
    OfUser,
    At(PathBuf),
    Without,
}

/// The registry, locked; what it says is what it says until this value goes.
pub(super) struct ArenaRegistry {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    file: Option<Arc<dyn File>>,
    length_bytes: u64,
    /// The last note was cut.
    is_torn: bool,
    /// What is known cannot be said by adding to the file.
    is_stale: bool,
    entries: Vec<Entry>,
    _lock: Arc<dyn File>,
}

impl ArenaRegistry {
    /// Locks and reads the registry that the options name; `None` where that cannot be done.
    pub(super) fn lock(options: &Options) -> Option<ArenaRegistry> {
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

    /// What the user's registry says just now, for looking and not for choosing: a note that is
    /// being added may be missing.
    pub(super) fn peek(storage: &dyn Storage) -> Vec<Entry> {
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
        let lock_path = beside(path, ".lock");
        let lock = match storage.open(&lock_path, OpenMode::OpenOrCreate) {
            Err(e) if e.is_missing_file() => {
                make_private_directory(&**storage, &crate::storage::parent_of(path))?;
                storage.open(&lock_path, OpenMode::OpenOrCreate)?
            }
            other => other?,
        };
        lock_byte(&*lock, LockKind::Exclusive, 0, PATIENCE, "the arena registry")?;
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
            // Somebody else's file, or one that a newer program keeps in its own way.
            Heading::Strange => {
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

    /// Base and length of every arena that was noted.
    pub(super) fn arenas(&self) -> Vec<(u64, u64)> {
        self.entries.iter().map(|entry| (entry.base, entry.length)).collect()
    }

    /// Takes out what was noted for a store: another one is made in its directory.
    pub(super) fn forget(&mut self, store: &Path) {
        self.keep_only(|entry| entry.store != store);
    }

    /// Takes out the stores that are gone. Who cannot be asked in time is taken to be there.
    ///
    /// A microsecond a store; so it is done when there is no other place left, and not earlier: a
    /// store that is not there may have been moved, or be on a disk that will be mounted again.
    pub(super) fn sweep(&mut self) {
        let stores: HashSet<PathBuf> = self.entries.iter().map(|e| e.store.clone()).collect();
        let gone = gone_among(&self.storage, stores);
        self.keep_only(|entry| !gone.contains(&entry.store));
    }

    fn keep_only(&mut self, wanted: impl Fn(&Entry) -> bool) {
        let before = self.entries.len();
        self.entries.retain(wanted);
        self.is_stale |= self.entries.len() < before;
    }

    /// Notes an arena. After this somebody else may use the registry.
    pub(super) fn note(mut self, arenas: &[(u64, u64)], store: &Path) {
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
                debug!(path = %self.path.display(), %error, "no note in the arena registry");
                return;
            }
        }
        if self.is_stale
            && let Err(error) = self.replace()
        {
            debug!(path = %self.path.display(), %error, "the arena registry stays as it was");
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

    /// Writes all of it anew, flushed before it takes the old one's place: after a power cut an
    /// empty file in that place would have forgotten every store.
    fn replace(&mut self) -> Result<()> {
        let lines: Vec<String> = self.entries.iter().map(Entry::line).collect();
        let mut bytes = 0;
        let fits = |line: &&String| {
            bytes += line.len() as u64;
            bytes <= FILE_BYTES_MAX / 2
        };
        let kept = lines.iter().rev().take_while(fits).count();
        let text = HEADER.to_string() + &lines[lines.len() - kept..].concat();
        let new = beside(&self.path, ".new");
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

/// A name in the same directory.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

/// Makes a directory and what is missing above it, for the owner only.
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

/// Which of the stores are certainly not there any more. A thread of its own asks, because a
/// network file system that does not answer keeps whoever asks for as long as it likes.
fn gone_among(storage: &Arc<dyn Storage>, stores: HashSet<PathBuf>) -> HashSet<PathBuf> {
    let storage = Arc::clone(storage);
    let (found, gone) = mpsc::channel();
    let asking = std::thread::Builder::new().name("evermap-sweep".to_string()).spawn(move || {
        for store in stores {
            // Nobody listens any more: time is over.
            if is_gone(&*storage, &store) && found.send(store).is_err() {
                return;
            }
        }
    });
    if let Err(error) = asking {
        debug!(%error, "no look at which stores are gone");
    }
    let deadline = Instant::now() + SWEEP_TIME;
    let next = || gone.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
    std::iter::from_fn(next).collect()
}

pub(super) fn is_gone(storage: &dyn Storage, store: &Path) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    match storage.directory_identity(&store.join(OBJECTS)) {
        Err(Error::Io { source, .. }) => matches!(source.kind(), NotFound | NotADirectory),
        _ => false,
    }
}
