//! Data types of an audit's report: findings, leaks, sizes, types and doubts.
//!
//! The words of [`PointerKind::word`] and [`Doubt::word`] are part of the JSON output, and the
//! exit code of `evermap store audit` depends on the severity of the findings.

use std::path::PathBuf;

use super::ranges::Confidence;
use crate::tools::report::Severity;

/// Kind of a finding about a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PointerKind {
    /// Leads out of all stores: into a program, its heap or stack, or a library.
    Foreign,
    /// Leads into an arena of another store.
    OtherStore,
    /// Leads into the store's addresses, but into no object.
    NoObject,
    /// Leads into another object of the store.
    OtherObject,
    /// Leads into the object, where nothing is allocated.
    Dangling,
    /// Leads into the object's metadata.
    Metadata,
    /// An owning pointer that leads into the middle of a block.
    Misplaced,
    /// A container that is inconsistent, or claims more than its block can hold.
    Broken,
    /// Leads to a block that another pointer owns: it would be freed twice.
    Shared,
}

impl PointerKind {
    /// Returns the word for it in JSON.
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

/// Pointers of one kind with the same target.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PointerFinding {
    /// Kind of the finding.
    pub kind: PointerKind,
    /// Severity.
    pub severity: Severity,
    /// Confidence that these words are pointers.
    pub confidence: Confidence,
    /// Description of the target.
    pub to: String,
    /// Number of pointers.
    pub count: u64,
    /// The first of them.
    pub samples: Vec<PointerSample>,
}

/// One pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PointerSample {
    /// Path from the root.
    pub path: String,
    /// Address of the pointer.
    pub address: u64,
    /// Value of the pointer.
    pub value: u64,
}

impl PointerSample {
    pub(in crate::tools) fn new(path: String, address: u64, value: u64) -> PointerSample {
        PointerSample { path, address, value }
    }
}

/// Blocks that cannot be reached from the root.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Leaks {
    /// Number of blocks.
    pub blocks: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Blocks that no other leaked block points at. Each is the start of a leaked structure.
    pub heads: u64,
    /// Some of the blocks, heads first.
    pub samples: Vec<LeakSample>,
}

/// One leaked block.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeakSample {
    /// First address.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// True if no other leaked block points at it.
    pub is_head: bool,
}

/// Blocks of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SizeCount {
    /// Size of each block in bytes. For large blocks, the size rounded up to a power of two.
    pub block_bytes: u64,
    /// True for blocks that are too large for a slab.
    pub is_large: bool,
    /// Number of allocated blocks.
    pub blocks: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Number of leaked blocks.
    pub leaked_blocks: u64,
    /// Their size in bytes.
    pub leaked_bytes: u64,
}

/// Values of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypeCount {
    /// Name of the type in the description of the root's type.
    pub name: String,
    /// Number of values found.
    pub values: u64,
    /// Size of one value in bytes, without the blocks it points to.
    pub value_bytes: u64,
}

/// Extent of type information for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Typing {
    /// The root's type is described, so its pointer fields were followed.
    Typed,
    /// The description is truncated. Types missing in it were read word by word.
    Partly,
    /// No type is described. Every word that could be an address counted as one.
    Untyped,
}

/// Reason to doubt that the unreached blocks are leaks. Given if the root leads to no other block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doubt {
    /// The object has no root.
    NoRoot,
    /// The root was read word by word, and no word is the address of a block.
    NoPointers,
    /// By its type, the root has no pointer to a block.
    NoPointersByType,
}

impl Doubt {
    /// Returns the word for it in JSON.
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
                "no block is reached because the object has no root. The blocks may still be in \
                 use: set the root, commit, and audit again"
            }
            Doubt::NoPointers => {
                "the root leads to no block, but the blocks may still be in use: the wrong root \
                 may be set, or its pointers are hidden. Only aligned words that are plain \
                 addresses count (no tagged, packed or relative pointers)"
            }
            Doubt::NoPointersByType => {
                "by its type the root leads to no block, but the blocks may still be in use if a \
                 field with the type of a number holds a pointer to them. Or they are left from \
                 an older root"
            }
        })
    }
}

/// Report of an audit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AuditReport {
    /// Name of the object.
    pub object: String,
    /// File of the object.
    pub file: PathBuf,
    /// Number of the commit that was read.
    pub sequence: u64,
    /// Extent of type information that was used.
    pub typing: Typing,
    /// True if the object has a root.
    pub has_root: bool,
    /// Number of allocated blocks.
    pub blocks: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Number of blocks reached from the root.
    pub reached_blocks: u64,
    /// Their size in bytes.
    pub reached_bytes: u64,
    /// Number of blocks reached from the root, without the root's own block.
    pub reached_from_root: u64,
    /// Number of words and pointer fields that were examined.
    pub looked_at: u64,
    /// Number of pointers into the middle of a block, which is legal.
    pub interior: u64,
    /// Findings about pointers, the most severe first.
    pub findings: Vec<PointerFinding>,
    /// Blocks that were not reached.
    pub leaks: Leaks,
    /// Allocated blocks by size.
    pub sizes: Vec<SizeCount>,
    /// Values by type, as far as types are known.
    pub types: Vec<TypeCount>,
    /// Number of chunks with inconsistent metadata. A check reports the details.
    pub damaged_chunks: u64,
    /// Memory used by the audit's tables, in bytes.
    pub table_bytes: u64,
}

impl AuditReport {
    /// Returns true if a program that uses the object would break.
    pub fn is_damaged(&self) -> bool {
        let is_bad = |finding: &PointerFinding| finding.severity == Severity::Damage;
        self.damaged_chunks > 0 || self.findings.iter().any(is_bad)
    }

    /// Returns true if there are neither findings nor leaks.
    pub fn is_clean(&self) -> bool {
        self.damaged_chunks == 0 && self.findings.is_empty() && self.leaks.blocks == 0
    }

    /// Returns the reason to doubt that unreached blocks are leaks. `None` if there are none, or if
    /// the root leads to other blocks.
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

    /// Returns the number of pointers of a kind, of any confidence.
    pub fn count(&self, kind: PointerKind) -> u64 {
        self.findings.iter().filter(|f| f.kind == kind).map(|f| f.count).sum()
    }
}
