//! Kind of storage of a tier, and whether it is persistent.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use evermap_observe::proc::{Mount, own_mounts};
use evermap_observe::{FileSystem, available_bytes};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, fstatvfs, open, statx};
use serde::Serialize;

use super::error::{Error, Result};
use super::path_text;

/// Limit for nested loop devices. A user's own backing file could claim any depth.
const LOOPS_MAX: u32 = 4;

/// Kind of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// Memory file system; its contents are lost at a restart.
    Memory,
    /// Persistent memory, mapped without a page cache.
    Dax,
    /// Block device.
    Disk,
    /// Storage of another machine or of a user-space process.
    Remote,
}

/// Storage of a directory.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Storage {
    /// The directory, without symbolic links.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// Name of its file system.
    pub file_system: String,
    /// Kind of storage.
    pub kind: Kind,
    /// Free space for this user.
    pub free_bytes: u64,
    /// Reason why files cannot be switched to this tier, or `None` if they can.
    pub not_lasting: Option<String>,
    /// Device number, to detect files that are already on the tier.
    #[serde(skip)]
    pub(super) device: u64,
}

impl Storage {
    /// Returns the storage of a directory. Makes a few system calls and reads two files in `/proc`
    /// and `/sys`.
    pub fn of(path: &Path) -> Result<Self> {
        let path = fs::canonicalize(path).map_err(Error::io("find the tier", path))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            open(&path, flags, Mode::empty()).map_err(Error::io("open the tier", &path))?;
        Self::of_open(path, &directory)
    }

    fn of_open(path: PathBuf, directory: &OwnedFd) -> Result<Self> {
        let failed = || Error::io("inspect the tier", &path);
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
            // The file system may allow more than the free memory.
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

    /// Returns true if files can be switched to this tier.
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
        Kind::Memory => Some(format!("it is memory ({name}), so its files are lost at a restart")),
        Kind::Remote => Some(format!(
            "it is remote or a user-space file system ({name}) and may become unavailable"
        )),
        _ if file_system.is_overlay() => {
            Some("it is an overlay, and its lower file systems may not be persistent".into())
        }
        _ => on_memory(device, depth),
    }
}

/// Returns the reason if a block device is memory, itself or through the file of a loop device.
fn on_memory((major, minor): (u32, u32), depth: u32) -> Option<String> {
    let device = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let name = device.file_name()?.to_str()?;
    if name.starts_with("ram") || name.starts_with("zram") {
        return Some(format!("its device {name} is memory, so its files are lost at a restart"));
    }
    let backing = fs::read_to_string(device.join("loop/backing_file")).ok()?;
    let file = fs::File::open(backing.trim_end()).ok()?;
    let file_system = FileSystem::of(file.as_fd()).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    let below = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let why = (depth < LOOPS_MAX)
        .then(|| not_lasting(file_system, kind_of(file_system, None), below, depth + 1))??;
    Some(format!("its device {name} is a file: {why}"))
}

/// Returns the options of a mount and of its file system.
fn mount_options(id: u64) -> Option<String> {
    own_mounts().iter().find(|mount| mount.id == id).map(options_of)
}

fn options_of(mount: &Mount) -> String {
    format!("{},{}", mount.options, mount.system_options)
}

#[cfg(test)]
mod tests {
    use evermap_observe::proc::mounts;

    use super::*;

    #[test]
    fn files_cannot_be_switched_to_memory() {
        let Ok(storage) = Storage::of(Path::new("/dev/shm")) else {
            return eprintln!("skipped: no /dev/shm");
        };
        assert_eq!(storage.kind, Kind::Memory);
        assert!(storage.not_lasting.unwrap().contains("lost at a restart"));
    }

    #[test]
    fn options_include_those_of_the_mount_and_of_its_file_system() {
        let line = "36 35 98:0 /sub /mnt/pm rw,noatime shared:1 - ext4 /dev/pmem0 rw,dax=always";
        let options = options_of(&mounts(line)[0]);
        assert_eq!(options, "rw,noatime,rw,dax=always");
        assert_eq!(kind_of(FileSystem::EXT, Some(&options)), Kind::Dax);
        assert_eq!(kind_of(FileSystem::EXT, Some("rw,dax=never")), Kind::Disk);
        assert_eq!(kind_of(FileSystem::NFS, Some("rw")), Kind::Remote);
    }

    #[test]
    fn a_missing_tier_is_named_in_the_error() {
        let error = Storage::of(Path::new("/no/such/tier")).unwrap_err();
        assert!(error.to_string().contains("/no/such/tier"), "{error}");
    }
}
