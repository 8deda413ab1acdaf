//! Unfinished files and directories: their names, and the lock that a running copy holds.

use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, FlockOperation};
use rustix::io::Errno;

use super::target::{c_name, sibling_name};
use crate::error::{Error, Result};

/// Timeout for the lock while `clean` examines the file.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// Attempts to create something that was removed before it was locked.
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

/// Takes a shared lock on an unfinished file or directory, held while the descriptor is open. Waits
/// up to [`LOCK_WAIT`] for a running `clean`. File systems without locks are ignored.
pub(crate) fn lock_unfinished(unfinished: BorrowedFd<'_>) {
    let begin = Instant::now();
    while fs::flock(unfinished, FlockOperation::NonBlockingLockShared) == Err(Errno::AGAIN)
        && begin.elapsed() < LOCK_WAIT
    {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Creates something with a temporary name and locks it. Calls `create` again if `clean` removes
/// the name before the lock is held.
///
/// # Errors
/// Those of `create`.
pub(crate) fn create_and_lock<T: AsFd, E>(
    directory: BorrowedFd<'_>,
    mut create: impl FnMut() -> Result<(T, std::ffi::CString), E>,
) -> Result<(T, std::ffi::CString), E> {
    let mut attempts = ATTEMPTS;
    loop {
        let (created, name) = create()?;
        lock_unfinished(created.as_fd());
        attempts -= 1;
        if attempts == 0 || leads_to(directory, &name, created.as_fd()) {
            return Ok((created, name));
        }
    }
}

/// Returns false if `name` no longer leads to `file`, which was opened by that name.
pub(crate) fn leads_to(directory: BorrowedFd<'_>, name: &CStr, file: BorrowedFd<'_>) -> bool {
    match (fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW), fs::fstat(file)) {
        (Ok(named), Ok(open)) => (named.st_dev, named.st_ino) == (open.st_dev, open.st_ino),
        (Err(Errno::NOENT), _) => false,
        // On other errors assume that it is unchanged: using the name reports them.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::ffi::CString;

    use super::*;
    use crate::file::{sibling_name, with_temporary_name};

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
