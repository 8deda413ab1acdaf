//! Identifies a boot of the machine.

use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

/// File in which the kernel publishes its boot id.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Longer than the text of a boot id.
const TEXT_BYTES_MAX: usize = 64;

/// Identity of a boot. While it stays the same, the page cache has lost nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Boot(pub(crate) [u8; 16]);

impl Boot {
    /// Returns the current boot id. The first call in a process opens and reads a kernel file,
    /// which takes 10 us.
    pub(crate) fn current() -> Boot {
        static CURRENT: OnceLock<Boot> = OnceLock::new();
        *CURRENT.get_or_init(|| {
            // A single read: this is part of opening a store with a non-empty log.
            let mut text = [0; TEXT_BYTES_MAX];
            let got = File::open(BOOT_ID).and_then(|mut file| file.read(&mut text)).unwrap_or(0);
            let text = str::from_utf8(&text[..got]).unwrap_or_default();
            Boot::parse(text).unwrap_or_default()
        })
    }

    /// Returns true if both are the same boot. An unknown boot differs from every boot, even from
    /// itself.
    pub(crate) fn is(self, other: Boot) -> bool {
        self == other && self != Boot::default()
    }

    /// Parses a boot id as the kernel writes it: 32 hexadecimal digits with dashes in between.
    fn parse(text: &str) -> Option<Boot> {
        let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
        let number = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32)?;
        Some(Boot(number.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_boot_equals_no_boot() {
        let boot = Boot::parse("01020304-0506-0708-090a-0b0c0d0e0f10\n").unwrap();
        assert_eq!(boot.0, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
        assert!(boot.is(boot) && !boot.is(Boot::default()));
        assert!(!Boot::default().is(Boot::default()));
        for text in ["", "0102", "x1020304-0506-0708-090a-0b0c0d0e0f10"] {
            assert_eq!(Boot::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_kernel_reports_the_boot() {
        let current = Boot::current();
        let text = std::fs::read_to_string(BOOT_ID).unwrap_or_default();
        assert_eq!(current, Boot::parse(&text).unwrap_or_default());
        if !std::path::Path::new(BOOT_ID).exists() {
            eprintln!("SKIPPED: no {BOOT_ID}");
            return;
        }
        assert!(current.is(Boot::current()));
    }
}
