//! What an audit found, as data.

use std::path::PathBuf;

use super::ranges::Confidence;
use crate::tools::report::Severity;

/// What is wrong with a pointer, or notable about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PointerKind {
    /// Leads to something that is no object: a program, its heap or stack, a library.
    Foreign,
    /// Leads into an arena of another store.
    OtherStore,
    /// Leads into the store's addresses, where no object is.
    NoObject,
    /// Leads into another object of the store.
    OtherObject,
    /// Leads into the object, where nothing is allocated.
    Dangling,
    /// Leads into the object's own bookkeeping.
    Metadata,
    /// An owner's pointer that leads into the middle of a block.
    Misplaced,
    /// A container that says more than its block holds, or contradicts itself.
    Broken,
    /// Leads to a block that has another owner: it would be freed twice.
    Shared,
}

impl PointerKind {
    /// As it is written in JSON.
    pub fn word(self) -> &'static str {
        match self {
            PointerKind::Foreign => "foreign",
            PointerKind::OtherStore => "other_store",
            PointerKind::NoObject => "no_object",
            PointerKind::OtherObject => "other_object",
            PointerKind::Dangling => "dangling",
            PointerKind::Metadata => "metadata",
            PointerKind::Misplaced => "misplaced",
            PointerKind::Broken => "broken",
            PointerKind::Shared => "shared",
        }
    }

    pub(super) fn severity(self, confidence: Confidence) -> Severity {
        let is_certain = confidence == Confidence::Certain;
        let is_damage = match self {
            PointerKind::OtherObject => false,
            PointerKind::Foreign | PointerKind::OtherStore => confidence >= Confidence::Likely,
            _ => is_certain,
        };
        if is_damage { Severity::Damage } else { Severity::Suspect }
    }
}

impl std::fmt::Display for PointerKind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(self.word())
    }
}

/// Pointers of one kind that lead to one place.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PointerFinding {
    /// What is wrong with them.
    pub kind: PointerKind,
    /// How bad that is.
    pub severity: Severity,
    /// How sure it is that they are pointers.
    pub confidence: Confidence,
    /// Where they lead.
    pub to: String,
    /// How many there are.
    pub count: u64,
    /// Some of them.
    pub samples: Vec<PointerSample>,
}

/// One pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PointerSample {
    /// How it is reached from the root.
    pub path: String,
    /// Where it lies.
    pub address: u64,
    /// Where it leads.
    pub value: u64,
}

impl PointerSample {
    pub(in crate::tools) fn new(path: String, address: u64, value: u64) -> PointerSample {
        PointerSample { path, address, value }
    }
}

/// Blocks that nothing reaches from the root.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Leaks {
    /// How many.
    pub blocks: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// Those that no other leaked block points at: where leaked structures begin.
    pub heads: u64,
    /// Some of them, heads first.
    pub samples: Vec<LeakSample>,
}

/// One leaked block.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeakSample {
    /// Its first address.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// No other leaked block points at it.
    pub is_head: bool,
}

/// Blocks of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SizeCount {
    /// Bytes of each; of large blocks, the power of two that they are below or at.
    pub block_bytes: u64,
    /// Too large for a slab.
    pub is_large: bool,
    /// Allocated ones.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that nothing reaches.
    pub leaked_blocks: u64,
    /// Their bytes.
    pub leaked_bytes: u64,
}

/// Values of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypeCount {
    /// As the description of the root's type calls it.
    pub name: String,
    /// Values that were met.
    pub values: u64,
    /// Bytes of one, without what it points at.
    pub value_bytes: u64,
}

/// How much is known of what an object holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Typing {
    /// The root's type is described: its pointer fields were followed.
    Typed,
    /// The same; the description is cut, and types behind the cut were read word by word.
    Partly,
    /// Every word that could be an address counted as one.
    Untyped,
}

/// Why what nothing reaches may be no leak: the root leads to no block, and there are others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doubt {
    /// There is no root to begin at.
    NoRoot,
    /// The root was read word by word, and no word of it is an address of a block.
    NoPointers,
    /// By its type, which was followed, the root has no pointer to a block.
    NoPointersByType,
}

impl Doubt {
    /// As it is written in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Doubt::NoRoot => "no_root",
            Doubt::NoPointers => "no_pointers",
            Doubt::NoPointersByType => "no_pointers_by_type",
        }
    }
}

impl std::fmt::Display for Doubt {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(match self {
            Doubt::NoRoot => {
                "nothing is reached, because the object has no root: these blocks may be in use \
                 all the same. Set the root, commit, and audit again"
            }
            Doubt::NoPointers => {
                "the root leads to no block: these may be in use all the same. The root may be \
                 another one than is set; or its pointers are hidden, for only aligned words that \
                 are an address as it is count (no tagged, packed or relative ones)"
            }
            Doubt::NoPointersByType => {
                "by its type the root leads to no block: these may be in use all the same, if \
                 something that its type calls a number is a pointer to them; or they are left \
                 from an older root"
            }
        })
    }
}

/// What an audit found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AuditReport {
    /// The object's name.
    pub object: String,
    /// Its file.
    pub file: PathBuf,
    /// Number of the commit that was read.
    pub sequence: u64,
    /// How its contents were read.
    pub typing: Typing,
    /// There is a root.
    pub has_root: bool,
    /// Allocated blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that the root leads to.
    pub reached_blocks: u64,
    /// Their bytes.
    pub reached_bytes: u64,
    /// The blocks that the root leads to, without its own.
    pub reached_from_root: u64,
    /// Words and pointer fields that were looked at.
    pub looked_at: u64,
    /// Pointers that lead to the middle of a block, which is legal.
    pub interior: u64,
    /// Pointers, the worst first.
    pub findings: Vec<PointerFinding>,
    /// What nothing reaches.
    pub leaks: Leaks,
    /// Blocks by size.
    pub sizes: Vec<SizeCount>,
    /// Values by type, where types are known.
    pub types: Vec<TypeCount>,
    /// Chunks whose bookkeeping contradicts itself: a check says more.
    pub damaged_chunks: u64,
    /// Bytes of memory that the audit's own tables took.
    pub table_bytes: u64,
}

impl AuditReport {
    /// Was anything found that breaks a program?
    pub fn is_damaged(&self) -> bool {
        let is_bad = |finding: &PointerFinding| finding.severity == Severity::Damage;
        self.damaged_chunks > 0 || self.findings.iter().any(is_bad)
    }

    /// Was nothing found at all?
    pub fn is_clean(&self) -> bool {
        self.damaged_chunks == 0 && self.findings.is_empty() && self.leaks.blocks == 0
    }

    /// Why what nothing reaches may be no leak; `None` when there is nothing of the kind, or the
    /// root leads to other blocks.
    ///
    /// ```
    /// use evermap::tools::{AuditOptions, Doubt, audit};
    /// # let directory = tempfile::tempdir()?;
    /// let store = evermap::Store::create_new(directory.path().join("store"))?;
    /// store.create_raw("raw")?;
    /// let mut session = store.write_raw("raw")?;
    /// session.heap().allocate(64, 8)?;
    /// session.commit()?;
    /// let report = audit(store.path(), "raw", &AuditOptions::new())?;
    /// assert_eq!(report.doubt(), Some(Doubt::NoRoot));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn doubt(&self) -> Option<Doubt> {
        if self.leaks.blocks == 0 || self.reached_from_root > 0 {
            return None;
        }
        Some(match (self.has_root, self.typing) {
            (false, _) => Doubt::NoRoot,
            (true, Typing::Untyped) => Doubt::NoPointers,
            (true, _) => Doubt::NoPointersByType,
        })
    }

    /// Pointers of a kind, however sure.
    pub fn count(&self, kind: PointerKind) -> u64 {
        self.findings.iter().filter(|f| f.kind == kind).map(|f| f.count).sum()
    }
}
