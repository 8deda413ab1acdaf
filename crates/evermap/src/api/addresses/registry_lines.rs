//! Text format of the arena registry: a heading, then one line per arena.
//!
//! ```text
//! evermap arenas 1
//! 0x2a4dc0000000 0x1000000000 /home/me/.local/share/evermap/store
//! ```
//!
//! A line has base, length and the store's directory, separated by one space. In the directory,
//! `%` and every byte that is not a printable ASCII character is written as `%` and two hexadecimal
//! digits, so that any path is one word. Readers skip lines that they cannot parse.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// The first line.
pub(in crate::api) const HEADER: &str = "evermap arenas 1\n";

/// Kind of file, according to its first line.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::api) enum Heading {
    Known,
    /// Empty or all zeros: never written, or lost in a power failure.
    Unwritten,
    Foreign,
}

pub(in crate::api) fn heading_of(head: &[u8]) -> Heading {
    if head == HEADER.as_bytes() {
        Heading::Known
    } else if head.iter().all(|byte| *byte == 0) {
        Heading::Unwritten
    } else {
        Heading::Foreign
    }
}

/// An arena of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::api) struct Entry {
    pub(in crate::api) base: u64,
    pub(in crate::api) length: u64,
    /// Absolute.
    pub(in crate::api) store: PathBuf,
}

impl Entry {
    pub(in crate::api) fn line(&self) -> String {
        let mut line = format!("{:#x} {:#x} ", self.base, self.length);
        for &byte in self.store.as_os_str().as_bytes() {
            match byte {
                b'%' => line += "%25",
                0x21..=0x7e => line.push(byte.into()),
                // Writing to a string cannot fail.
                _ => drop(write!(line, "%{byte:02x}")),
            }
        }
        line.push('\n');
        line
    }

    fn parse(line: &[u8]) -> Option<Entry> {
        let mut words = line.split(|byte| *byte == b' ');
        let base = number(words.next()?)?;
        let length = number(words.next()?)?;
        let store = path(words.next()?)?;
        let is_whole = words.next().is_none() && store.is_absolute();
        (is_whole && length > 0 && base.checked_add(length).is_some()).then_some(Entry {
            base,
            length,
            store,
        })
    }
}

/// Parses the valid lines.
pub(in crate::api) fn parse_entries(text: &[u8]) -> Vec<Entry> {
    text.split(|byte| *byte == b'\n').filter_map(Entry::parse).collect()
}

fn number(word: &[u8]) -> Option<u64> {
    let digits = word.strip_prefix(b"0x").filter(|d| d.iter().all(u8::is_ascii_hexdigit))?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn path(mut word: &[u8]) -> Option<PathBuf> {
    let mut bytes = Vec::with_capacity(word.len());
    while let [byte, rest @ ..] = word {
        word = rest;
        bytes.push(match (byte, rest) {
            (b'%', [high, low, rest @ ..]) => {
                let digit = |d: u8| char::from(d).to_digit(16).map(|value| value as u8);
                word = rest;
                digit(*high)? << 4 | digit(*low)?
            }
            (0x21..=0x7e, _) if *byte != b'%' => *byte,
            _ => return None,
        });
    }
    // A path cannot contain a zero byte.
    (!bytes.contains(&0)).then(|| OsString::from_vec(bytes).into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_has_the_place_and_store_of_an_arena() {
        let store = OsString::from_vec(b"/home/me/50 % \n\xff".to_vec()).into();
        let entry = Entry { base: 0x2000_0000_0000, length: 1 << 30, store };
        let line = "0x200000000000 0x40000000 /home/me/50%20%25%20%0a%ff\n";
        assert_eq!(entry.line(), line);
        assert_eq!(parse_entries(line.as_bytes()), [entry]);
    }

    #[test]
    fn invalid_lines_are_skipped() {
        let invalid = [
            "",
            "0x1000 0x1000",
            "0x1000 0x1000 relative",
            "0x1000 0x1000 /store further",
            "0x1000 0x0 /store",
            "0xffffffffffffffff 0x2 /store",
            "0x10000000000000000 0x2 /store",
            "0x+1000 0x1000 /store",
            "4096 0x1000 /store",
            "0x1000  0x1000 /store",
            "0x1000 0x1000 /%",
            "0x1000 0x1000 /%0",
            "0x1000 0x1000 /%0g",
            "0x1000 0x1000 /%00",
            "0x1000 0x1000 /\0",
            "\0\0\0\0",
        ];
        let text = invalid.join("\n") + "\n0x1000 0x1000 /store\n0x2000 0x10";
        let entries = parse_entries(text.as_bytes());
        assert_eq!(entries, [Entry { base: 0x1000, length: 0x1000, store: "/store".into() }]);
    }

    #[test]
    fn a_foreign_heading_is_not_mistaken_for_an_empty_file() {
        assert_eq!(heading_of(HEADER.as_bytes()), Heading::Known);
        assert_eq!(heading_of(b""), Heading::Unwritten);
        assert_eq!(heading_of(&[0; HEADER.len()]), Heading::Unwritten);
        for foreign in ["evermap arenas 2\n", "evermap arenas 1", "dear diary", "\n"] {
            assert_eq!(heading_of(foreign.as_bytes()), Heading::Foreign, "{foreign:?}");
        }
    }

    proptest! {
        #[test]
        fn any_path_survives_and_any_bytes_can_be_parsed(
            base in any::<u64>(),
            length in 1u64..,
            name in proptest::collection::vec(1u8.., 0..40),
            noise in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let store: PathBuf = OsString::from_vec([b"/".as_slice(), &name].concat()).into();
            let entry = Entry { base: base >> 1, length: length >> 1 | 1, store };
            let text = [&noise, b"\n".as_slice(), entry.line().as_bytes(), &noise].concat();
            prop_assert!(parse_entries(&text).contains(&entry));
        }
    }
}
