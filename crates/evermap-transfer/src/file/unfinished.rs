//! What tells an unfinished file or directory of a copy from all others, and from those of a copy that runs.

use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, FlockOperation};
use rustix::io::Errno;

use super::target::{beside, c_name};
use crate::error::{Error, Result};

/// How long a copy waits for somebody who is cleaning.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// How often a copy makes anew what was removed before it was held.
pub(super) const ATTEMPTS: usize = 16;

/// What an unfinished file of this crate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// A part that can be resumed, or its journal.
    Part,
    /// Anything else: worthless once its copy has ended.
    Temporary,
}

/// The name of the part that a journal belongs to; `None` for other names.
pub(crate) fn part_of_journal(name: &[u8]) -> Option<&[u8]> {
    name.strip_suffix(b".journal").filter(|part| part.ends_with(b".evermap-part"))
}

/// What a name says of an unfinished file or directory of this crate, as [`beside`] names them; `None` for other names.
pub(crate) fn unfinished_name(name: &[u8]) -> Option<Unfinished> {
    let rest = name.strip_prefix(b".")?;
    if rest.ends_with(b".evermap-part") || rest.ends_with(b".evermap-part.journal") {
        return Some(Unfinished::Part);
    }
    let (before, random) = rest.split_at_checked(rest.len().checked_sub(8)?)?;
    let is_random = random.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (before.ends_with(b".evermap-") && is_random).then_some(Unfinished::Temporary)
}

/// A name beside `name` for something unfinished, as this crate's copies name theirs. [`clean`](crate::clean) removes what
/// has such a name, unless somebody holds a lock (`flock`) on it.
///
/// # Errors
/// [`Error::Usage`]: the name has a NUL byte. [`Error::Io`]: the system has no randomness.
pub fn temporary_name(name: &OsStr) -> Result<OsString> {
    let random = getrandom::u32().map_err(|_| Error::io("make a name for", name)(Errno::IO))?;
    let name = beside(&c_name(name)?, &format!(".evermap-{random:08x}"));
    Ok(OsString::from_vec(name.into_bytes()))
}

/// Holds a shared lock on what a copy has not finished, for as long as the descriptor is open. Waits a moment for somebody
/// who is cleaning there. A file system without locks has nobody who relies on them.
pub(crate) fn hold(unfinished: BorrowedFd<'_>) {
    let begin = Instant::now();
    while fs::flock(unfinished, FlockOperation::NonBlockingLockShared) == Err(Errno::AGAIN)
        && begin.elapsed() < LOCK_WAIT
    {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Makes something under a temporary name and holds it. `make` is called again if `clean` removes it before it is held.
///
/// # Errors
/// Those of `make`.
pub(crate) fn make_and_hold<T: AsFd, E>(
    directory: BorrowedFd<'_>,
    mut make: impl FnMut() -> Result<(T, std::ffi::CString), E>,
) -> Result<(T, std::ffi::CString), E> {
    let mut attempts = ATTEMPTS;
    loop {
        let (made, name) = make()?;
        hold(made.as_fd());
        attempts -= 1;
        if attempts == 0 || leads_to(directory, &name, made.as_fd()) {
            return Ok((made, name));
        }
    }
}

/// Returns false if `name` no longer leads to `file`, which was opened by that name.
pub(crate) fn leads_to(directory: BorrowedFd<'_>, name: &CStr, file: BorrowedFd<'_>) -> bool {
    match (fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW), fs::fstat(file)) {
        (Ok(named), Ok(open)) => (named.st_dev, named.st_ino) == (open.st_dev, open.st_ino),
        (Err(Errno::NOENT), _) => false,
        // What cannot be looked at is taken for unchanged: the name's own use tells.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::ffi::CString;

    use super::*;
    use crate::file::{beside, with_temporary_name};

    #[test]
    fn names_of_unfinished_files_are_told_from_others() {
        let (_, temporary) = with_temporary_name(c"film.mkv", |_| Ok(())).unwrap();
        assert_eq!(unfinished_name(temporary.to_bytes()), Some(Unfinished::Temporary));
        for (ending, kind) in [
            (".evermap-part", Unfinished::Part),
            (".evermap-part.journal", Unfinished::Part),
            (".evermap-00ff00ff", Unfinished::Temporary),
        ] {
            let longest = CString::new(vec![b'n'; 255]).unwrap();
            for name in [c"film.mkv", &longest] {
                assert_eq!(unfinished_name(beside(name, ending).to_bytes()), Some(kind));
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
