//! Layout of a `PString` in a file.

use crate::persist::PString;

/// Location of a string's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StringPlace {
    /// In the block of a vector, whose three words the string consists of.
    Block,
    /// In the string's own bytes, with this length.
    Here(u64),
    /// The length of a text in place is impossible.
    Damaged,
}

/// Longest text in a string's own bytes.
const IN_PLACE_MAX: u64 = size_of::<PString>() as u64 - 1;

impl StringPlace {
    /// Reads the last of the string's three words. Its highest byte is the string's last one: 0, or
    /// the length of a text in place.
    pub(super) fn of(last_word: u64) -> StringPlace {
        match last_word >> 56 {
            0 => StringPlace::Block,
            length if length <= IN_PLACE_MAX => StringPlace::Here(length),
            _ => StringPlace::Damaged,
        }
    }
}
