//! Finds the files that a process reads, by the positions of its open files and by its mappings.
//!
//! Reads them ten times a second. Files that are opened, read and closed in between are not seen,
//! nor are reads at an offset (`pread`), which do not move the position.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use evermap_observe::proc::{field, mappings};
use serde::Serialize;

use super::process::directory;
use crate::machine::roots::text;

/// Maximum number of descriptors examined, and of files remembered.
const FILES_MAX: usize = 1_024;
/// Prefixes of files that the kernel provides and that cannot be placed elsewhere.
const VIRTUAL_PREFIXES: [&str; 4] = ["/proc/", "/sys/", "/dev/", "/memfd:"];

/// File that a process had open or mapped.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ObservedFile {
    /// Path, as shown by the process' descriptors.
    pub path: PathBuf,
    /// Length of the file.
    pub size_bytes: u64,
    /// Bytes by which the position moved forwards during the observation.
    pub read_bytes: u64,
    /// Number of times that the position moved backwards.
    pub rewinds: u64,
    /// Mapped bytes of the file.
    pub mapped_bytes: u64,
    /// True if the file was open for writing, or has a writable shared mapping.
    pub is_written: bool,
    /// True for programs and libraries: some of the file is mapped executable.
    pub is_code: bool,
}

/// Device and inode of a file.
type Key = (u64, u64);

/// Follows the files of a process.
pub(super) struct Files {
    process: u32,
    /// File and position of each descriptor.
    open: BTreeMap<u32, (Key, u64)>,
    seen: BTreeMap<Key, ObservedFile>,
    polls: u64,
}

impl Files {
    pub(super) fn new(process: u32) -> Self {
        Files { process, open: BTreeMap::new(), seen: BTreeMap::new(), polls: 0 }
    }

    /// Reads all open files.
    pub(super) fn poll(&mut self) {
        let mut there = BTreeSet::new();
        for descriptor in descriptors(self.process) {
            there.insert(descriptor);
            self.poll_file(descriptor);
        }
        self.open.retain(|descriptor, _| there.contains(descriptor));
        // Mappings seldom change, so they are read less often.
        if self.polls.is_multiple_of(16) {
            self.poll_mappings();
        }
        self.polls += 1;
    }

    /// Reads open files and mappings for the last time.
    pub(super) fn finish(&mut self) {
        self.poll();
        self.poll_mappings();
    }

    pub(super) fn seen(self) -> Vec<ObservedFile> {
        let mut all: Vec<ObservedFile> = self.seen.into_values().collect();
        all.sort_by(|one, other| {
            (other.read_bytes, other.mapped_bytes, &one.path).cmp(&(
                one.read_bytes,
                one.mapped_bytes,
                &other.path,
            ))
        });
        all
    }

    fn poll_file(&mut self, descriptor: u32) {
        let Some((key, position, is_written)) = self.position_of(descriptor) else { return };
        let before = match self.open.insert(descriptor, (key, position)) {
            Some((same, before)) if same == key => before,
            // A descriptor opened since the last look was read from its beginning. One that was
            // open at the first look had been read up to its position before.
            _ if self.polls > 0 => 0,
            _ => position,
        };
        let Some(file) = self.seen.get_mut(&key) else { return };
        file.is_written |= is_written;
        match position.checked_sub(before) {
            Some(forwards) => file.read_bytes = file.read_bytes.saturating_add(forwards),
            None => file.rewinds += 1,
        }
    }

    /// File and position of a descriptor, and whether it is open for writing.
    fn position_of(&mut self, descriptor: u32) -> Option<(Key, u64, bool)> {
        let link = directory(self.process).join("fd").join(descriptor.to_string());
        let path = fs::read_link(&link).ok()?;
        if !has_name(&path) {
            return None;
        }
        let facts = fs::metadata(&link).ok().filter(fs::Metadata::is_file)?;
        let info =
            text(&directory(self.process).join("fdinfo").join(descriptor.to_string())).ok()?;
        let position = field(&info, "pos")?.parse().ok()?;
        let flags = u32::from_str_radix(field(&info, "flags")?, 8).ok()?;
        let key = (facts.dev(), facts.ino());
        let file = self.remembered(key, &path)?;
        file.size_bytes = facts.len();
        Some((key, position, flags & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32))
    }

    fn remembered(&mut self, key: Key, path: &Path) -> Option<&mut ObservedFile> {
        if !self.seen.contains_key(&key) && self.seen.len() >= FILES_MAX {
            return None;
        }
        Some(self.seen.entry(key).or_insert_with(|| ObservedFile {
            path: path.to_owned(),
            size_bytes: 0,
            read_bytes: 0,
            rewinds: 0,
            mapped_bytes: 0,
            is_written: false,
            is_code: false,
        }))
    }

    fn poll_mappings(&mut self) {
        let Ok(maps) = text(&directory(self.process).join("maps")) else { return };
        let mut mapped: BTreeMap<Key, u64> = BTreeMap::new();
        for mapping in mappings(&maps).filter(|one| has_name(Path::new(one.name))) {
            let path = mapping.path();
            let Ok(facts) = fs::metadata(&path) else { continue };
            let key = (facts.dev(), facts.ino());
            // Another file may have the name by now.
            if facts.ino() != mapping.inode {
                continue;
            }
            let Some(file) = self.remembered(key, &path) else { continue };
            file.size_bytes = facts.len();
            file.is_code |= mapping.has('x');
            // Writes reach the file.
            file.is_written |= mapping.has('w') && mapping.has('s');
            *mapped.entry(key).or_default() += mapping.end - mapping.start;
        }
        for (key, bytes) in mapped {
            if let Some(file) = self.seen.get_mut(&key) {
                file.mapped_bytes = file.mapped_bytes.max(bytes);
            }
        }
    }
}

fn descriptors(process: u32) -> Vec<u32> {
    let entries = fs::read_dir(directory(process).join("fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).take(FILES_MAX).collect()
}

/// Returns true for the path of a file that has a name.
fn has_name(path: &Path) -> bool {
    let text = path.to_string_lossy();
    text.starts_with('/')
        && !text.ends_with(" (deleted)")
        && !VIRTUAL_PREFIXES.iter().any(|begin| text.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_the_kernel_provides_are_ignored() {
        for path in [
            "/proc/1/maps",
            "/dev/shm/x",
            "socket:[1]",
            "/tmp/x (deleted)",
            "anon_inode:[eventfd]",
            "[heap]",
            "",
        ] {
            assert!(!has_name(Path::new(path)), "{path}");
        }
        assert!(has_name(Path::new("/home/clip.mkv")));
    }
}
