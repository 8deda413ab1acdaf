//! What a rebase (or an import) did to pointers, as data.

use std::path::PathBuf;

use crate::tools::audit::{PointerSample, Typing};

/// How it was decided that a word is an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum HitKind {
    /// Its type says so.
    Typed,
    /// By its value: the beginning of an allocated block of the object.
    Beginning,
    /// By its value: in the middle of an allocated block of the object.
    Inside,
    /// By its value: in the object, where nothing is allocated.
    NotAllocated,
    /// By its value: in the object's own bookkeeping.
    Bookkeeping,
    /// By its value: in another object of the store.
    OtherObject,
}

impl HitKind {
    /// As it is written in JSON.
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

/// Words of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hit {
    /// How they were recognised.
    pub kind: HitKind,
    /// How many there are.
    pub count: u64,
    /// Some of them.
    pub samples: Vec<PointerSample>,
}

/// What happens to one object's words.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Relocation {
    /// The object's name.
    pub object: String,
    /// How much is known of what it holds.
    pub typing: Typing,
    /// Words that are rewritten.
    pub moved: Vec<Hit>,
    /// Words that look like addresses of the old place and stay, because the object's type says
    /// that they are none, or because nothing reaches them.
    pub kept: u64,
    /// Some of those.
    pub kept_samples: Vec<PointerSample>,
}

impl Relocation {
    pub(super) fn new(object: &str, typing: Typing) -> Relocation {
        let object = object.to_string();
        Relocation { object, typing, moved: Vec::new(), kept: 0, kept_samples: Vec::new() }
    }

    /// Words of one kind.
    pub fn count(&self, kind: HitKind) -> u64 {
        self.moved.iter().filter(|hit| hit.kind == kind).map(|hit| hit.count).sum()
    }
}

/// What a rebase did, or would do.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RebaseReport {
    /// The store's directory.
    pub directory: PathBuf,
    /// Base and bytes of the arenas that the store had.
    pub from: Vec<(u64, u64)>,
    /// The first address that it has now; `None` for a dry run that was told none.
    pub to: Option<u64>,
    /// Base, bytes and directory of the arenas of other stores that meet the place that was asked
    /// for, by the user's arena registry: no process can have both open.
    pub met: Vec<(u64, u64, PathBuf)>,
    /// Each object that moves.
    pub objects: Vec<Relocation>,
    /// The names of guest objects, which stay as they are: their addresses are a guest's.
    pub guests: Vec<String>,
    /// Where the old files are; `None` for a dry run.
    pub kept_in: Option<PathBuf>,
}

/// What an undo did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UndoReport {
    /// The store's directory.
    pub directory: PathBuf,
    /// What the kept files were called.
    pub undone: String,
    /// Base and bytes of the arenas that the store has again.
    pub arenas: Vec<(u64, u64)>,
}
