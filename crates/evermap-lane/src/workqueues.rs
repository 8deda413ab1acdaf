//! The kernel's own work that is bound to no core (its unbound workqueues: writing files back, above all), kept off a core and let there again.
//!
//! Such work is done by threads of the kernel, and a kernel that is built without preemption leaves them a core until they offer it: a real-time program waits
//! for them, whatever its priority (measured on Linux 6.18: up to 2.8 ms for a writeback). There is one mask of the cores for all of that work; when it is
//! written, the kernel has its threads go by it. None of them is touched from here. Source: `Documentation/core-api/workqueue.rst` of Linux,
//! `workqueue_set_unbound_cpumask` in its `kernel/workqueue.c`.
//!
//! Cost: a read and a write; the kernel makes new pools for all unbound workqueues meanwhile, some milliseconds.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::sys::lock;

/// What it is called where it is had, and where it is not.
pub(crate) const AWAY: &str = "the kernel's unbound work done on other cores";
/// Below `/sys`.
pub(crate) const DIRECTORY: &str = "devices/virtual/workqueue";
/// What may be written, and is what is in force.
const MASK: &str = "cpumask";
/// What was written last, where the kernel leaves out of it what others have isolated (since Linux 6.8).
const REQUESTED: &str = "cpumask_requested";
/// A mask of 8,192 cores is a third of this.
const BYTES_MAX: u64 = 8 << 10;
/// Others that change it take some milliseconds. One that was stopped meanwhile is not waited for.
const OTHERS_MAX: Duration = Duration::from_secs(1);

/// A core that the kernel's unbound work is kept off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Away {
    core: u32,
    directory: PathBuf,
}

/// Why the work stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stays {
    pub(crate) why: String,
    pub(crate) remedy: String,
}

impl Away {
    /// What would have to be done; nothing where the core has no such work anyway.
    pub(crate) fn plan(directory: &Path, core: u32) -> Result<Option<Self>, Stays> {
        let away = Self { core, directory: directory.to_owned() };
        let mask = away.read().map_err(|error| away.stays(&error))?;
        if !mask.has(core) {
            return Ok(None);
        }
        if mask.without(core).is_empty() {
            return Err(Stays {
                why: "no other core would be left for it".into(),
                remedy: "nothing on a machine with one core".into(),
            });
        }
        away.open().map_err(|error| away.stays(&error))?;
        Ok(Some(away))
    }

    /// Keeps the work away. To be undone, also after an error.
    pub(crate) fn make(&self) -> Result<(), Stays> {
        let made = self.change(|mask| mask.without(self.core));
        made.map(drop).map_err(|error| self.stays(&error))
    }

    /// Lets the work be done on the core again. Whether it was kept away. Done again, it does nothing.
    pub(crate) fn undo(&self) -> io::Result<bool> {
        self.change(|mask| mask.with(self.core))
    }

    /// The file, for messages.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join(MASK)
    }

    fn stays(&self, error: &io::Error) -> Stays {
        let path = self.path();
        let path = path.display();
        let (why, remedy) = match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => (
                format!("{path} cannot be written ({error})"),
                "start the lane as root, with /sys mounted writable",
            ),
            ErrorKind::NotFound => {
                (format!("there is no {path}"), "mount sysfs, of Linux 4.2 or newer")
            }
            _ => (format!("{path}: {error}"), "say `workqueues = \"stay\"` to have no word of it"),
        };
        Stays { why, remedy: remedy.into() }
    }

    fn open(&self) -> io::Result<File> {
        File::options().read(true).write(true).open(self.path())
    }

    /// What was last wished: what is in force may lack cores that others have isolated.
    fn read(&self) -> io::Result<Mask> {
        let requested = File::open(self.directory.join(REQUESTED));
        let file = requested.or_else(|_| File::open(self.path()))?;
        let mut text = String::new();
        file.take(BYTES_MAX).read_to_string(&mut text)?;
        Mask::parse(&text).ok_or_else(|| {
            io::Error::new(ErrorKind::InvalidData, format!("`{}` is no mask", text.trim()))
        })
    }

    /// Changes the mask while no other lane does. Whether that made a difference.
    fn change(&self, change: impl FnOnce(&Mask) -> Mask) -> io::Result<bool> {
        let mut file = self.open()?;
        let until = Instant::now() + OTHERS_MAX;
        while !lock::try_lock(&file)? && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        let before = self.read()?;
        let after = change(&before);
        if after == before {
            return Ok(false);
        }
        // One call, with all of it: the kernel takes each as one wish.
        file.write_all(format!("{after}\n").as_bytes())?;
        Ok(true)
    }
}

/// A set of cores as the kernel writes it: words of 32 bits in hexadecimal, the highest first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mask {
    /// The lowest first.
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

    /// A directory with a mask; a file keeps what is longer than what is written last, as the kernel does not.
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
    fn a_core_is_taken_out_and_put_back_and_others_stay() {
        let directory = directory("0000000f");
        let away = Away::plan(directory.path(), 2).unwrap().unwrap();
        away.make().unwrap();
        assert_eq!(mask(&directory), "0000000b");
        // Another lane, which ends later.
        let other = Away::plan(directory.path(), 0).unwrap().unwrap();
        other.make().unwrap();
        assert!(away.undo().unwrap());
        assert_eq!(mask(&directory), "0000000e");
        assert!(!away.undo().unwrap(), "again, there is nothing to do");
        assert!(other.undo().unwrap());
        assert_eq!(mask(&directory), "0000000f");
    }

    #[test]
    fn masks_of_many_cores_have_several_words() {
        let mask = Mask::parse("3,ffffffff,00000001\n").unwrap();
        assert!(mask.has(0) && !mask.has(1) && mask.has(32) && mask.has(65) && !mask.has(66));
        assert_eq!(mask.without(64).to_string(), "00000002,ffffffff,00000001");
        assert_eq!(mask.with(1).to_string(), "00000003,ffffffff,00000003");
        assert_eq!(mask.with(400), mask, "there is no such core");
        for text in ["", "x", "1,,1", "1ffffffff"] {
            assert_eq!(Mask::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_was_wished_counts_and_not_what_is_left_of_it() {
        // Core 3 is isolated by somebody: it is not in force, and stays wished.
        let directory = directory("00000007");
        fs::write(directory.path().join(REQUESTED), "0000000f\n").unwrap();
        let away = Away::plan(directory.path(), 1).unwrap().unwrap();
        away.make().unwrap();
        assert_eq!(mask(&directory), "0000000d");
    }

    #[test]
    fn where_there_is_nothing_to_be_done_nothing_is() {
        assert_eq!(Away::plan(directory("00000001").path(), 1), Ok(None), "it is away");
        let alone = Away::plan(directory("00000002").path(), 1).unwrap_err();
        assert!(alone.why.contains("no other core"), "{alone:?}");
        let absent = Away::plan(Path::new("/no/such"), 1).unwrap_err();
        assert!(absent.why.contains("/no/such/cpumask"), "{absent:?}");
        let odd = Away::plan(directory("all").path(), 1).unwrap_err();
        assert!(odd.why.contains("`all` is no mask"), "{odd:?}");
    }
}
