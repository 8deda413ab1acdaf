//! Lock of a store's directory: one process at a time parses changed sources again.
//!
//! The lock ends with its holder. A holder that is stopped or slow keeps it, so a process that
//! waits says so after a second, and gives up after a timeout.

use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use evermap::Error;

use crate::failure::Failure;
use crate::output;

/// Maximum time that a process waits for another one to parse the source.
const TIMEOUT: Duration = Duration::from_secs(30);
/// A wait of this length is reported.
const REPORTED_AFTER: Duration = Duration::from_secs(1);
/// Interval between two attempts to take the lock.
const PAUSE: Duration = Duration::from_millis(5);
/// Locks of all processes.
const LOCKS: &str = "/proc/locks";

/// Locks the store's directory until the returned file is dropped.
///
/// # Errors
/// `Store(Busy)` after the timeout; `Source` if the directory cannot be locked.
pub fn lock(directory: &Path) -> Result<File, Failure> {
    let failed = Failure::source(directory);
    let handle = File::open(directory).map_err(failed)?;
    let (start, mut is_reported) = (Instant::now(), false);
    loop {
        match handle.try_lock() {
            Ok(()) => return Ok(handle),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) => {}
        }
        let waited = start.elapsed();
        if waited >= TIMEOUT {
            return Err(Failure::Store(Error::Busy {
                what: format!("store {}", directory.display()),
                holder: format!("{} is parsing a source again", holder(&handle)),
            }));
        }
        if waited >= REPORTED_AFTER && !is_reported {
            output::warn(&format!(
                "waiting up to {} s for {}, which is parsing a source of store {} again; `--stale \
                 use` does not wait",
                TIMEOUT.as_secs(),
                holder(&handle),
                directory.display()
            ));
            is_reported = true;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns `process <id>` for the holder of a file's lock, or `another process` if the kernel does
/// not tell its id.
fn holder(file: &File) -> String {
    let locks = std::fs::read_to_string(LOCKS).unwrap_or_default();
    let id = file.metadata().ok().and_then(|found| {
        let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
        holder_of(&locks, &format!("{major:02x}:{minor:02x}:{}", found.ino()))
    });
    id.map_or_else(|| "another process".to_string(), |id| format!("process {id}"))
}

/// Returns the process that holds the lock of a whole file. `file` is device and inode as the
/// kernel writes them.
fn holder_of(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, _, id, place, ..] if place == file => {
                id.parse().ok().filter(|id| *id > 0)
            }
            // A waiting process has an arrow before the kind.
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found_among_those_of_all_processes() {
        let locks = "\
1: POSIX  ADVISORY  WRITE 100 08:02:7 0 EOF
2: FLOCK  ADVISORY  WRITE 200 08:02:70 0 EOF
3: FLOCK  ADVISORY  WRITE 300 08:02:7 0 EOF
3: -> FLOCK  ADVISORY  WRITE 400 08:02:7 0 EOF
4: FLOCK  ADVISORY  WRITE 0 08:02:8 0 EOF
5: FLOCK";
        assert_eq!(holder_of(locks, "08:02:7"), Some(300));
        assert_eq!(holder_of(locks, "08:02:8"), None);
        assert_eq!(holder_of(locks, "08:02:9"), None);
    }
}
