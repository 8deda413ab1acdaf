//! What is known of file systems by their magic numbers, where no call tells.

use std::borrow::Cow;
use std::os::fd::BorrowedFd;

use rustix::fs::fstatfs;
use rustix::io::Errno;

/// A kind of file system, as the magic number of `statfs` tells it.
///
/// ```
/// use std::os::fd::AsFd;
/// use evermap_observe::FileSystem;
/// let file = tempfile::tempfile()?;
/// let file_system = FileSystem::of(file.as_fd())?;
/// println!("on {}: {}", file_system.name(), if file_system.is_memory() { "never cold" } else { "on a disk" });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileSystem {
    magic: i64,
}

impl FileSystem {
    /// btrfs.
    pub const BTRFS: FileSystem = FileSystem::from_magic(0x9123_683e);
    /// SMB, as version 1 had it.
    pub const CIFS: FileSystem = FileSystem::from_magic(0xff53_4d42);
    /// EROFS, read-only, compressed or not.
    pub const EROFS: FileSystem = FileSystem::from_magic(0xe0f5_e1e2);
    /// exFAT.
    pub const EXFAT: FileSystem = FileSystem::from_magic(0x2011_bab0);
    /// ext2, ext3 and ext4, which have one number.
    pub const EXT: FileSystem = FileSystem::from_magic(0xef53);
    /// Any file system whose files a process makes.
    pub const FUSE: FileSystem = FileSystem::from_magic(0x6573_5546);
    /// NFS, whichever version.
    pub const NFS: FileSystem = FileSystem::from_magic(0x6969);
    /// Layers over other file systems.
    pub const OVERLAY: FileSystem = FileSystem::from_magic(0x794c_7630);
    /// Memory that is never swapped.
    pub const RAMFS: FileSystem = FileSystem::from_magic(0x8584_58f6);
    /// SMB from version 2 on.
    pub const SMB2: FileSystem = FileSystem::from_magic(0xfe53_4d42);
    /// squashfs, read-only and compressed.
    pub const SQUASHFS: FileSystem = FileSystem::from_magic(0x7371_7368);
    /// Memory.
    pub const TMPFS: FileSystem = FileSystem::from_magic(0x0102_1994);
    /// FAT.
    pub const VFAT: FileSystem = FileSystem::from_magic(0x4d44);
    /// XFS.
    pub const XFS: FileSystem = FileSystem::from_magic(0x5846_5342);

    /// The one that a file is on. Costs one system call.
    pub fn of(file: BorrowedFd<'_>) -> Result<FileSystem, Errno> {
        // The field has another type on each architecture.
        #[allow(clippy::unnecessary_cast)]
        Ok(FileSystem::from_magic(fstatfs(file)?.f_type as i64))
    }

    /// The one that has this magic number.
    pub const fn from_magic(magic: i64) -> FileSystem {
        FileSystem { magic }
    }

    /// The number, as `statfs` has it.
    pub fn magic(self) -> i64 {
        self.magic
    }

    /// Its name, for people; the number in hexadecimal where none is known.
    pub fn name(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            FileSystem::BTRFS => "btrfs",
            FileSystem::CIFS | FileSystem::SMB2 => "cifs",
            FileSystem::EROFS => "erofs",
            FileSystem::EXFAT => "exfat",
            FileSystem::EXT => "ext4",
            FileSystem::FUSE => "fuse",
            FileSystem::NFS => "nfs",
            FileSystem::OVERLAY => "overlay",
            FileSystem::RAMFS => "ramfs",
            FileSystem::SQUASHFS => "squashfs",
            FileSystem::TMPFS => "tmpfs",
            FileSystem::VFAT => "vfat",
            FileSystem::XFS => "xfs",
            other => return Cow::Owned(format!("{:#x}", other.magic)),
        })
    }

    /// Whether asking it to share extents is a call for nothing.
    pub fn never_shares(self) -> bool {
        matches!(self, FileSystem::EXT | FileSystem::EXFAT | FileSystem::VFAT)
            || self.is_memory()
            || self.is_compressed_read_only()
    }

    /// Whether files of one such file system may have different device numbers: subvolumes, layers, exports.
    pub fn has_many_devices(self) -> bool {
        matches!(self, FileSystem::BTRFS | FileSystem::OVERLAY | FileSystem::NFS)
    }

    /// Whether it keeps files in memory only: nothing is ever cold there, nor made durable.
    pub fn is_memory(self) -> bool {
        matches!(self, FileSystem::TMPFS | FileSystem::RAMFS)
    }

    /// Whether direct writes are turned into buffered ones where files have checksums, at more than the price of buffered ones.
    pub fn checks_what_is_written(self) -> bool {
        self == FileSystem::BTRFS
    }

    /// Whether room that was reserved is written in another way than room that was not: btrfs does not compress it.
    pub fn writes_reserved_room_otherwise(self) -> bool {
        self == FileSystem::BTRFS
    }

    /// Whether it is an image that is never written to and whose files are (or may be) compressed: reading takes the processor, and
    /// each thread that reads decompresses for itself.
    pub fn is_compressed_read_only(self) -> bool {
        matches!(self, FileSystem::SQUASHFS | FileSystem::EROFS)
    }

    /// Whether it lies over other file systems: what its files can do is what those can.
    pub fn is_overlay(self) -> bool {
        self == FileSystem::OVERLAY
    }

    /// Whether a process makes its files: a read may take any time, and wait for anything.
    pub fn is_fuse(self) -> bool {
        self == FileSystem::FUSE
    }

    /// Whether it makes contents up when they are read: `/proc` says that its files have 0 bytes, `/sys` 4,096.
    pub fn makes_contents_up(self) -> bool {
        const PROC: i64 = 0x9fa0;
        const SYSFS: i64 = 0x6265_6572;
        const DEBUGFS: i64 = 0x6462_6720;
        const TRACEFS: i64 = 0x7472_6163;
        const SECURITYFS: i64 = 0x7363_6673;
        const CGROUP: i64 = 0x0027_e0eb;
        const CGROUP2: i64 = 0x6367_7270;
        [PROC, SYSFS, DEBUGFS, TRACEFS, SECURITYFS, CGROUP, CGROUP2].contains(&self.magic)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn a_file_system_is_known_by_what_the_kernel_says() {
        let proc = File::open("/proc/self/status").unwrap();
        let file_system = FileSystem::of(proc.as_fd()).unwrap();
        assert!(file_system.makes_contents_up() && !file_system.is_memory());
        assert_eq!(file_system.name(), "0x9fa0");
    }

    #[test]
    fn images_and_memory_share_nothing_and_layers_may() {
        for file_system in [FileSystem::SQUASHFS, FileSystem::EROFS, FileSystem::TMPFS] {
            assert!(file_system.never_shares(), "{}", file_system.name());
        }
        for file_system in [FileSystem::BTRFS, FileSystem::XFS, FileSystem::OVERLAY] {
            assert!(!file_system.never_shares(), "{}", file_system.name());
        }
    }
}
