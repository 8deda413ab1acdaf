//! The names of everything that is on a tier, in a journal and beside a file.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::error::{Error, Result};

/// What slots of views begin with.
pub(super) const VIEW: &str = "view-";
/// What directories of switched files begin with.
pub(super) const SWITCH: &str = "switch-";
/// What files on their way back are called until they have their names.
const RETURNING: &str = ".lane-back-";
/// A view's copy in its slot.
pub(super) const COPY: &str = "copy";
/// A copy in the making.
pub(super) const STAGE: &str = "stage";
/// The longest name of a file, everywhere that matters.
pub(super) const NAME_BYTES_MAX: usize = 255;
/// Hexadecimal digits of names that are made of hashes: 128 bits.
const DIGITS: usize = 32;

/// This user's directory on a tier. Others may pass through it to files that they may read, and not list it.
pub(super) fn home_of(tier: &Path) -> PathBuf {
    tier.join(format!("evermap-lane-{}", geteuid().as_raw()))
}

/// The name of a file's slot: of its path, so that a second placement finds it.
pub(super) fn slot_name(path: &Path) -> String {
    blake3::hash(path.as_os_str().as_bytes()).to_hex()[..DIGITS].into()
}

/// Whether a name is one of slots. What else is in a journal's directory is somebody else's.
pub(super) fn is_slot_name(name: &str) -> bool {
    is_digits(name)
}

fn is_digits(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The name of a file's slot among a tier's views.
pub(super) fn view_name(path: &Path) -> String {
    format!("{VIEW}{}", slot_name(path))
}

/// A name that nobody can guess: whoever may pass through the directory above could look for files that are in directories
/// that they may not enter.
pub(super) fn switch_name() -> Result<String> {
    Ok(format!("{SWITCH}{}", random_digits()?))
}

/// A name for a file on its way back, that nobody can guess: whoever may write to its directory could else have a link there that leads
/// what is written elsewhere. And what has it is known to be ours.
pub(super) fn returning_name() -> Result<String> {
    Ok(format!("{RETURNING}{}", random_digits()?))
}

/// Whether it could be one of [`returning_name`].
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

/// What the original is called beside its path; and the link before that.
pub(super) fn kept_name(name: &OsStr) -> OsString {
    let mut kept = OsString::from(".");
    kept.push(name);
    kept.push(".lane-orig");
    kept
}

/// The longest name that a switched file may have.
pub(super) fn name_bytes_max() -> usize {
    NAME_BYTES_MAX - kept_name(OsStr::new("")).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beside_a_file_fit_whenever_the_file_s_own_does() {
        let name = OsString::from("n".repeat(name_bytes_max()));
        assert_eq!(kept_name(&name).len(), NAME_BYTES_MAX);
        assert_eq!(kept_name(OsStr::new("a.mkv")), ".a.mkv.lane-orig");
    }

    #[test]
    fn names_of_ours_are_told_from_others() {
        assert!(is_slot_name(&slot_name(Path::new("/a"))));
        assert!(is_returning_name(&returning_name().unwrap()));
        for other in ["", "Documents", "0123", "record", "../../etc", &"A".repeat(DIGITS)] {
            assert!(!is_slot_name(other) && !is_returning_name(other), "{other}");
            assert!(!is_returning_name(&format!("{RETURNING}{other}")), "{other}");
        }
    }

    #[test]
    fn slots_are_told_apart_by_paths() {
        assert_ne!(slot_name(Path::new("/a/b")), slot_name(Path::new("/a/c")));
        assert_eq!(slot_name(Path::new("/a/b")).len(), DIGITS);
        assert_ne!(switch_name().unwrap(), switch_name().unwrap());
    }
}
