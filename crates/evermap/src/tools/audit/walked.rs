//! Vocabulary of a walk: what a block contains, which words are pointers, and the tables that a
//! walk leaves behind.

use super::blocks::{Blocks, Location, NUMBERS_END};
use super::schema::{Schema, TypeNumber};

/// Marker for the root in place of a block number.
pub(in crate::tools) const ROOT: u32 = NUMBERS_END;
/// Parent of blocks that were not reached.
pub(super) const UNREACHED: u32 = NUMBERS_END + 1;

/// Content of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::tools) enum Content {
    /// Unknown: every word may be a pointer.
    Raw,
    /// Bytes without pointers.
    Bytes,
    /// One value.
    Value(TypeNumber),
    /// An array of values.
    Elements(TypeNumber),
    /// Entries of a map, by the types of key and value.
    Entries(TypeNumber, TypeNumber),
    /// A node of a tree, by the types of key and value, and its level. Leaves have level 1.
    Node(TypeNumber, TypeNumber, u64),
}

/// Position of a word: the block that holds it (or [`ROOT`]) and the offset in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tools) struct Spot {
    pub(in crate::tools) holder: u32,
    pub(in crate::tools) offset: u64,
}

/// Word that is a pointer or may be one.
#[derive(Clone, Copy, Debug)]
pub(in crate::tools) struct Pointer {
    pub(in crate::tools) spot: Spot,
    /// Address of the word.
    pub(in crate::tools) address: u64,
    pub(in crate::tools) value: u64,
    /// Location that it points to.
    pub(in crate::tools) location: Location,
    pub(in crate::tools) evidence: Evidence,
}

/// Evidence that a word is a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tools) enum Evidence {
    /// By its type it is a pointer that owns its target.
    Owner,
    /// By its type it is a pointer.
    Pointer,
    /// Only its value says so.
    Word,
}

/// Defect of an owning pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tools) enum Defect {
    /// The container claims more than the block holds, or its counts are inconsistent.
    Broken,
    /// The block has an owner already.
    Shared,
}

/// Receives the pointers and defects that a walk finds.
pub(in crate::tools) trait Visitor {
    fn pointer(&mut self, pointer: &Pointer);
    fn defect(&mut self, defect: Defect, pointer: &Pointer);
}

/// Result of a walk.
pub(in crate::tools) struct WalkResult {
    pub(in crate::tools) blocks: Blocks,
    pub(in crate::tools) schema: Option<Schema>,
    /// Block that led to each block, [`ROOT`] or [`UNREACHED`].
    pub(super) parents: Vec<u32>,
    /// Offset in the parent in words; `u32::MAX` if it is unknown or larger.
    pub(super) offsets: Vec<u32>,
    /// Index in `kinds` of each block's content.
    pub(super) contents: Vec<u16>,
    pub(super) kinds: Vec<Content>,
    pub(in crate::tools) root_address: u64,
    pub(in crate::tools) root_bytes: u64,
    /// Number of values found, by type.
    pub(in crate::tools) values: Vec<u64>,
    /// Number of pointers into the middle of a block.
    pub(in crate::tools) interior: u64,
    /// Number of words and fields that were examined.
    pub(in crate::tools) looked_at: u64,
}

impl WalkResult {
    /// Returns true if the block was reached.
    pub(in crate::tools) fn is_reached(&self, number: u32) -> bool {
        self.parents.get(number as usize).is_some_and(|parent| *parent != UNREACHED)
    }

    /// Returns the content of a block, if it was reached.
    pub(in crate::tools) fn content(&self, number: u32) -> Option<Content> {
        if !self.is_reached(number) {
            return None;
        }
        self.kinds.get(usize::from(*self.contents.get(number as usize)?)).copied()
    }

    /// Returns the word that led to a block; `None` if unknown, or if the block holds the root.
    pub(in crate::tools) fn led_by(&self, number: u32) -> Option<Spot> {
        let holder = *self.parents.get(number as usize)?;
        let offset = *self.offsets.get(number as usize)?;
        (holder != UNREACHED && offset != u32::MAX)
            .then_some(Spot { holder, offset: u64::from(offset) * 8 })
    }

    /// Memory used by the tables, in bytes.
    pub(in crate::tools) fn memory_bytes(&self) -> u64 {
        self.blocks.memory_bytes() + self.parents.len() as u64 * 10
    }
}
