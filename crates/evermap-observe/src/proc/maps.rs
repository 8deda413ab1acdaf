//! `/proc/PID/maps`: the mappings of a process.

use std::path::PathBuf;

/// Mapped range of addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping<'t> {
    /// First address.
    pub start: u64,
    /// Address after the last one.
    pub end: u64,
    /// Rights and sharing: `rw-p`.
    pub rights: &'t str,
    /// Major and minor number of the file's device, or 0.
    pub device: (u32, u32),
    /// Inode of the file, or 0.
    pub inode: u64,
    /// Path of the file as the kernel writes it, or a name in brackets, or nothing.
    pub name: &'t str,
}

impl<'t> Mapping<'t> {
    /// Parses `7f00-7f10 r--s 00000000 fe:00 1234      /path with blanks`.
    fn parse(line: &'t str) -> Option<Self> {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let (start, end) =
            (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        let mut rest = rest;
        let mut word = || {
            let text = rest.trim_start();
            let (word, after) = text.split_once(' ').unwrap_or((text, ""));
            rest = after;
            (!word.is_empty()).then_some(word)
        };
        let (rights, _offset, device, inode) = (word()?, word()?, word()?, word()?);
        let (major, minor) = device.split_once(':')?;
        let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
        let (inode, name) = (inode.parse().ok()?, rest.trim_start());
        (start <= end).then_some(Mapping { start, end, rights, device, inode, name })
    }

    /// Returns true for a right (`r`, `w`, `x`) or the sharing (`s`, `p`).
    pub fn has(&self, right: char) -> bool {
        self.rights.contains(right)
    }

    /// Returns the path of the file. The kernel writes line feeds as `\012`.
    pub fn path(&self) -> PathBuf {
        self.name.replace("\\012", "\n").into()
    }
}

/// Parses `/proc/PID/maps`, in ascending order of addresses.
///
/// ```
/// use evermap_observe::proc::mappings;
/// let maps = std::fs::read_to_string("/proc/self/maps")?;
/// assert!(mappings(&maps).any(|mapping| mapping.name == "[stack]"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn mappings(text: &str) -> impl Iterator<Item = Mapping<'_>> {
    text.lines().filter_map(Mapping::parse)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn mappings_with_blanks_in_their_paths_are_parsed() {
        let line =
            "7f0000000000-7f0000002000 rw-s 00001000 fe:00 1234                       /a b/c\\012d";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!((mapping.start, mapping.end), (0x7f00_0000_0000, 0x7f00_0000_2000));
        assert_eq!((mapping.device, mapping.inode), ((0xfe, 0), 1_234));
        assert_eq!(mapping.path(), PathBuf::from("/a b/c\nd"));
        assert!(mapping.has('w') && mapping.has('s') && !mapping.has('x'));
    }

    #[test]
    fn mappings_without_a_name_are_parsed() {
        for line in ["1000-3000 rw-p 00000000 00:00 0 ", "1000-3000 rw-p 00000000 00:00 0"] {
            let mapping = Mapping::parse(line).unwrap();
            assert_eq!((mapping.start, mapping.inode, mapping.name), (0x1000, 0, ""));
        }
    }

    #[test]
    fn malformed_lines_are_skipped() {
        for text in ["", "x", "2-1 r--p 0 0:0 5 /x", "1-2 r--p 0 0:0", "g-h r--p 0 0:0 5 /x"] {
            assert_eq!(Mapping::parse(text), None, "{text}");
        }
    }
}
