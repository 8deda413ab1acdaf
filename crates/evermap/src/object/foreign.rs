//! Decides what happens to foreign pointers that a commit finds.
//!
//! The commit engine finds words that look like addresses outside of the object ([`Suspect`]). This
//! file decides which of them matter: those in allocated blocks, except in ranges where the program
//! expects them. They are refused, or reported once for each address. If they are reported, the
//! builds of the programs that they point into are recorded in page 0.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tracing::warn;

use super::code::{Code, LOW_END, Loaded};
use crate::address::AddressSpace;
use crate::alloc::Heap;
use crate::commit::{ForeignPointers, Suspect};
use crate::error::{Error, Result};
use crate::format::Superblock;

/// Addresses reported in one session. Pointers at further addresses are committed without a report.
const REMEMBERED_MAX: usize = 1000;
/// Warnings logged in one session.
const WARNINGS_MAX: usize = 8;

/// A pointer from an object to memory outside of it, as a commit found it.
///
/// It may be a number that looks like an address; `docs/heap.md` says how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignPointer {
    /// Address of the pointer in the object.
    pub at: u64,
    /// The address that it holds.
    pub word: u64,
    /// Name of the mapping that it leads into: `the C heap`, a stack, a file, another store.
    pub into: String,
}

impl fmt::Display for ForeignPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the word at {:#x} holds {:#x}, an address in {}; it is invalid in the next process: {}",
            self.at,
            self.word,
            self.into,
            match self.into.starts_with('/') {
                true => {
                    "copy what it points to into the object, or register the code of a program with a \
                     fixed address"
                }
                false => "allocate what it points to in the object",
            }
        )
    }
}

/// One session's treatment of foreign pointers.
#[derive(Debug)]
pub(crate) struct ForeignCheck {
    action: ForeignPointers,
    space: Arc<AddressSpace>,
    /// Ranges (first and end) in which the program keeps addresses that it updates itself.
    expected: Vec<(u64, u64)>,
    /// Addresses of words that were reported.
    reported: HashSet<u64>,
    found: Vec<ForeignPointer>,
}

impl ForeignCheck {
    pub(crate) fn new(action: ForeignPointers, space: Arc<AddressSpace>) -> ForeignCheck {
        let (expected, reported, found) = (Vec::new(), HashSet::new(), Vec::new());
        ForeignCheck { action, space, expected, reported, found }
    }

    /// Accepts foreign pointers in this range of the object: the program updates them itself.
    pub(crate) fn expect(&mut self, first: u64, bytes: u64) {
        let range = (first, first.saturating_add(bytes));
        if !self.expected.contains(&range) {
            self.expected.push(range);
        }
    }

    /// Returns the pointers reported since the last call.
    pub(crate) fn take(&mut self) -> Vec<ForeignPointer> {
        std::mem::take(&mut self.found)
    }

    /// Judges the suspects of a commit, and records builds in the object's superblock. Returns true
    /// if the superblock changed.
    ///
    /// # Errors
    /// `ForeignPointer`, and `Damaged` for a record that cannot be extended.
    pub(crate) fn judge(
        &mut self,
        suspects: Vec<Suspect>,
        heap: &Heap,
        superblock: &mut Superblock,
        path: &Path,
    ) -> Result<bool> {
        if suspects.is_empty() {
            return Ok(false);
        }
        let arenas = self.space.arenas();
        let is_in = |ranges: &[(u64, u64)], address: u64| {
            ranges.iter().any(|(first, end)| address >= *first && address < *end)
        };
        let loaded = Loaded::now();
        // Most low numbers are not addresses.
        let is_pointer = |s: &Suspect| {
            s.word >= LOW_END || s.word.is_multiple_of(8) || loaded.is_function(s.word)
        };
        let foreign: Vec<Suspect> = suspects
            .into_iter()
            .filter(|s| !is_in(&arenas, s.word) && !is_in(&self.expected, s.at))
            .filter(|s| is_pointer(s) && heap.is_allocated(s.at))
            .collect();
        let Some(first) = foreign.first() else { return Ok(false) };
        if self.action == ForeignPointers::Refuse {
            return Err(Error::ForeignPointer {
                object: superblock.name(),
                count: foreign.len() as u64,
                at: first.at,
                word: first.word,
                into: first.into.to_string(),
            });
        }
        let changed = record_code(&foreign, &loaded, superblock, path)?;
        for Suspect { at, word, into } in foreign {
            if self.reported.len() >= REMEMBERED_MAX || !self.reported.insert(at) {
                continue;
            }
            let pointer = ForeignPointer { at, word, into: into.to_string() };
            if self.reported.len() <= WARNINGS_MAX {
                warn!(object = superblock.name(), "foreign pointer: {pointer}");
            }
            self.found.push(pointer);
        }
        Ok(changed)
    }
}

/// Records the programs and libraries that the pointers lead into. Returns true if the record
/// changed.
fn record_code(
    foreign: &[Suspect],
    loaded: &Loaded,
    superblock: &mut Superblock,
    path: &Path,
) -> Result<bool> {
    let mut in_code = foreign.iter().filter(|s| loaded.at(s.word).is_some()).peekable();
    if in_code.peek().is_none() {
        return Ok(false);
    }
    let Some(mut code) = Code::of(path, superblock)?.or_else(|| Code::new(superblock)) else {
        return Ok(false);
    };
    let mut changed = false;
    for suspect in in_code {
        changed |= code.record(loaded, suspect.at, suspect.word);
    }
    if changed {
        code.put(superblock);
    }
    Ok(changed)
}
