//! Lookup in the list of well-known names.
//!
//! The table is built by the compiler, so that neither a parse nor the first query of a process
//! pays for it. Ids of well-known names are the same in every block.

use crate::hash;
use crate::known_names::KNOWN_NAMES;

/// Number of well-known names in this version of the crate.
pub(crate) const KNOWN_COUNT: u32 = KNOWN_NAMES.len() as u32;

const SLOTS: usize = 4096;
const EMPTY: u16 = u16::MAX;

const _: () = assert!(KNOWN_NAMES.len() * 2 < SLOTS);

static TABLE: [u16; SLOTS] = build();

const fn build() -> [u16; SLOTS] {
    let mut table = [EMPTY; SLOTS];
    let mut id = 0;
    while id < KNOWN_NAMES.len() {
        let mut slot = hash::stored(KNOWN_NAMES[id].as_bytes()) as usize % SLOTS;
        while table[slot] != EMPTY {
            slot = (slot + 1) % SLOTS;
        }
        table[slot] = id as u16;
        id += 1;
    }
    table
}

/// The id of a well-known name.
pub(crate) fn find(name: &str) -> Option<u32> {
    let mut slot = hash::stored(name.as_bytes()) as usize % SLOTS;
    loop {
        let id = TABLE[slot];
        if id == EMPTY {
            return None;
        }
        if KNOWN_NAMES[id as usize] == name {
            return Some(u32::from(id));
        }
        slot = (slot + 1) % SLOTS;
    }
}

/// The spelling of a well-known name.
pub(crate) fn name(id: u32) -> Option<&'static str> {
    KNOWN_NAMES.get(id as usize).copied()
}

/// The id of a name that must be in the list; evaluated by the compiler.
const fn must(name: &str) -> u32 {
    let mut id = 0;
    while id < KNOWN_NAMES.len() {
        if same(KNOWN_NAMES[id].as_bytes(), name.as_bytes()) {
            return id as u32;
        }
        id += 1;
    }
    panic!("not a well-known name")
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

pub(crate) const ID: u32 = must("id");
pub(crate) const CLASS: u32 = must("class");
pub(crate) const TITLE: u32 = must("title");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_at_its_index() {
        for (id, known) in KNOWN_NAMES.iter().enumerate() {
            assert_eq!(find(known), Some(id as u32), "{known} occurs twice");
        }
        assert_eq!(find("no-such-name"), None);
    }

    /// Blocks store these ids; the list may only grow at its end.
    #[test]
    fn ids_of_well_known_names_never_change() {
        assert_eq!(
            (name(0), find("div"), find("id"), find("class")),
            (Some("a"), Some(DIV), Some(ID), Some(CLASS))
        );
        const DIV: u32 = must("div");
        let digest = KNOWN_NAMES[..1000]
            .iter()
            .fold(0u32, |sum, name| sum.rotate_left(5) ^ hash::stored(name.as_bytes()));
        assert_eq!(digest, 4_285_970_791, "names moved");
    }
}
