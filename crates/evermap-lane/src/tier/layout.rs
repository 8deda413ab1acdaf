//! Names of all files and directories on a tier, in a journal, and next to a switched file.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::error::{Error, Result};

/// Prefix of slots of views.
pub(super) const VIEW: &str = "view-";
/// Prefix of directories of switched files.
pub(super) const SWITCH: &str = "switch-";
/// Prefix of a file on its way back, until it has its final name.
const RETURNING: &str = ".lane-back-";
/// Name of a view's copy in its slot.
pub(super) const COPY: &str = "copy";
/// Name of an unfinished copy.
pub(super) const STAGE: &str = "stage";
/// Longest file name on the common file systems.
pub(super) const NAME_BYTES_MAX: usize = 255;
/// Number of hexadecimal digits in names derived from hashes: 128 bits.
const DIGITS: usize = 32;

/// Returns this user's directory on a tier. Other users can pass through it to files they may read,
/// but cannot list it.
pub(super) fn user_directory(tier: &Path) -> PathBuf {
    tier.join(format!("evermap-lane-{}", geteuid().as_raw()))
}

/// Returns the slot name of a file. It depends on the path only, so a second placement finds it.
pub(super) fn slot_name(path: &Path) -> String {
    blake3::hash(path.as_os_str().as_bytes()).to_hex()[..DIGITS].into()
}

/// Returns true for names of slots. Other entries of a journal's directory are not ours.
pub(super) fn is_slot_name(name: &str) -> bool {
    is_digits(name)
}

fn is_digits(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns the name of a file's slot among the views of a tier.
pub(super) fn view_name(path: &Path) -> String {
    format!("{VIEW}{}", slot_name(path))
}

/// Returns a random name. With a guessable name, users that can pass through the directory above
/// could probe for files in directories that they cannot enter.
pub(super) fn switch_name() -> Result<String> {
    Ok(format!("{SWITCH}{}", random_digits()?))
}

/// Returns a random name for a file on its way back. With a guessable name, another user that can
/// write to the directory could place a link there and redirect the data. The name also marks the
/// file as ours.
pub(super) fn returning_name() -> Result<String> {
    Ok(format!("{RETURNING}{}", random_digits()?))
}

/// Returns true if `name` has the form of [`returning_name`].
pub(super) fn is_returning_name(name: &str) -> bool {
    name.strip_prefix(RETURNING).is_some_and(is_digits)
}

fn random_digits() -> Result<String> {
    let mut random = [0; DIGITS / 2];
    let path = Path::new("/dev/urandom");
    std::fs::File::open(path)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut random))
        .map_err(Error::io("read", path))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the name of the original next to its path. The link has this name before the exchange.
pub(super) fn kept_name(name: &OsStr) -> OsString {
    let mut kept = OsString::from(".");
    kept.push(name);
    kept.push(".lane-orig");
    kept
}

/// Returns the maximum name length of a switched file.
pub(super) fn name_bytes_max() -> usize {
    NAME_BYTES_MAX - kept_name(OsStr::new("")).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_kept_original_fits_for_every_allowed_name() {
        let name = OsString::from("n".repeat(name_bytes_max()));
        assert_eq!(kept_name(&name).len(), NAME_BYTES_MAX);
        assert_eq!(kept_name(OsStr::new("a.mkv")), ".a.mkv.lane-orig");
    }

    #[test]
    fn own_names_are_recognized_and_others_are_not() {
        assert!(is_slot_name(&slot_name(Path::new("/a"))));
        assert!(is_returning_name(&returning_name().unwrap()));
        for other in ["", "Documents", "0123", "record", "../../etc", &"A".repeat(DIGITS)] {
            assert!(!is_slot_name(other) && !is_returning_name(other), "{other}");
            assert!(!is_returning_name(&format!("{RETURNING}{other}")), "{other}");
        }
    }

    #[test]
    fn different_paths_have_different_slots() {
        assert_ne!(slot_name(Path::new("/a/b")), slot_name(Path::new("/a/c")));
        assert_eq!(slot_name(Path::new("/a/b")).len(), DIGITS);
        assert_ne!(switch_name().unwrap(), switch_name().unwrap());
    }
}
