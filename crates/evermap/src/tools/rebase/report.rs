//! Data types of the reports of a rebase, an import and an undo.
//!
//! The words of [`HitKind::word`] are part of the JSON output.

use std::path::PathBuf;

use crate::tools::audit::{PointerSample, Typing};

/// Reason for which a word counts as an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum HitKind {
    /// By its type.
    Typed,
    /// By its value: the beginning of an allocated block of the object.
    Beginning,
    /// By its value: in the middle of an allocated block of the object.
    Inside,
    /// By its value: in the object, where nothing is allocated.
    NotAllocated,
    /// By its value: in the object's metadata.
    Bookkeeping,
    /// By its value: in another object of the store.
    OtherObject,
}

impl HitKind {
    /// Returns the word for it in JSON.
    pub fn word(self) -> &'static str {
        match self {
            HitKind::Typed => "typed",
            HitKind::Beginning => "beginning",
            HitKind::Inside => "inside",
            HitKind::NotAllocated => "not_allocated",
            HitKind::Bookkeeping => "bookkeeping",
            HitKind::OtherObject => "other_object",
        }
    }
}

/// Rewritten words of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hit {
    /// Reason for which they count as addresses.
    pub kind: HitKind,
    /// Number of words.
    pub count: u64,
    /// The first of them.
    pub samples: Vec<PointerSample>,
}

/// Relocation of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Relocation {
    /// Name of the object.
    pub object: String,
    /// Extent of type information that was used.
    pub typing: Typing,
    /// Rewritten words, by kind.
    pub moved: Vec<Hit>,
    /// Number of words that look like old addresses but stay, because they are not pointers by type
    /// or are in blocks that cannot be reached.
    pub kept: u64,
    /// The first of them.
    pub kept_samples: Vec<PointerSample>,
}

impl Relocation {
    pub(super) fn new(object: &str, typing: Typing) -> Relocation {
        let object = object.to_string();
        Relocation { object, typing, moved: Vec::new(), kept: 0, kept_samples: Vec::new() }
    }

    /// Returns the number of rewritten words of one kind.
    pub fn count(&self, kind: HitKind) -> u64 {
        self.moved.iter().filter(|hit| hit.kind == kind).map(|hit| hit.count).sum()
    }
}

/// Result of a rebase or a dry run.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RebaseReport {
    /// The store's directory.
    pub directory: PathBuf,
    /// Base and length of the store's old arenas.
    pub from: Vec<(u64, u64)>,
    /// New first address; `None` for a dry run without a requested address.
    pub to: Option<u64>,
    /// Base, length and directory of other stores' arenas that overlap the requested addresses,
    /// according to the user's arena registry. No process can open both stores.
    pub met: Vec<(u64, u64, PathBuf)>,
    /// Relocation of each object.
    pub objects: Vec<Relocation>,
    /// Names of the guest objects, which are not rewritten.
    pub guests: Vec<String>,
    /// Directory of the old files; `None` for a dry run.
    pub kept_in: Option<PathBuf>,
}

/// Result of an undo.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UndoReport {
    /// The store's directory.
    pub directory: PathBuf,
    /// Name of the directory of the old files: `rebase-<time>`.
    pub undone: String,
    /// Base and length of the store's arenas after the undo.
    pub arenas: Vec<(u64, u64)>,
}
