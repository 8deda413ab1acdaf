//! Classifies addresses outside the object: in another object, in another store, or in a program.
//!
//! Exact ranges come first: the store's objects and arenas, a process's memory map, other stores'
//! arenas. Typical address ranges of x86-64 Linux come last. Each classification has a confidence,
//! because numbers and text can look like addresses.

use std::path::{Path, PathBuf};

use crate::address::NamedRange;
use crate::error::{Error, Result};

use super::open::Neighbours;
use super::walk::{ADDRESS_END, ADDRESS_MIN};

/// Confidence that a word is a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Confidence {
    /// The value may as well be a number.
    Possible,
    /// The value is almost certainly a pointer.
    Likely,
    /// The word is a pointer by its type.
    Certain,
}

impl std::fmt::Display for Confidence {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(match self {
            Confidence::Possible => "possible",
            Confidence::Likely => "likely",
            Confidence::Certain => "certain",
        })
    }
}

/// Memory map of a process. Names addresses that are in no object.
///
/// ```
/// let map = evermap::tools::MemoryMap::of_this_process()?;
/// let here = main as fn() as usize as u64;
/// assert!(map.name_of(here).is_some());
/// # fn main() {}
/// # Ok::<(), evermap::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryMap {
    ranges: Vec<NamedRange>,
}

impl MemoryMap {
    /// Returns the current memory map of this process.
    ///
    /// # Errors
    /// `Io` or `NotPermitted` if `/proc` cannot be read.
    pub fn of_this_process() -> Result<MemoryMap> {
        MemoryMap::read(Path::new("/proc/self/maps"))
    }

    /// Returns the current memory map of another process. It must belong to the same user, or this
    /// process must be allowed to debug it.
    ///
    /// # Errors
    /// `Io` if the process does not exist, `NotPermitted` if this process may not debug it.
    pub fn of_process(id: u32) -> Result<MemoryMap> {
        MemoryMap::read(&PathBuf::from(format!("/proc/{id}/maps")))
    }

    fn read(path: &Path) -> Result<MemoryMap> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::from_io(e, "read the memory map", path))?;
        Ok(MemoryMap { ranges: crate::address::parse_maps(&text) })
    }

    /// Returns the name of the mapping at an address: a file's name, `[heap]`, `[stack]` or
    /// `anonymous memory`.
    pub fn name_of(&self, address: u64) -> Option<&str> {
        self.number_of(address).map(|number| self.ranges[number].name.as_str())
    }

    fn number_of(&self, address: u64) -> Option<usize> {
        let at = self.ranges.partition_point(|range| range.start <= address).checked_sub(1)?;
        (address < self.ranges[at].end).then_some(at)
    }
}

/// Target of an address: what it points into. The numbers are indices into [`Ranges`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Target {
    Object(usize),
    NoObject,
    Store(usize),
    Mapping(usize),
    TypicalRange(usize),
    Nowhere,
}

/// Ranges in which Linux places a program's mappings on x86-64. The last field is true if ordinary
/// numbers are common in the range.
const TYPICAL_RANGES: [(u64, u64, &str, bool); 4] = [
    (0x40_0000, 0x1000_0000, "a program at a fixed address", true),
    // Programs are loaded at 0x5555_5555_4000 plus up to 2^40 bytes; the heap follows.
    (0x5555_5555_4000, 0x5700_0000_0000, "a program or its heap", false),
    (0x7e00_0000_0000, 0x7ffc_0000_0000, "a library or mapped memory", false),
    (0x7ffc_0000_0000, ADDRESS_END, "a stack, a library or mapped memory", false),
];

/// Address ranges and their owners.
pub(super) struct Ranges<'a> {
    pub(super) neighbours: &'a Neighbours,
    /// Base, end and directory of arenas of other stores.
    pub(super) stores: Vec<(u64, u64, PathBuf)>,
    pub(super) map: Option<&'a MemoryMap>,
}

impl Ranges<'_> {
    /// Classifies a word that does not point into the object. The confidence is that of a word
    /// whose type is unknown. Returns `None` if the word does not look like an address.
    pub(super) fn target(&self, value: u64) -> Option<(Target, Confidence)> {
        if !(ADDRESS_MIN..ADDRESS_END).contains(&value) {
            return None;
        }
        let likely = match value.is_multiple_of(8) && !is_text(value) {
            true => Confidence::Likely,
            false => Confidence::Possible,
        };
        if let Some(object) = self.neighbours.holder(value) {
            return Some((Target::Object(object), likely));
        }
        if self.neighbours.is_in_arena(value) {
            return Some((Target::NoObject, likely));
        }
        if let Some(number) = self.map.and_then(|map| map.number_of(value)) {
            // The range is exact, so unaligned values count too: they are string literals.
            let confidence = match value < 1 << 32 || is_text(value) {
                true => likely.min(Confidence::Possible),
                false => Confidence::Likely,
            };
            return Some((Target::Mapping(number), confidence));
        }
        let has = |(base, end, _): &(u64, u64, PathBuf)| (*base..*end).contains(&value);
        if let Some(store) = self.stores.iter().position(has) {
            return Some((Target::Store(store), likely));
        }
        let number =
            TYPICAL_RANGES.iter().position(|(base, end, ..)| (*base..*end).contains(&value))?;
        // In a typical range alone, text is not taken for an address.
        if is_text(value) || is_wide_text(value) {
            return None;
        }
        // With a memory map, an address outside of it is unlikely to be a pointer.
        let is_weak = TYPICAL_RANGES[number].3 || self.map.is_some();
        let confidence = if is_weak { Confidence::Possible } else { likely };
        Some((Target::TypicalRange(number), confidence))
    }

    pub(super) fn name_of(&self, target: Target) -> String {
        match target {
            Target::Object(at) => match self.neighbours.objects.get(at) {
                Some((_, _, name)) if name == "the catalog" => name.clone(),
                Some((_, _, name)) => format!("object `{name}`"),
                None => String::new(),
            },
            Target::NoObject => "addresses of the store that belong to no object".to_string(),
            Target::Store(at) => format!("store {}", self.stores[at].2.display()),
            Target::Mapping(at) => {
                self.map.map_or_else(String::new, |map| map.ranges[at].name.clone())
            }
            Target::TypicalRange(at) => format!("looks like {}", TYPICAL_RANGES[at].2),
            Target::Nowhere => "an address that no program uses".to_string(),
        }
    }
}

/// Returns true for text followed by zeros: six bytes of it have the magnitude of an address. The
/// first bytes may be the end of a multi-byte character.
fn is_text(value: u64) -> bool {
    let bytes = value.to_le_bytes();
    let text = &bytes[..8 - value.leading_zeros() as usize / 8];
    let begun = text.iter().take(3).take_while(|byte| (0x80..0xc0).contains(*byte)).count();
    let is_plain = |letter: char| !letter.is_control() || matches!(letter, '\t' | '\n' | '\r');
    str::from_utf8(&text[begun..]).is_ok_and(|text| text.chars().all(is_plain))
}

/// Returns true for two characters of UTF-16 followed by zeros, if both are Latin or in the same
/// block of 256.
fn is_wide_text(value: u64) -> bool {
    let (first, second) = (value as u16, (value >> 16) as u16);
    let is_latin = |unit: u16| matches!(unit, 9 | 10 | 13 | 0x20..0x7f | 0xa0..0x250);
    let has_letter = is_latin(second) || second >= 0x250;
    let is_of_one_block = first >= 0x250 && first >> 8 == second >> 8;
    value < 1 << 32 && has_letter && (is_latin(first) || is_of_one_block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target_of(value: u64) -> Option<(Target, Confidence)> {
        let neighbours = Neighbours::default();
        Ranges { neighbours: &neighbours, stores: Vec::new(), map: None }.target(value)
    }

    #[test]
    fn numbers_text_and_hashes_are_not_addresses() {
        let text = u64::from_le_bytes(*b"a string");
        let short = u64::from_le_bytes(*b"one\0\0\0\0\0");
        for value in [0, 1, 65_535, 1.0f64.to_bits(), (-2.5f64).to_bits(), text, short, u64::MAX] {
            assert_eq!(target_of(value), None, "{value:#x}");
        }
        // Six characters have the magnitude of an address.
        let text = u64::from_le_bytes(*b"ABCDZU\0\0");
        assert_eq!(target_of(text), None);
        let code = u64::from_le_bytes([0x10, 0x91, 0x82, 0x5a, 0x55, 0x55, 0, 0]);
        assert!(matches!(target_of(code), Some((Target::TypicalRange(1), Confidence::Likely))));
        assert!(matches!(
            target_of(0x41_0008),
            Some((Target::TypicalRange(0), Confidence::Possible))
        ));
    }

    #[test]
    fn addresses_of_this_program_are_in_the_typical_ranges() {
        let local = 1u8;
        let heap = Box::new(1u64);
        let code = target_of as fn(u64) -> Option<(Target, Confidence)> as usize as u64;
        let here = [&raw const local as u64 & !7, &raw const *heap as u64, code & !7];
        // The kernel randomizes addresses, and some happen to be text.
        for value in here.into_iter().filter(|value| !is_text(*value)) {
            let (target, confidence) = target_of(value).unwrap();
            assert!(matches!(target, Target::TypicalRange(_)), "{value:#x}");
            assert_eq!(confidence, Confidence::Likely, "{value:#x}");
        }
        let map = MemoryMap::of_this_process().unwrap();
        assert!(map.name_of(here[0]).unwrap().contains("stack") || map.name_of(here[0]).is_some());
        assert!(map.name_of(code).unwrap().contains("evermap"));
    }
}
