//! Who has files open, as far as `/proc` tells this user.
//!
//! A help for messages and plans: processes of others are not seen without root, and what is seen may be over when it is told. What
//! is relied upon is the kernel's answer to a lease.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::Path;

use rustix::fs::{makedev, stat};
use serde::Serialize;

/// A process that has a file open or mapped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Opener {
    /// Its number.
    pub process: u32,
    /// Its name.
    pub name: String,
    /// Whether it may write to the file.
    pub writes: bool,
}

impl fmt::Display for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.name, self.process)?;
        if self.writes { f.write_str(" for writing") } else { Ok(()) }
    }
}

/// All who have files open, by device and inode; found in one walk.
#[derive(Debug, Default)]
pub(super) struct Openers {
    by_file: HashMap<(u64, u64), Vec<Opener>>,
}

impl Openers {
    /// Looks for those of these files. Cost: a call for each descriptor of each process that may be looked at.
    pub(super) fn look(files: &[(u64, u64)]) -> Self {
        let mut openers = Self::default();
        if files.is_empty() {
            return openers;
        }
        files.iter().for_each(|file| drop(openers.by_file.insert(*file, Vec::new())));
        let own = std::process::id();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let process = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(process) = process.filter(|process| *process != own) {
                openers.look_at(process, &entry.path());
            }
        }
        openers
    }

    /// Those of a file.
    pub(super) fn of(&self, file: (u64, u64)) -> &[Opener] {
        self.by_file.get(&file).map_or(&[], Vec::as_slice)
    }

    fn look_at(&mut self, process: u32, directory: &Path) {
        let mut found: HashMap<(u64, u64), bool> = HashMap::new();
        for entry in fs::read_dir(directory.join("fd")).into_iter().flatten().flatten() {
            // Follows the link to the file itself, and opens nothing.
            let Ok(stat) = stat(&entry.path()) else { continue };
            if self.by_file.contains_key(&(stat.st_dev, stat.st_ino)) {
                let info = directory.join("fdinfo").join(entry.file_name());
                *found.entry((stat.st_dev, stat.st_ino)).or_default() |= may_write(&info);
            }
        }
        let maps = fs::read_to_string(directory.join("maps")).unwrap_or_default();
        for (file, writes) in maps.lines().filter_map(mapped) {
            if self.by_file.contains_key(&file) {
                *found.entry(file).or_default() |= writes;
            }
        }
        if found.is_empty() {
            return;
        }
        let name = fs::read_to_string(directory.join("comm")).unwrap_or_default();
        for (file, writes) in found {
            let opener = Opener { process, name: name.trim().into(), writes };
            self.by_file.entry(file).or_default().push(opener);
        }
    }
}

/// In words, after "is open".
pub(super) fn by_whom(by: &[Opener]) -> String {
    const NAMED_MAX: usize = 5;
    match by {
        [] => "in a process of somebody else".into(),
        by => {
            let names: Vec<_> = by.iter().take(NAMED_MAX).map(ToString::to_string).collect();
            let others = match by.len().saturating_sub(NAMED_MAX) {
                0 => String::new(),
                others => format!(" and {others} others"),
            };
            format!("in {}{others}", names.join(", "))
        }
    }
}

/// Whether a descriptor is open for writing; its flags are in octal.
fn may_write(info: &Path) -> bool {
    let text = fs::read_to_string(info).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u64::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & 0b11 != 0)
}

/// The file of a line of `maps`, and whether what is written to the mapping is written to it.
fn mapped(line: &str) -> Option<((u64, u64), bool)> {
    let mut fields = line.split_ascii_whitespace();
    let (_, rights, _) = (fields.next()?, fields.next()?, fields.next()?);
    let (major, minor) = fields.next()?.split_once(':')?;
    let device =
        makedev(u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let inode = fields.next()?.parse().ok().filter(|inode| *inode != 0)?;
    Some(((device, inode), rights.contains('w') && rights.contains('s')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_tells_file_and_right() {
        let line = "7f00-7f01 rw-s 00001000 fe:00 1234                     /a file";
        assert_eq!(mapped(line), Some(((makedev(0xfe, 0), 1234), true)));
        let line = "7f00-7f01 rw-p 00000000 fe:00 1234 /a file";
        assert_eq!(mapped(line), Some(((makedev(0xfe, 0), 1234), false)));
        assert_eq!(mapped("7f00-7f01 rw-p 00000000 00:00 0 [heap]"), None);
        assert_eq!(mapped("nonsense"), None);
    }

    #[test]
    fn a_process_that_has_a_file_open_is_named_with_what_it_may_do() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let found = stat(file.path()).unwrap();
        let file_number = (found.st_dev, found.st_ino);
        let opened = fs::OpenOptions::new().append(true).open(file.path()).unwrap();
        let mut child =
            std::process::Command::new("sleep").arg("60").stdout(opened).spawn().unwrap();
        // `sleep` may not run yet; its descriptor is there once it is.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let found = loop {
            let found = Openers::look(&[file_number]).of(file_number).to_vec();
            if found.iter().any(|opener| opener.name == "sleep")
                || std::time::Instant::now() > deadline
            {
                break found;
            }
        };
        child.kill().unwrap();
        child.wait().unwrap();
        let opener = found.iter().find(|opener| opener.process == child.id()).unwrap();
        assert_eq!((opener.name.as_str(), opener.writes), ("sleep", true));
    }
}
