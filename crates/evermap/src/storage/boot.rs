//! Which run of the machine this is.

use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

/// Where the kernel names the run of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// More than the name has as a text.
const TEXT_BYTES_MAX: usize = 64;

/// Name of a run of the machine: as long as it is the same, the page cache has lost nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Boot(pub(crate) [u8; 16]);

impl Boot {
    /// Returns this run's name. The first call in a process opens and reads a file of the kernel, 10 us.
    pub(crate) fn current() -> Boot {
        static CURRENT: OnceLock<Boot> = OnceLock::new();
        *CURRENT.get_or_init(|| {
            // One read: this is a part of opening a store whose log has something.
            let mut text = [0; TEXT_BYTES_MAX];
            let got = File::open(BOOT_ID).and_then(|mut file| file.read(&mut text)).unwrap_or(0);
            let text = str::from_utf8(&text[..got]).unwrap_or_default();
            Boot::parse(text).unwrap_or_default()
        })
    }

    /// Returns true if both are the same run. A run without a name is no other run, nor itself.
    pub(crate) fn is(self, other: Boot) -> bool {
        self == other && self != Boot::default()
    }

    /// Reads a name as the kernel writes it: 32 hexadecimal digits with dashes between them.
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
    fn a_run_without_a_name_is_never_the_same_run() {
        let boot = Boot::parse("01020304-0506-0708-090a-0b0c0d0e0f10\n").unwrap();
        assert_eq!(boot.0, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
        assert!(boot.is(boot) && !boot.is(Boot::default()));
        assert!(!Boot::default().is(Boot::default()));
        for text in ["", "0102", "x1020304-0506-0708-090a-0b0c0d0e0f10"] {
            assert_eq!(Boot::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_kernel_names_the_run_of_the_machine() {
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
