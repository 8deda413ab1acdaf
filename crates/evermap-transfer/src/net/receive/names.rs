//! Names that a sender may give to a file in a directory of the receiver's.
//!
//! A sender is a stranger. Its name must not hide the file, change how a terminal shows a listing, configure a shell or
//! an editor, or pass for an unfinished file of this program, which a clean-up removes.

use crate::file::unfinished_name;

/// Why a name is refused, in words for both ends; `None` for a name that may be used. `dot_files` says whether names
/// that begin with a dot may be.
pub(super) fn why_refused(name: &[u8], dot_files: bool) -> Option<String> {
    let shown = String::from_utf8_lossy(name);
    if unfinished_name(name).is_some() {
        return Some(format!(
            "{shown:?} is how unfinished files are named here: rename the file, and send it again"
        ));
    }
    if has_control_characters(name) {
        return Some(format!(
            "{shown:?} has a control character in it: rename the file, and send it again"
        ));
    }
    if name.first() == Some(&b'.') && !dot_files {
        return Some(format!(
            "{shown:?} begins with a dot, and such files configure programs: allow them with `dot_files` (--dot-files), \
             or name the file that is to be made"
        ));
    }
    None
}

/// ASCII's and Unicode's control characters. Bytes that are no UTF-8 are looked at one by one.
fn has_control_characters(name: &[u8]) -> bool {
    name.utf8_chunks().any(|chunk| chunk.valid().chars().any(char::is_control))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_control_character_is_refused() {
        let controls = (0..=0x1fu32).chain(0x7f..=0x9f).filter_map(char::from_u32);
        for control in controls {
            let name = format!("a{control}b");
            assert!(why_refused(name.as_bytes(), true).is_some(), "{name:?}");
        }
        for name in ["ordinary", "with space", "ünïcödé", "\u{a0}", "日本語", "-rf", "a.b", "~"]
        {
            assert_eq!(why_refused(name.as_bytes(), false), None, "{name:?}");
        }
        // Not UTF-8, as a file of an old system may be named.
        assert_eq!(why_refused(b"caf\xe9", false), None);
        assert!(why_refused(b"caf\xe9\x1b[2J", false).is_some());
    }

    #[test]
    fn a_leading_dot_takes_an_option_and_a_temporary_name_is_never_taken() {
        for name in [&b".bashrc"[..], b".ssh", b"..."] {
            assert!(why_refused(name, false).is_some());
            assert_eq!(why_refused(name, true), None);
        }
        for name in
            [&b".film.evermap-part"[..], b".film.evermap-part.journal", b".f.evermap-0a1b2c3d"]
        {
            assert!(why_refused(name, true).is_some());
        }
        assert_eq!(why_refused(b"film.evermap-part", false), None);
    }
}
