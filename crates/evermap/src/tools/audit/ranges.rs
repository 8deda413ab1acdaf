//! Where an address leads that is not in the object: to another object, another store, or to what a
//! program has; and how sure that is.

use std::path::{Path, PathBuf};

use crate::address::NamedRange;
use crate::error::{Error, Result};

use super::open::Neighbours;
use super::walk::{ADDRESS_END, ADDRESS_MIN};

/// How sure it is that a word is what it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Confidence {
    /// Ordinary numbers may look like this.
    Possible,
    /// Hardly anything but a pointer looks like this.
    Likely,
    /// Its type says that it is a pointer.
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

/// What a process has where: names for addresses that lie in no object.
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
    /// What this process has mapped now.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn of_this_process() -> Result<MemoryMap> {
        MemoryMap::read(Path::new("/proc/self/maps"))
    }

    /// What another process has mapped now: one of the same user, or for a debugger.
    ///
    /// # Errors
    /// `Io` when there is no such process, `NotPermitted` when it is somebody else's.
    pub fn of_process(id: u32) -> Result<MemoryMap> {
        MemoryMap::read(&PathBuf::from(format!("/proc/{id}/maps")))
    }

    fn read(path: &Path) -> Result<MemoryMap> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::from_io(e, "read the memory map", path))?;
        Ok(MemoryMap { ranges: crate::address::parse_maps(&text) })
    }

    /// What lies at an address: a file's name, `[heap]`, `[stack]`, `anonymous memory`.
    pub fn name_of(&self, address: u64) -> Option<&str> {
        self.number_of(address).map(|number| self.ranges[number].name.as_str())
    }

    fn number_of(&self, address: u64) -> Option<usize> {
        let at = self.ranges.partition_point(|range| range.start <= address).checked_sub(1)?;
        (address < self.ranges[at].end).then_some(at)
    }
}

/// Where an address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Target {
    Object(usize),
    NoObject,
    Store(usize),
    Mapping(usize),
    TypicalRange(usize),
    Nowhere,
}

/// Ranges in which Linux puts a program's things on x86-64; which of them hold ordinary numbers too.
const TYPICAL_RANGES: [(u64, u64, &str, bool); 4] = [
    (0x40_0000, 0x1000_0000, "a program at a fixed address", true),
    // The program's place is 0x5555_5555_4000 and up to 2^40 bytes more; its heap is behind it.
    (0x5555_5555_4000, 0x5700_0000_0000, "a program or its heap", false),
    (0x7e00_0000_0000, 0x7ffc_0000_0000, "a library or mapped memory", false),
    (0x7ffc_0000_0000, ADDRESS_END, "a stack, a library or mapped memory", false),
];

/// Who has which addresses.
pub(super) struct Ranges<'a> {
    pub(super) neighbours: &'a Neighbours,
    /// Base, end and directory of arenas of other stores.
    pub(super) stores: Vec<(u64, u64, PathBuf)>,
    pub(super) map: Option<&'a MemoryMap>,
}

impl Ranges<'_> {
    /// Where a word leads that does not lead into the object, and how sure that is if only its
    /// value says so; `None` when it looks like no address.
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
            // In a range of its own size, and not by the order of magnitude: unaligned ones are
            // string literals.
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
        // By its order of magnitude alone, text is no address.
        if is_text(value) || is_wide_text(value) {
            return None;
        }
        // Who has the process can say that it is none of that one's.
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
            Target::NoObject => "addresses of the store that no object has".to_string(),
            Target::Store(at) => format!("store {}", self.stores[at].2.display()),
            Target::Mapping(at) => {
                self.map.map_or_else(String::new, |map| map.ranges[at].name.clone())
            }
            Target::TypicalRange(at) => format!("looks like {}", TYPICAL_RANGES[at].2),
            Target::Nowhere => "no address that a program has".to_string(),
        }
    }
}

/// Six bytes of text with zeros behind them have the size of an address. The text may begin before
/// them, within a letter of several bytes.
fn is_text(value: u64) -> bool {
    let bytes = value.to_le_bytes();
    let text = &bytes[..8 - value.leading_zeros() as usize / 8];
    let begun = text.iter().take(3).take_while(|byte| (0x80..0xc0).contains(*byte)).count();
    let is_plain = |letter: char| !letter.is_control() || matches!(letter, '\t' | '\n' | '\r');
    str::from_utf8(&text[begun..]).is_ok_and(|text| text.chars().all(is_plain))
}

/// Two letters of UTF-16 with zeros behind them: both Latin, or of one block, or a blank before one.
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
    fn numbers_text_and_hashes_are_no_addresses() {
        let text = u64::from_le_bytes(*b"a string");
        let short = u64::from_le_bytes(*b"one\0\0\0\0\0");
        for value in [0, 1, 65_535, 1.0f64.to_bits(), (-2.5f64).to_bits(), text, short, u64::MAX] {
            assert_eq!(target_of(value), None, "{value:#x}");
        }
        // Six characters have the size of an address, and are text.
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
    fn what_this_program_has_is_in_the_ranges_that_programs_have() {
        let local = 1u8;
        let heap = Box::new(1u64);
        let code = target_of as fn(u64) -> Option<(Target, Confidence)> as usize as u64;
        let here = [&raw const local as u64 & !7, &raw const *heap as u64, code & !7];
        // The kernel chooses addresses at random, and some have the bytes of a text.
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
