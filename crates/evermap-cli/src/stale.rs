//! Handles documents whose source has changed since they were parsed.
//!
//! The test costs one `stat`. After a change one process parses the source again, under a lock of
//! the store's directory. Other processes wait for it, up to a timeout.

use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evermap::{Error, Snapshot, Store};
use evermap_dom::{Document, NewDocument, NewNamed};

use crate::failure::Failure;
use crate::limits::SOURCE_MIB;
use crate::names;
use crate::output;
use crate::source::{Input, is_unchanged};

/// Maximum time that a process waits for another one to parse the source.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between two attempts to take the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Policy for documents whose source has changed or is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Stale {
    /// Parse the source again; warn if that fails
    #[default]
    Refresh,
    /// Use the stored document, and warn that its source has changed
    Warn,
    /// Use the stored document
    Use,
    /// Fail
    Fail,
}

/// State of a document's source.
#[derive(Debug)]
pub enum SourceState {
    /// The document has no source file: it came from standard input or the network.
    NoSource,
    /// Size and time stamp are those that the document stores.
    Unchanged,
    /// The size is the same and no time stamp is stored, because it was too new. Only the contents
    /// can tell.
    Unsure {
        file: PathBuf,
    },
    Changed {
        file: PathBuf,
    },
    /// The file is missing, or its metadata cannot be read.
    Unreachable {
        file: PathBuf,
        why: io::Error,
    },
}

impl SourceState {
    /// Compares the document with its source. Costs one `stat`.
    pub fn of(directory: &Path, document: &Document) -> SourceState {
        let stored = document.source();
        let file = match document.file_name() {
            Some(name) => names::file_of(directory, name),
            None if stored.path.starts_with('/') => PathBuf::from(&stored.path),
            None => return SourceState::NoSource,
        };
        match std::fs::metadata(&file) {
            Ok(metadata) if !metadata.is_file() => SourceState::NoSource,
            Ok(metadata) if is_unchanged(&stored, &metadata) => SourceState::Unchanged,
            Ok(metadata) if is_unsure(stored.modified_ns, stored.size_bytes, &metadata) => {
                SourceState::Unsure { file }
            }
            Ok(_) => SourceState::Changed { file },
            Err(why) => SourceState::Unreachable { file, why },
        }
    }

    /// Returns the name of the state for `info`.
    pub fn name(&self) -> &'static str {
        match self {
            SourceState::NoSource => "none",
            SourceState::Unchanged => "unchanged",
            SourceState::Unsure { .. } => "unsure",
            SourceState::Changed { .. } => "changed",
            SourceState::Unreachable { .. } => "unreachable",
        }
    }
}

fn is_unsure(stored_ns: u64, stored_bytes: u64, metadata: &Metadata) -> bool {
    stored_ns == 0 && stored_bytes == metadata.len()
}

/// Applies `stale` to the opened document `name`. Returns that document, or a newer one.
///
/// # Errors
/// `Stale` with [`Stale::Fail`]; errors of opening the document again.
pub fn apply_policy(
    store: &Store,
    directory: &Path,
    name: &str,
    document: Snapshot<Document>,
    stale: Stale,
) -> Result<Snapshot<Document>, Failure> {
    if stale == Stale::Use {
        return Ok(document);
    }
    let (file, why) = match SourceState::of(directory, &document) {
        SourceState::NoSource | SourceState::Unchanged => return Ok(document),
        SourceState::Unsure { file } => match stamp_if_same(&file, &document) {
            // Stores the time stamp, so that later processes need not read the file.
            Some(modified_ns) if modified_ns != 0 && stale == Stale::Refresh => {
                // A process cannot write an object that it has open for reading.
                drop(document);
                store_time_stamp(store, name, modified_ns);
                return Ok(store.read::<Document>(name)?);
            }
            Some(_) => return Ok(document),
            None => (file, None),
        },
        SourceState::Changed { file } => (file, None),
        SourceState::Unreachable { file, why } => (file, Some(why)),
    };
    let what = match &why {
        None => format!("its source {} has changed", file.display()),
        Some(why) if why.kind() == io::ErrorKind::NotFound => {
            format!("its source {} is gone", file.display())
        }
        Some(why) => format!("its source {} cannot be read ({why})", file.display()),
    };
    let shown = document.file_name().unwrap_or(name).to_string();
    match stale {
        Stale::Fail => {
            return Err(Failure::Stale { name: shown, what, is_there: why.is_none() });
        }
        Stale::Refresh if why.is_none() => {}
        _ => {
            output::warn(&format!("document `{shown}`: {what}; {FALLBACK}"));
            return Ok(document);
        }
    }
    drop(document);
    if let Err(failure) = refresh(store, directory, name, &file) {
        output::warn(&format!(
            "document `{shown}`: {what} and cannot be parsed again: {failure}; {FALLBACK}"
        ));
    }
    Ok(store.read::<Document>(name)?)
}

const FALLBACK: &str = "using the stored document (`--stale use` turns this warning off)";

/// Returns a file's time stamp in ns (0 if it is too new) if `document` was parsed from the same
/// contents. Reads the file.
fn stamp_if_same(file: &Path, document: &Document) -> Option<u64> {
    let input = Input::from_path(file).ok()?;
    let contents = input.read(SOURCE_MIB << 20, true).ok()?;
    (contents.source.hash == document.source().hash).then_some(contents.source.modified_ns)
}

/// Parses a source again, unless another process has done so in the meantime.
fn refresh(store: &Store, directory: &Path, name: &str, file: &Path) -> Result<(), Failure> {
    let _lock = lock(directory)?;
    let old = store.read::<Document>(name)?;
    if matches!(SourceState::of(directory, &old), SourceState::Unchanged) {
        return Ok(());
    }
    let kind = old.dom().map(|dom| dom.kind()).ok();
    let (stored, own_name) = (old.source(), old.file_name().map(str::to_string));
    drop(old);
    let input = Input::from_path(file)?;
    let mut contents = input.read(SOURCE_MIB << 20, false)?;
    if contents.source.hash == stored.hash {
        if contents.source.modified_ns != 0 {
            store_time_stamp(store, name, contents.source.modified_ns);
        }
        return Ok(());
    }
    // The file's path has changed if the store was moved together with its files.
    contents.source.path = input.stored_path().to_string();
    let kind = kind.unwrap_or_else(|| contents.kind());
    let tables = contents.parse(kind, name)?;
    let document = NewDocument { tables: &tables, source: &contents.source };
    match own_name {
        Some(own_name) => {
            store.replace::<Document, _>(name, NewNamed { document, name: &own_name })?;
        }
        None => store.replace::<Document, _>(name, document)?,
    }
    tracing::debug!(name, "parsed the source again");
    Ok(())
}

/// Stores the time stamp of a source with unchanged contents. Best effort: without it later
/// processes read the source as well.
pub fn store_time_stamp(store: &Store, name: &str, modified_ns: u64) {
    let committed = store.write::<Document>(name).and_then(|mut session| {
        Document::set_modified(session.root_mut(), modified_ns);
        session.commit()?;
        session.close()
    });
    if let Err(error) = committed {
        tracing::debug!(%error, name, "cannot store the source's time stamp");
    }
}

/// Locks the store's directory against other processes that parse sources again.
fn lock(directory: &Path) -> Result<File, Failure> {
    let failed = |source| Failure::Source { path: directory.to_path_buf(), source };
    let handle = File::open(directory).map_err(failed)?;
    let end = Instant::now() + LOCK_TIMEOUT;
    loop {
        match handle.try_lock() {
            Ok(()) => return Ok(handle),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) if Instant::now() < end => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::Store(Error::Busy {
                    what: format!("store {}", directory.display()),
                    holder: "another process is parsing a source again".to_string(),
                }));
            }
        }
    }
}
