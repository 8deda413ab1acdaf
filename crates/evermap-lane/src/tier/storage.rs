//! What kind of storage a tier is, and whether files can be moved to it for good.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use evermap_observe::{FileSystem, available_bytes};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, fstatvfs, open, statx};
use serde::Serialize;

use super::error::{Error, Result};
use super::path_text;

/// A loop device may be on a file of another one; a file of one's own making may say so for ever.
const LOOPS_MAX: u32 = 4;

/// What a tier is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// Memory, by a file system: gone after a restart.
    Memory,
    /// Persistent memory that is mapped without a page cache.
    Dax,
    /// A block device.
    Disk,
    /// Another machine's or another process's.
    Remote,
}

/// The storage that a directory is on.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Storage {
    /// The directory, without links.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// Its file system's name.
    pub file_system: String,
    /// What it is made of.
    pub kind: Kind,
    /// What is free for this user.
    pub free_bytes: u64,
    /// Why files cannot be moved here for good, if they cannot.
    pub not_lasting: Option<String>,
    /// To tell whether a file is here already.
    #[serde(skip)]
    pub(super) device: u64,
}

impl Storage {
    /// Of a directory. Cost: a few calls, and two files of `/proc` and `/sys`.
    pub fn of(path: &Path) -> Result<Self> {
        let path = fs::canonicalize(path).map_err(Error::io("find the tier", path))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            open(&path, flags, Mode::empty()).map_err(Error::io("open the tier", &path))?;
        Self::of_open(path, &directory)
    }

    fn of_open(path: PathBuf, directory: &OwnedFd) -> Result<Self> {
        let failed = || Error::io("look at the tier", &path);
        let file_system = FileSystem::of(directory.as_fd()).map_err(failed())?;
        let room = fstatvfs(directory).map_err(failed())?;
        let stat = statx(
            directory,
            c"",
            AtFlags::EMPTY_PATH,
            StatxFlags::BASIC_STATS | StatxFlags::MNT_ID,
        )
        .map_err(failed())?;
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        let has_mount = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID);
        let options = has_mount.then(|| mount_options(stat.stx_mnt_id)).flatten();
        let kind = kind_of(file_system, options.as_deref());
        let mut free_bytes = room.f_bavail.saturating_mul(room.f_frsize);
        if kind == Kind::Memory {
            // What the file system allows may be more than there is.
            free_bytes = free_bytes.min(available_bytes().unwrap_or(u64::MAX));
        }
        Ok(Self {
            path,
            file_system: file_system.name().into(),
            kind,
            free_bytes,
            not_lasting: not_lasting(file_system, kind, device, 0),
            device: rustix::fs::makedev(device.0, device.1),
        })
    }

    /// Whether files can be moved here for good.
    pub fn is_lasting(&self) -> bool {
        self.not_lasting.is_none()
    }
}

fn kind_of(file_system: FileSystem, options: Option<&str>) -> Kind {
    let mut options = options.unwrap_or_default().split(',');
    if file_system.is_memory() {
        Kind::Memory
    } else if is_remote(file_system) {
        Kind::Remote
    } else if options.any(|option| matches!(option, "dax" | "dax=always")) {
        Kind::Dax
    } else {
        Kind::Disk
    }
}

fn is_remote(file_system: FileSystem) -> bool {
    const NINE_P: FileSystem = FileSystem::from_magic(0x0102_1997);
    const CEPH: FileSystem = FileSystem::from_magic(0x00c3_6400);
    let remote =
        [FileSystem::NFS, FileSystem::CIFS, FileSystem::SMB2, FileSystem::FUSE, NINE_P, CEPH];
    remote.contains(&file_system)
}

fn not_lasting(
    file_system: FileSystem,
    kind: Kind,
    device: (u32, u32),
    depth: u32,
) -> Option<String> {
    let name = file_system.name();
    match kind {
        Kind::Memory => {
            Some(format!("it is memory ({name}), and its files are gone after a restart"))
        }
        Kind::Remote => Some(format!("it is not this machine's own ({name}), and may be away")),
        _ if file_system.is_overlay() => {
            Some("it lies over other file systems, and nothing says whether those last".into())
        }
        _ => on_memory(device, depth),
    }
}

/// Whether a block device is memory after all, itself or the file that it is made of.
fn on_memory((major, minor): (u32, u32), depth: u32) -> Option<String> {
    let device = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let name = device.file_name()?.to_str()?;
    if name.starts_with("ram") || name.starts_with("zram") {
        return Some(format!(
            "its device, {name}, is memory, and its files are gone after a restart"
        ));
    }
    let backing = fs::read_to_string(device.join("loop/backing_file")).ok()?;
    let file = fs::File::open(backing.trim_end()).ok()?;
    let file_system = FileSystem::of(file.as_fd()).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    let below = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let why = (depth < LOOPS_MAX)
        .then(|| not_lasting(file_system, kind_of(file_system, None), below, depth + 1))??;
    Some(format!("its device, {name}, is a file: {why}"))
}

/// The options of a mount and of its file system, as `mountinfo` has them.
fn mount_options(id: u64) -> Option<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").ok()?;
    text.lines().find_map(|line| options_of(line, id))
}

fn options_of(line: &str, id: u64) -> Option<String> {
    let (own, system) = line.split_once(" - ")?;
    let mut fields = own.split(' ');
    let is_it = fields.next()?.parse() == Ok(id);
    let own = fields.nth(4)?;
    let system = system.split(' ').nth(2)?;
    is_it.then(|| format!("{own},{system}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_no_place_to_move_files_to() {
        let Ok(storage) = Storage::of(Path::new("/dev/shm")) else {
            return eprintln!("skipped: no /dev/shm");
        };
        assert_eq!(storage.kind, Kind::Memory);
        assert!(storage.not_lasting.unwrap().contains("gone after a restart"));
    }

    #[test]
    fn options_are_those_of_the_mount_and_of_its_file_system() {
        let line = "36 35 98:0 /sub /mnt/pm rw,noatime shared:1 - ext4 /dev/pmem0 rw,dax=always";
        let options = options_of(line, 36).unwrap();
        assert_eq!(options, "rw,noatime,rw,dax=always");
        assert_eq!(options_of(line, 35), None);
        assert_eq!(kind_of(FileSystem::EXT, Some(&options)), Kind::Dax);
        assert_eq!(kind_of(FileSystem::EXT, Some("rw,dax=never")), Kind::Disk);
        assert_eq!(kind_of(FileSystem::NFS, Some("rw")), Kind::Remote);
        assert_eq!(options_of("nonsense", 36), None);
    }

    #[test]
    fn a_tier_that_is_not_there_is_named() {
        let error = Storage::of(Path::new("/no/such/tier")).unwrap_err();
        assert!(error.to_string().contains("/no/such/tier"), "{error}");
    }
}
