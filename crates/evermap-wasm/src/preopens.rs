//! Preopened directories: checks that they give a guest neither the store's files nor the memory of
//! processes.
//!
//! A directory can have several paths, by symbolic links and bind mounts, so this module does not
//! compare paths. For each mount, the kernel's mount table has the part of the file system that it
//! shows. The *place* of a directory or of a mount is its file system and the path in that file
//! system. If one place lies inside another, both show the same files. The check reads the table
//! once, however large the directories are.
//!
//! The check uses the table at the guest's start. It does not see later mounts and moves, layers of
//! overlay file systems, and hard links to the store's files.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::error::{Error, Result};

/// A host directory that a guest sees.
#[derive(Clone, Debug)]
pub(crate) struct Preopen {
    pub(crate) host: PathBuf,
    pub(crate) guest: String,
    pub(crate) writable: bool,
}

/// The preopened directories of one guest, open and checked.
#[derive(Default)]
pub(crate) struct Preopens {
    opened: Vec<OwnedFd>,
}

impl Preopens {
    /// Opens the directories. Refuses one that contains files of the store at any depth, lies in
    /// the store, or contains a `proc` file system.
    pub(crate) fn open<'a>(
        preopens: impl Iterator<Item = &'a Preopen>,
        store: &Path,
    ) -> Result<Preopens> {
        let mut preopens = preopens.peekable();
        if preopens.peek().is_none() {
            return Ok(Preopens::default());
        }
        let mut opened = Vec::new();
        let preopens: Vec<&Preopen> = preopens.collect();
        for preopen in &preopens {
            opened.push(open_directory(&preopen.host)?);
        }
        // Read after the directories were opened, so that the table has their mounts.
        let mounts = Mounts::read()?;
        let of_store = places_of_store(&mounts, store)?;
        for (preopen, directory) in preopens.iter().zip(&opened) {
            for seen in mounts.seen_from(directory, &preopen.host)? {
                if seen.mount.is_processes {
                    return Err(Error::PreopenHoldsProcesses {
                        preopened: preopen.host.clone(),
                        mount: seen.mount.point.clone(),
                    });
                }
                if of_store.iter().any(|place| place.overlaps(&seen)) {
                    return Err(Error::PreopenHoldsStore {
                        preopened: preopen.host.clone(),
                        store: store.to_path_buf(),
                    });
                }
            }
        }
        Ok(Preopens { opened })
    }

    /// Returns paths to the checked directories. They are valid during the life of this value.
    pub(crate) fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.opened.iter().map(|opened| path_of(opened, "fd"))
    }
}

fn open_directory(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|e| Error::io("open", path)(e.into()))
}

fn path_of(descriptor: &OwnedFd, what: &str) -> PathBuf {
    format!("/proc/self/{what}/{}", descriptor.as_raw_fd()).into()
}

/// Returns the places of the store's files: its directory, its folders (links are followed), and
/// the mounts below.
fn places_of_store<'a>(mounts: &'a Mounts, store: &Path) -> Result<Vec<Place<'a>>> {
    let mut places = mounts.seen_from(&open_directory(store)?, store)?;
    for entry in fs::read_dir(store).map_err(Error::io("list", store))? {
        let path = entry.map_err(Error::io("list", store))?.path();
        if path.is_dir() {
            places.extend(mounts.seen_from(&open_directory(&path)?, &path)?);
        }
    }
    Ok(places)
}

/// A line of the kernel's mount table.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    id: u64,
    parent: u64,
    /// The file system's device number.
    device: String,
    /// The part of the file system that is mounted.
    root: PathBuf,
    /// The path where it is mounted.
    point: PathBuf,
    /// True for a `proc` file system, which gives access to memory and files of processes.
    is_processes: bool,
}

/// A directory: its mount and its path in the file system.
struct Place<'a> {
    mount: &'a Mount,
    inside: PathBuf,
}

impl Place<'_> {
    /// Returns true if one place lies inside the other, or both are the same.
    fn overlaps(&self, other: &Place<'_>) -> bool {
        let contained =
            self.inside.starts_with(&other.inside) || other.inside.starts_with(&self.inside);
        self.mount.device == other.mount.device && contained
    }
}

struct Mounts(Vec<Mount>);

/// The mount table of this thread, because a thread can have its own mount namespace.
const TABLE: &str = "/proc/thread-self/mountinfo";

impl Mounts {
    fn read() -> Result<Mounts> {
        let table = fs::read(TABLE).map_err(Error::io("read", TABLE))?;
        Mounts::parse(&table)
            .ok_or_else(|| Error::io("parse", TABLE)(io::ErrorKind::InvalidData.into()))
    }

    fn parse(table: &[u8]) -> Option<Mounts> {
        let lines = table.split(|&b| b == b'\n').filter(|line| !line.is_empty());
        lines.map(parse_line).collect::<Option<Vec<Mount>>>().map(Mounts)
    }

    /// Returns the places that a guest sees from a directory: the directory itself and the mounts
    /// below it.
    fn seen_from(&self, directory: &OwnedFd, display_path: &Path) -> Result<Vec<Place<'_>>> {
        let path =
            fs::read_link(path_of(directory, "fd")).map_err(Error::io("look up", display_path))?;
        let id = mount_of(directory).map_err(Error::io("look up the mount of", display_path))?;
        let lost = || Error::io("find the mount of", display_path)(io::ErrorKind::NotFound.into());
        let mount = self.by_id(id).ok_or_else(lost)?;
        let below = path.strip_prefix(&mount.point).map_err(|_| lost())?;
        let mut places = vec![Place { mount, inside: mount.root.join(below) }];
        places.extend(
            self.0
                .iter()
                .filter(|other| other.point.starts_with(&path) && self.is_on(other, id))
                .map(|mount| Place { mount, inside: mount.root.clone() }),
        );
        Ok(places)
    }

    fn by_id(&self, id: u64) -> Option<&Mount> {
        self.0.iter().find(|mount| mount.id == id)
    }

    /// Returns true if the mount was made on mount `id`, directly or on mounts in between.
    fn is_on(&self, mount: &Mount, id: u64) -> bool {
        let mut above = mount;
        // Bounded by the table's length, in case its parents form a cycle.
        for _ in 0..self.0.len() {
            if above.parent == id {
                return above.id != id;
            }
            match self.by_id(above.parent) {
                Some(parent) => above = parent,
                None => return false,
            }
        }
        false
    }
}

/// Returns the id of the mount that an open directory lies on.
fn mount_of(directory: &OwnedFd) -> io::Result<u64> {
    let known = fs::read_to_string(path_of(directory, "fdinfo"))?;
    let number = known.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    number.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Parses `ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAGS...] - TYPE SOURCE OPTIONS`, see
/// proc_pid_mountinfo(5).
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|&b| b == b' ');
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse().ok();
    let (id, parent) = (number(words.next()?)?, number(words.next()?)?);
    let device = String::from_utf8(words.next()?.to_vec()).ok()?;
    let (root, point) = (unescaped(words.next()?), unescaped(words.next()?));
    let kind = words.skip_while(|word| *word != b"-").nth(1)?;
    Some(Mount { id, parent, device, root, point, is_processes: kind == b"proc" })
}

/// Decodes a path. The kernel writes blanks and backslashes as `\` and three octal digits.
fn unescaped(word: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| first == b'\\');
        let code = digits.and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    OsStr::from_bytes(&bytes).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const LINES: &str = "\
20 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
21 20 0:5 / /proc rw,nosuid shared:2 master:1 - proc proc rw
30 20 8:1 /home/a\\040b/stores /srv/x\\134y rw - ext4 /dev/sda1 rw
31 30 0:30 / /srv/x\\134y/inner rw - tmpfs tmpfs rw
";

    #[test]
    fn valid_mount_lines_are_parsed_and_others_refused() {
        let mounts = Mounts::parse(LINES.as_bytes()).unwrap();
        let bind = mounts.by_id(30).unwrap();
        assert_eq!(bind.root, Path::new("/home/a b/stores"));
        assert_eq!(bind.point, Path::new("/srv/x\\y"));
        assert_eq!((bind.device.as_str(), bind.is_processes), ("8:1", false));
        assert!(mounts.by_id(21).unwrap().is_processes);
        for line in ["", "20", "x 1 8:1 / / rw - ext4 a b", "20 1 8:1 / / rw shared:1"] {
            let expected = line.is_empty().then_some(0);
            assert_eq!(Mounts::parse(line.as_bytes()).map(|mounts| mounts.0.len()), expected);
        }
    }

    #[test]
    fn a_mount_is_on_its_ancestors_only() {
        let mounts = Mounts::parse(LINES.as_bytes()).unwrap();
        let is_on = |id, other| mounts.is_on(mounts.by_id(id).unwrap(), other);
        assert!(is_on(31, 30) && is_on(31, 20) && is_on(30, 20));
        assert!(!is_on(30, 31) && !is_on(21, 30) && !is_on(30, 30));
        let round = Mounts::parse(b"1 2 0:1 / /a rw - x y z\n2 1 0:1 / /b rw - x y z\n").unwrap();
        assert!(!round.is_on(round.by_id(1).unwrap(), 9), "a cycle ends");
    }

    #[test]
    fn places_overlap_if_one_contains_the_other() {
        let mounts = Mounts::parse(LINES.as_bytes()).unwrap();
        let place = |id: u64, inside: &str| Place {
            mount: mounts.by_id(id).unwrap(),
            inside: inside.into(),
        };
        let store = place(20, "/home/a b/stores/mine");
        assert!(store.overlaps(&place(30, "/home/a b/stores")), "the bind mount contains it");
        assert!(
            store.overlaps(&place(30, "/home/a b/stores/mine/objects")),
            "a folder of the store"
        );
        assert!(!store.overlaps(&place(30, "/home/a b/stores/mine2")));
        assert!(!store.overlaps(&place(31, "/")), "another file system");
    }
}
