//! Keeps the kernel's unbound workqueues off a core, and allows them there again.
//!
//! Unbound workqueues (writeback above all) run in kernel threads that are bound to no core. A
//! kernel built without preemption leaves such a thread the core until it yields, so a real-time
//! program waits for it at any priority (measured on Linux 6.18: up to 2.8 ms for a writeback). The
//! kernel has one core mask for all of this work, and its threads follow the mask when it is
//! written; this module touches no thread. Source: `Documentation/core-api/workqueue.rst` of Linux
//! and
//! `workqueue_set_unbound_cpumask` in its `kernel/workqueue.c`.
//!
//! Cost: a read and a write. The kernel then makes new pools for all unbound workqueues, which
//! takes some milliseconds.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::sys::lock;

/// Label in reports, both where the exclusion was applied and where it was not.
pub(crate) const LABEL: &str = "the kernel's unbound work done on other cores";
/// Directory below `/sys`.
pub(crate) const DIRECTORY: &str = "devices/virtual/workqueue";
/// Mask that can be written; reads as the mask in force.
const MASK: &str = "cpumask";
/// Mask that was last written. The mask in force lacks isolated cores (since Linux 6.8).
const REQUESTED: &str = "cpumask_requested";
/// Upper bound of a mask file. A mask of 8,192 cores takes a third of this.
const BYTES_MAX: u64 = 8 << 10;
/// Longest wait for the file's lock. A change by another lane takes some milliseconds; a lane that
/// was stopped while it held the lock is not waited for any longer.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Exclusion of a core from the kernel's unbound workqueues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exclusion {
    core: u32,
    directory: PathBuf,
}

/// Outcome of an attempt to keep the kernel's unbound work off a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The work is done on other cores now.
    Excluded,
    /// The core did no such work before.
    NotNeeded,
    /// The work stays.
    Refused(NotExcluded),
}

/// Reason why the exclusion was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotExcluded {
    pub(crate) why: String,
    pub(crate) remedy: String,
}

impl Exclusion {
    /// Plans the exclusion. Returns `None` if the core is not in the mask anyway.
    pub(crate) fn plan(directory: &Path, core: u32) -> Result<Option<Self>, NotExcluded> {
        let exclusion = Self { core, directory: directory.to_owned() };
        let mask = exclusion.read().map_err(|error| exclusion.not_excluded(&error))?;
        if !mask.has(core) {
            return Ok(None);
        }
        if mask.without(core).is_empty() {
            return Err(NotExcluded {
                why: "no other core is left for the work".into(),
                remedy: "use a machine with more than one core".into(),
            });
        }
        exclusion.open().map_err(|error| exclusion.not_excluded(&error))?;
        Ok(Some(exclusion))
    }

    /// Takes the core out of the mask. Must be undone, also after an error.
    pub(crate) fn make(&self) -> Result<(), NotExcluded> {
        let made = self.change(|mask| mask.without(self.core));
        made.map(drop).map_err(|error| self.not_excluded(&error))
    }

    /// Puts the core back into the mask. Returns true if it was missing. Can be repeated.
    pub(crate) fn undo(&self) -> io::Result<bool> {
        self.change(|mask| mask.with(self.core))
    }

    /// Mask file, for messages.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join(MASK)
    }

    fn not_excluded(&self, error: &io::Error) -> NotExcluded {
        let path = self.path();
        let path = path.display();
        let (why, remedy) = match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => (
                format!("{path} is not writable ({error})"),
                "start the lane as root, with /sys mounted writable",
            ),
            ErrorKind::NotFound => {
                (format!("there is no {path}"), "mount sysfs, of Linux 4.2 or newer")
            }
            _ => (format!("{path}: {error}"), "set `workqueues = \"stay\"` to disable this"),
        };
        NotExcluded { why, remedy: remedy.into() }
    }

    fn open(&self) -> io::Result<File> {
        File::options().read(true).write(true).open(self.path())
    }

    /// Reads the mask that was last requested. The mask in force may lack isolated cores.
    fn read(&self) -> io::Result<Mask> {
        let requested = File::open(self.directory.join(REQUESTED));
        let file = requested.or_else(|_| File::open(self.path()))?;
        let mut text = String::new();
        file.take(BYTES_MAX).read_to_string(&mut text)?;
        Mask::parse(&text).ok_or_else(|| {
            io::Error::new(ErrorKind::InvalidData, format!("`{}` is not a core mask", text.trim()))
        })
    }

    /// Changes the mask under a lock. Returns true if that made a difference.
    fn change(&self, change: impl FnOnce(&Mask) -> Mask) -> io::Result<bool> {
        let mut file = self.open()?;
        let until = Instant::now() + LOCK_TIMEOUT;
        while !lock::try_lock(&file)? && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        let before = self.read()?;
        let after = change(&before);
        if after == before {
            return Ok(false);
        }
        // One write call: the kernel treats each call as a complete mask.
        file.write_all(format!("{after}\n").as_bytes())?;
        Ok(true)
    }
}

/// Set of cores in the kernel's format: hexadecimal words of 32 bits, the highest first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mask {
    /// Lowest word first.
    words: Vec<u32>,
}

impl Mask {
    fn parse(text: &str) -> Option<Self> {
        let words = text.trim().split(',').rev().map(|word| u32::from_str_radix(word, 16).ok());
        Some(Self { words: words.collect::<Option<_>>()? })
    }

    fn has(&self, core: u32) -> bool {
        self.words.get(core as usize / 32).is_some_and(|word| word & bit(core) != 0)
    }

    fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    fn without(&self, core: u32) -> Self {
        let mut mask = self.clone();
        if let Some(word) = mask.words.get_mut(core as usize / 32) {
            *word &= !bit(core);
        }
        mask
    }

    fn with(&self, core: u32) -> Self {
        let mut mask = self.clone();
        if let Some(word) = mask.words.get_mut(core as usize / 32) {
            *word |= bit(core);
        }
        mask
    }
}

fn bit(core: u32) -> u32 {
    1 << (core % 32)
}

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> =
            self.words.iter().rev().map(|word| format!("{word:08x}")).collect();
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Directory with a mask file. Unlike the kernel's, a plain file keeps the tail of a longer
    /// previous write.
    fn directory(mask: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(MASK), format!("{mask}\n")).unwrap();
        directory
    }

    fn mask(directory: &tempfile::TempDir) -> String {
        let text = fs::read_to_string(directory.path().join(MASK)).unwrap();
        text.lines().next().unwrap().to_owned()
    }

    #[test]
    fn excluding_and_restoring_a_core_leaves_other_cores_unchanged() {
        let directory = directory("0000000f");
        let exclusion = Exclusion::plan(directory.path(), 2).unwrap().unwrap();
        exclusion.make().unwrap();
        assert_eq!(mask(&directory), "0000000b");
        // Another lane, which ends later.
        let other = Exclusion::plan(directory.path(), 0).unwrap().unwrap();
        other.make().unwrap();
        assert!(exclusion.undo().unwrap());
        assert_eq!(mask(&directory), "0000000e");
        assert!(!exclusion.undo().unwrap(), "the second undo has nothing to do");
        assert!(other.undo().unwrap());
        assert_eq!(mask(&directory), "0000000f");
    }

    #[test]
    fn masks_of_many_cores_have_several_words() {
        let mask = Mask::parse("3,ffffffff,00000001\n").unwrap();
        assert!(mask.has(0) && !mask.has(1) && mask.has(32) && mask.has(65) && !mask.has(66));
        assert_eq!(mask.without(64).to_string(), "00000002,ffffffff,00000001");
        assert_eq!(mask.with(1).to_string(), "00000003,ffffffff,00000003");
        assert_eq!(mask.with(400), mask, "the mask has no such core");
        for text in ["", "x", "1,,1", "1ffffffff"] {
            assert_eq!(Mask::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_requested_mask_is_edited_not_the_effective_one() {
        // Core 3 is isolated: it is missing in the mask in force, but stays requested.
        let directory = directory("00000007");
        fs::write(directory.path().join(REQUESTED), "0000000f\n").unwrap();
        let exclusion = Exclusion::plan(directory.path(), 1).unwrap().unwrap();
        exclusion.make().unwrap();
        assert_eq!(mask(&directory), "0000000d");
    }

    #[test]
    fn plan_reports_exclusions_that_are_unnecessary_or_impossible() {
        assert_eq!(
            Exclusion::plan(directory("00000001").path(), 1),
            Ok(None),
            "the core is excluded already"
        );
        let alone = Exclusion::plan(directory("00000002").path(), 1).unwrap_err();
        assert!(alone.why.contains("no other core"), "{alone:?}");
        let absent = Exclusion::plan(Path::new("/no/such"), 1).unwrap_err();
        assert!(absent.why.contains("/no/such/cpumask"), "{absent:?}");
        let odd = Exclusion::plan(directory("all").path(), 1).unwrap_err();
        assert!(odd.why.contains("`all` is not a core mask"), "{odd:?}");
    }
}
