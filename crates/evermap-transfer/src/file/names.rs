//! Names of unfinished files and directories, which `clean` recognises.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::io::Errno;

use crate::error::{Error, Result};

/// Maximum length of a file name on all supported file systems.
const NAME_BYTES_MAX: usize = 255;
/// Attempts to find a free name, or to lock something before it is removed.
pub(super) const ATTEMPTS: usize = 16;

/// Kinds of unfinished files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// A part that can be resumed, or its journal.
    Part,
    /// Any other file, useless after its copy has ended.
    Temporary,
}

/// Returns the name of the part file that a journal belongs to, or `None` for other names.
pub(crate) fn part_of_journal(name: &[u8]) -> Option<&[u8]> {
    name.strip_suffix(b".journal").filter(|part| part.ends_with(b".evermap-part"))
}

/// Classifies an unfinished file or directory by its name, as made by [`sibling_name`]. Returns
/// `None` for other names.
pub(crate) fn unfinished_name(name: &[u8]) -> Option<Unfinished> {
    let rest = name.strip_prefix(b".")?;
    if rest.ends_with(b".evermap-part") || rest.ends_with(b".evermap-part.journal") {
        return Some(Unfinished::Part);
    }
    let (before, random) = rest.split_at_checked(rest.len().checked_sub(8)?)?;
    let is_random = random.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (before.ends_with(b".evermap-") && is_random).then_some(Unfinished::Temporary)
}

/// Returns a name for an unfinished sibling of `name`, in this crate's format.
/// [`clean`](crate::clean) removes files with such names unless a process holds a lock (`flock`) on
/// them.
///
/// # Errors
/// [`Error::Usage`] if the name contains a NUL byte. [`Error::Io`] if the system has no randomness.
pub fn temporary_name(name: &OsStr) -> Result<OsString> {
    let random =
        getrandom::u32().map_err(|_| Error::io("choose a temporary name for", name)(Errno::IO))?;
    let name = sibling_name(&c_name(name)?, &format!(".evermap-{random:08x}"));
    Ok(OsString::from_vec(name.into_bytes()))
}

/// Calls `make` with temporary names derived from `name` until one is free.
pub(crate) fn with_temporary_name<T>(
    name: &CStr,
    mut make: impl FnMut(&CStr) -> Result<T, Errno>,
) -> Result<(T, CString), Errno> {
    let mut last = Errno::EXIST;
    for _ in 0..ATTEMPTS {
        let random = getrandom::u32().map_err(|_| Errno::IO)?;
        let temporary = sibling_name(name, &format!(".evermap-{random:08x}"));
        match make(&temporary) {
            Ok(made) => return Ok((made, temporary)),
            Err(Errno::EXIST) => last = Errno::EXIST,
            Err(errno) => return Err(errno),
        }
    }
    Err(last)
}

/// Returns `.NAME` plus `ending`, shortened to the maximum name length.
pub(crate) fn sibling_name(name: &CStr, ending: &str) -> CString {
    let room = NAME_BYTES_MAX - 1 - ending.len();
    let kept = &name.to_bytes()[..name.to_bytes().len().min(room)];
    let bytes = [b".", kept, ending.as_bytes()].concat();
    // Neither part contains a NUL.
    CString::new(bytes).unwrap_or_default()
}

/// Returns the last component of a path.
pub(crate) fn file_name(path: &Path) -> Result<&OsStr> {
    path.file_name().ok_or_else(|| {
        Error::Usage(format!("{} has no file name: use a path that ends with one", path.display()))
    })
}

/// Returns the directory that a path's last component is in.
pub(crate) fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Converts a name to a C string.
pub(crate) fn c_name(name: &OsStr) -> Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| {
        Error::Usage(format!(
            "{} contains a NUL byte, which is invalid in file names",
            Path::new(name).display()
        ))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn unfinished_names_are_recognised() {
        let (_, temporary) = with_temporary_name(c"film.mkv", |_| Ok(())).unwrap();
        assert_eq!(unfinished_name(temporary.to_bytes()), Some(Unfinished::Temporary));
        for (ending, kind) in [
            (".evermap-part", Unfinished::Part),
            (".evermap-part.journal", Unfinished::Part),
            (".evermap-00ff00ff", Unfinished::Temporary),
        ] {
            let longest = CString::new(vec![b'n'; 255]).unwrap();
            for name in [c"film.mkv", &longest] {
                assert_eq!(unfinished_name(sibling_name(name, ending).to_bytes()), Some(kind));
            }
        }
        for other in [
            "film",
            ".film",
            "film.evermap-part",
            ".evermap",
            ".a.evermap-00FF00FF",
            ".a-00ff00ff",
            ".",
            "",
        ] {
            assert_eq!(unfinished_name(other.as_bytes()), None, "{other}");
        }
    }
}
