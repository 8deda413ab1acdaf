//! Finds processes that have files open, from `/proc`.
//!
//! Used for messages and plans only. Without root, processes of other users are invisible, and the
//! result may be outdated when it is printed. Decisions rely on the kernel's answer to a lease.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::Path;

use evermap_observe::proc::{field, mappings};
use rustix::fs::{makedev, stat};
use serde::Serialize;

/// Process that has a file open or mapped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Opener {
    /// Process id.
    pub process: u32,
    /// Process name.
    pub name: String,
    /// True if it can write to the file.
    pub writes: bool,
}

impl fmt::Display for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.name, self.process)?;
        if self.writes { f.write_str(" for writing") } else { Ok(()) }
    }
}

/// Processes that have files open, by device and inode. Filled in one walk over `/proc`.
#[derive(Debug, Default)]
pub(super) struct Openers {
    by_file: HashMap<(u64, u64), Vec<Opener>>,
}

impl Openers {
    /// Finds the processes that have any of these files open. Makes a system call for each
    /// descriptor of each process this user may inspect.
    pub(super) fn scan(files: &[(u64, u64)]) -> Self {
        let mut openers = Self::default();
        if files.is_empty() {
            return openers;
        }
        files.iter().for_each(|file| drop(openers.by_file.insert(*file, Vec::new())));
        let own = std::process::id();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let process = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(process) = process.filter(|process| *process != own) {
                openers.scan_process(process, &entry.path());
            }
        }
        openers
    }

    /// Returns the processes that have a file open.
    pub(super) fn of(&self, file: (u64, u64)) -> &[Opener] {
        self.by_file.get(&file).map_or(&[], Vec::as_slice)
    }

    fn scan_process(&mut self, process: u32, directory: &Path) {
        let mut found: HashMap<(u64, u64), bool> = HashMap::new();
        for entry in fs::read_dir(directory.join("fd")).into_iter().flatten().flatten() {
            // `stat` follows the link to the file itself, and opens nothing.
            let Ok(stat) = stat(entry.path()) else { continue };
            if self.by_file.contains_key(&(stat.st_dev, stat.st_ino)) {
                let info = directory.join("fdinfo").join(entry.file_name());
                *found.entry((stat.st_dev, stat.st_ino)).or_default() |= may_write(&info);
            }
        }
        let maps = fs::read_to_string(directory.join("maps")).unwrap_or_default();
        for mapping in mappings(&maps) {
            let file = (makedev(mapping.device.0, mapping.device.1), mapping.inode);
            if self.by_file.contains_key(&file) {
                // Writes reach the file.
                *found.entry(file).or_default() |= mapping.has('w') && mapping.has('s');
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

/// Describes the processes, to follow "is open".
pub(super) fn opened_by(by: &[Opener]) -> String {
    const NAMED_MAX: usize = 5;
    match by {
        [] => "in a process of another user".into(),
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

/// Returns true if a descriptor is open for writing. The flags are octal.
fn may_write(info: &Path) -> bool {
    let text = fs::read_to_string(info).unwrap_or_default();
    let flags = field(&text, "flags").and_then(|flags| u64::from_str_radix(flags, 8).ok());
    flags.is_some_and(|flags| flags & 0b11 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_an_open_file_is_reported_with_its_access() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let found = stat(file.path()).unwrap();
        let file_number = (found.st_dev, found.st_ino);
        let opened = fs::OpenOptions::new().append(true).open(file.path()).unwrap();
        let mut child =
            std::process::Command::new("sleep").arg("60").stdout(opened).spawn().unwrap();
        // `sleep` may not run yet. Its descriptor exists once it does.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let found = loop {
            let found = Openers::scan(&[file_number]).of(file_number).to_vec();
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
