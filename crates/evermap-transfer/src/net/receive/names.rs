//! Validation of a sender's file name for a target directory.
//!
//! The sender is not trusted. Its name must not hide the file, manipulate a terminal that lists it,
//! configure a shell or an editor, or look like an unfinished file of this program, which `clean`
//! would remove.

use crate::file::unfinished_name;

/// Returns why a name is refused, in words for both ends, or `None` if it is allowed. `dot_files`
/// allows names with a leading dot.
pub(super) fn refusal_reason(name: &[u8], dot_files: bool) -> Option<String> {
    let shown = String::from_utf8_lossy(name);
    if unfinished_name(name).is_some() {
        return Some(format!(
            "{shown:?} is reserved for unfinished files: rename the file and send it again"
        ));
    }
    if has_control_characters(name) {
        return Some(format!(
            "{shown:?} contains a control character: rename the file and send it again"
        ));
    }
    if name.first() == Some(&b'.') && !dot_files {
        return Some(format!(
            "{shown:?} begins with a dot, and such files configure programs: allow them with `dot_files` (--dot-files), \
             or give the target file a name",
        ));
    }
    None
}

/// Returns true for names with ASCII or Unicode control characters. Bytes that are not UTF-8 are
/// skipped.
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
            assert!(refusal_reason(name.as_bytes(), true).is_some(), "{name:?}");
        }
        for name in ["ordinary", "with space", "ünïcödé", "\u{a0}", "日本語", "-rf", "a.b", "~"]
        {
            assert_eq!(refusal_reason(name.as_bytes(), false), None, "{name:?}");
        }
        // Not UTF-8, as file names from old systems may be.
        assert_eq!(refusal_reason(b"caf\xe9", false), None);
        assert!(refusal_reason(b"caf\xe9\x1b[2J", false).is_some());
    }

    #[test]
    fn dot_names_need_the_option_and_unfinished_names_are_refused() {
        for name in [&b".bashrc"[..], b".ssh", b"..."] {
            assert!(refusal_reason(name, false).is_some());
            assert_eq!(refusal_reason(name, true), None);
        }
        for name in
            [&b".film.evermap-part"[..], b".film.evermap-part.journal", b".f.evermap-0a1b2c3d"]
        {
            assert!(refusal_reason(name, true).is_some());
        }
        assert_eq!(refusal_reason(b"film.evermap-part", false), None);
    }
}
