//! Temporary names: `.NAME.evermap-XXXXXXXX`.

use std::ffi::{CStr, CString};

use crate::file::sibling_name;

/// Generator of temporary names for one thread. It starts at a random value, and each further name
/// takes no system call.
#[derive(Debug)]
pub(super) struct TemporaryNames {
    state: u64,
}

impl TemporaryNames {
    pub(super) fn new() -> TemporaryNames {
        // Without randomness, start at the time. Files are created exclusively, so collisions only
        // cost time.
        let state = getrandom::u64().unwrap_or_else(|_| {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            since.map_or(1, |since| since.as_nanos() as u64)
        });
        TemporaryNames { state }
    }

    /// Returns a temporary name for `name`, shortened if necessary.
    pub(super) fn name(&mut self, name: &CStr) -> CString {
        sibling_name(name, &format!(".evermap-{:08x}", self.next() >> 32))
    }

    /// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_and_contain_the_final_name() {
        let mut temporary = TemporaryNames::new();
        let (first, second) = (temporary.name(c"data"), temporary.name(c"data"));
        assert_ne!(first, second);
        assert!(first.to_bytes().starts_with(b".data.evermap-") && first.to_bytes().len() == 22);
    }

    #[test]
    fn longest_name_has_a_temporary_name() {
        let long = CString::new(vec![b'x'; 255]).unwrap_or_default();
        assert_eq!(TemporaryNames::new().name(&long).to_bytes().len(), 255);
    }
}
