//! Handles documents whose source has changed since they were parsed.
//!
//! The test costs one `stat`. After a change one process parses the source again, under a lock of
//! the store's directory. Other processes wait for it, up to a timeout.
//!
//! Parsing again discards the stored version. In a backup that version is the purpose, and in a
//! moved store the file at the document's path may be another one. There it needs
//! `--stale refresh`.

use std::fs::{FileType, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use evermap::tools::original_of_backup;
use evermap::{Snapshot, Store};
use evermap_dom::{Document, NewDocument, NewNamed};

use crate::failure::Failure;
use crate::limits::SOURCE_MIB;
use crate::names;
use crate::output;
use crate::refresh_lock::lock;
use crate::source::{Input, STANDARD_INPUT, is_unchanged};

/// Policy for documents whose source has changed or is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Stale {
    /// Like refresh; in a backup, or if the store was moved, like warn
    #[default]
    Auto,
    /// Parse the source again; warn if that fails
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
    /// The path leads to something that has no contents to compare, such as a directory or a FIFO.
    Unusable {
        file: PathBuf,
        what: &'static str,
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
        let Some(file) = file_of(directory, document) else { return SourceState::NoSource };
        match std::fs::metadata(&file) {
            Ok(metadata) if !metadata.is_file() => {
                SourceState::Unusable { file, what: kind_of(metadata.file_type()) }
            }
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
            SourceState::Unusable { .. } => "unusable",
            SourceState::Unreachable { .. } => "unreachable",
        }
    }
}

/// Returns the name of a file type that cannot be a source.
fn kind_of(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

/// Returns the path at which a document's source is looked for. `None` without a source file.
fn file_of(directory: &Path, document: &Document) -> Option<PathBuf> {
    let stored = document.source().path;
    match document.file_name() {
        _ if stored == STANDARD_INPUT => None,
        Some(name) => Some(names::file_of(directory, name)),
        None => Some(PathBuf::from(stored)).filter(|path| path.is_absolute()),
    }
}

/// If the store was moved or copied: returns the path at which a document's source is looked for
/// now, and the one that it had when it was parsed.
pub fn moved_source(directory: &Path, document: &Document) -> Option<(PathBuf, PathBuf)> {
    let file = file_of(directory, document)?;
    let earlier = earlier_place(&file, document)?;
    Some((names::absolute(&file).unwrap_or(file), earlier))
}

/// Returns the path that the document's source had when it was parsed, if `file` is another file.
fn earlier_place(file: &Path, document: &Document) -> Option<PathBuf> {
    let before = PathBuf::from(document.source().path);
    let now = names::absolute(file).ok()?;
    let same = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    let is_same_file = || {
        let [now, before] = [&now, &before].map(|path| std::fs::metadata(path).ok());
        now.as_ref().map(same).is_some_and(|now| before.as_ref().map(same) == Some(now))
    };
    (before.is_absolute() && before != now && !is_same_file()).then_some(before)
}

/// Why `auto` does not parse a source again.
enum Keep {
    /// The store is a backup of the store at this path.
    Backup(PathBuf),
    /// The source had this path when it was parsed.
    Moved(PathBuf),
}

impl Keep {
    fn of(directory: &Path, file: &Path, document: &Document) -> Option<Keep> {
        match original_of_backup(directory) {
            Ok(None) => earlier_place(file, document).map(Keep::Moved),
            Ok(Some(original)) => Some(Keep::Backup(original)),
            // The mark is there, and cannot be read.
            Err(_) => Some(Keep::Backup(PathBuf::from("another store"))),
        }
    }

    fn reason(&self) -> String {
        match self {
            Keep::Backup(original) => {
                format!("the store is a backup of {}", original.display())
            }
            Keep::Moved(before) => {
                format!("the store was moved: the source was {}", before.display())
            }
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
    let (file, problem) = match SourceState::of(directory, &document) {
        SourceState::NoSource | SourceState::Unchanged => return Ok(document),
        SourceState::Unsure { file } => match stamp_if_same(&file, &document) {
            // Stores the time stamp, so that later processes need not read the file.
            Some(modified_ns)
                if modified_ns != 0 && may_refresh(directory, &file, &document, stale) =>
            {
                // A process cannot write an object that it has open for reading.
                drop(document);
                store_time_stamp(store, directory, name, modified_ns);
                return Ok(store.read::<Document>(name)?);
            }
            Some(_) => return Ok(document),
            None => (file, None),
        },
        SourceState::Changed { file } => (file, None),
        SourceState::Unusable { file, what } => (file, Some(format!("is {what}, not a file"))),
        SourceState::Unreachable { file, why } if why.kind() == io::ErrorKind::NotFound => {
            (file, Some("is gone".to_string()))
        }
        SourceState::Unreachable { file, why } => (file, Some(format!("cannot be read ({why})"))),
    };
    let is_there = problem.is_none();
    let problem = problem.unwrap_or_else(|| "has changed".to_string());
    let mut what = format!("its source {} {problem}", file.display());
    let shown = names::display_name(store, name);
    let keep = match stale {
        Stale::Auto => Keep::of(directory, &file, &document),
        _ => None,
    };
    if let Some(keep) = &keep {
        what = format!("{what}; {}", keep.reason());
    }
    match stale {
        Stale::Fail => return Err(Failure::Stale { name: shown, what, is_there }),
        Stale::Auto | Stale::Refresh if is_there && keep.is_none() => {}
        _ => {
            let remedy = match keep {
                Some(_) if is_there => "`--stale refresh` parses that source, ",
                _ => "",
            };
            output::warn(&format!(
                "document `{shown}`: {what}; {USES_STORED} ({remedy}{TURN_OFF})"
            ));
            return Ok(document);
        }
    }
    drop(document);
    if let Err(failure) = refresh(store, directory, name, &file) {
        output::warn(&format!(
            "document `{shown}`: {what} and cannot be parsed again: {}; {USES_STORED} \
             ({TURN_OFF})",
            cause(&failure)
        ));
    }
    Ok(store.read::<Document>(name)?)
}

const USES_STORED: &str = "using the stored document";
const TURN_OFF: &str = "`--stale use` turns this warning off";

/// Returns the cause of a failed refresh. The remedies of `parse` are options that a query lacks.
fn cause(failure: &Failure) -> String {
    match failure {
        Failure::NotMarkup { format, .. } => {
            format!("it is {}, not HTML or XML", format.description)
        }
        Failure::TooLong { path, bytes_max } => format!(
            "it is longer than {} MiB: parse it with `evermap parse --limit MIB {}`",
            bytes_max >> 20,
            path.display()
        ),
        other => other.to_string(),
    }
}

/// Returns true if the policy allows a change of the stored document.
fn may_refresh(directory: &Path, file: &Path, document: &Document, stale: Stale) -> bool {
    match stale {
        Stale::Refresh => true,
        Stale::Auto => Keep::of(directory, file, document).is_none(),
        Stale::Warn | Stale::Use | Stale::Fail => false,
    }
}

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
            store_time_stamp(store, directory, name, contents.source.modified_ns);
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
///
/// Stores nothing while a rebase can be undone, because an undo refuses to lose a later commit.
fn store_time_stamp(store: &Store, directory: &Path, name: &str, modified_ns: u64) {
    if has_undo(directory) {
        return;
    }
    let committed = store.write::<Document>(name).and_then(|mut session| {
        Document::set_modified(session.root_mut(), modified_ns);
        session.commit()?;
        session.close()
    });
    if let Err(error) = committed {
        tracing::debug!(%error, name, "cannot store the source's time stamp");
    }
}

/// Returns true if the store's directory has the old files of a rebase.
fn has_undo(directory: &Path) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name())
        .any(|name| name.as_encoded_bytes().starts_with(b"rebase-"))
}
