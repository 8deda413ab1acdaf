//! Documents whose source has changed since they were parsed.
//!
//! A look costs one `stat`. Only when that tells of a change is anything else done: one process parses
//! the source again, under a lock of the store's directory, and the others wait for it, for a while.

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
use crate::source::{Input, is_as_kept};

/// How long a process waits for another one that parses the source.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// Between two looks at the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// What is done about a document whose source has changed or is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Stale {
    /// Parse the source again; warn where that is not possible
    #[default]
    Refresh,
    /// Answer from the document, and say on stderr that it is older than its source
    Warn,
    /// Answer from the document
    Use,
    /// Fail
    Fail,
}

/// How a document and its source stand to each other.
#[derive(Debug)]
pub enum Standing {
    /// It has no source that could be looked at: it came from standard input, or from the network.
    NoSource,
    /// Size and time stamp are those that are kept.
    Unchanged,
    /// The time stamp was too young to be kept: only the contents tell.
    Unsure {
        file: PathBuf,
    },
    Changed {
        file: PathBuf,
    },
    /// It is not there, or cannot be looked at.
    Unreachable {
        file: PathBuf,
        why: io::Error,
    },
}

impl Standing {
    /// Looks at the source: one `stat`.
    pub fn of(directory: &Path, document: &Document) -> Standing {
        let kept = document.source();
        let file = match document.file_name() {
            Some(name) => names::file_of(directory, name),
            None if kept.path.starts_with('/') => PathBuf::from(&kept.path),
            None => return Standing::NoSource,
        };
        match std::fs::metadata(&file) {
            Ok(metadata) if !metadata.is_file() => Standing::NoSource,
            Ok(metadata) if is_as_kept(&kept, &metadata) => Standing::Unchanged,
            Ok(metadata) if is_unsure(kept.modified_ns, kept.size_bytes, &metadata) => {
                Standing::Unsure { file }
            }
            Ok(_) => Standing::Changed { file },
            Err(why) => Standing::Unreachable { file, why },
        }
    }

    /// For `info`.
    pub fn in_words(&self) -> &'static str {
        match self {
            Standing::NoSource => "none",
            Standing::Unchanged => "unchanged",
            Standing::Unsure { .. } => "unsure",
            Standing::Changed { .. } => "changed",
            Standing::Unreachable { .. } => "unreachable",
        }
    }
}

fn is_unsure(kept_ns: u64, kept_bytes: u64, metadata: &Metadata) -> bool {
    kept_ns == 0 && kept_bytes == metadata.len()
}

/// The document `name` as `stale` wants it: the one that was opened, or a newer one.
///
/// # Errors
/// `Stale` with [`Stale::Fail`]; what opening it again returns.
pub fn settle(
    store: &Store,
    directory: &Path,
    name: &str,
    document: Snapshot<Document>,
    stale: Stale,
) -> Result<Snapshot<Document>, Failure> {
    if stale == Stale::Use {
        return Ok(document);
    }
    let (file, why) = match Standing::of(directory, &document) {
        Standing::NoSource | Standing::Unchanged => return Ok(document),
        Standing::Unsure { file } => match stamp_if_same(&file, &document) {
            // Noting its time stamp saves the next process from reading it.
            Some(modified_ns) if modified_ns != 0 && stale == Stale::Refresh => {
                // A process cannot write an object that it has open for reading.
                drop(document);
                note_stamp(store, name, modified_ns);
                return Ok(store.read::<Document>(name)?);
            }
            Some(_) => return Ok(document),
            None => (file, None),
        },
        Standing::Changed { file } => (file, None),
        Standing::Unreachable { file, why } => (file, Some(why)),
    };
    let what = match &why {
        None => format!("its source {} has changed since", file.display()),
        Some(why) if why.kind() == io::ErrorKind::NotFound => {
            format!("its source {} is gone", file.display())
        }
        Some(why) => format!("its source {} cannot be looked at ({why})", file.display()),
    };
    let shown = document.file_name().unwrap_or(name).to_string();
    match stale {
        Stale::Fail => {
            return Err(Failure::Stale { name: shown, what, is_there: why.is_none() });
        }
        Stale::Refresh if why.is_none() => {}
        _ => {
            output::warn(&format!("`{shown}`: {what}; {INSTEAD}"));
            return Ok(document);
        }
    }
    drop(document);
    if let Err(failure) = refresh(store, directory, name, &file) {
        output::warn(&format!(
            "`{shown}`: {what}, and it cannot be parsed again: {failure}; {INSTEAD}"
        ));
    }
    Ok(store.read::<Document>(name)?)
}

const INSTEAD: &str = "the answer is from the stored document (`--stale use` does not say so)";

/// The time stamp of a file, 0 while it is too young, if its contents are those that a document was
/// parsed from.
fn stamp_if_same(file: &Path, document: &Document) -> Option<u64> {
    let input = Input::look_at(file).ok()?;
    let contents = input.read(SOURCE_MIB << 20, true).ok()?;
    (contents.source.hash == document.source().hash).then_some(contents.source.modified_ns)
}

/// Parses a source again, unless another process has just done so.
fn refresh(store: &Store, directory: &Path, name: &str, file: &Path) -> Result<(), Failure> {
    let _lock = lock(directory)?;
    let old = store.read::<Document>(name)?;
    if matches!(Standing::of(directory, &old), Standing::Unchanged) {
        return Ok(());
    }
    let kind = old.dom().map(|dom| dom.kind()).ok();
    let (kept, own_name) = (old.source(), old.file_name().map(str::to_string));
    drop(old);
    let input = Input::look_at(file)?;
    let mut contents = input.read(SOURCE_MIB << 20, false)?;
    if contents.source.hash == kept.hash {
        if contents.source.modified_ns != 0 {
            note_stamp(store, name, contents.source.modified_ns);
        }
        return Ok(());
    }
    // The file may have another path by now, as when the store was moved with it.
    contents.source.path = input.kept_path().to_string();
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

/// Notes the time stamp of a source whose contents are the same. Best effort: without it the next
/// process reads the source as well.
pub fn note_stamp(store: &Store, name: &str, modified_ns: u64) {
    let noted = store.write::<Document>(name).and_then(|mut session| {
        Document::set_modified(session.root_mut(), modified_ns);
        session.commit()?;
        session.close()
    });
    if let Err(error) = noted {
        tracing::debug!(%error, name, "did not note the source's time stamp");
    }
}

/// Keeps other processes from parsing sources of this store again.
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
