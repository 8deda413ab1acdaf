//! Properties of file systems, known by magic number where no system call reports them.

use std::borrow::Cow;
use std::os::fd::BorrowedFd;

use rustix::fs::fstatfs;
use rustix::io::Errno;

/// File system type, identified by the magic number of `statfs`.
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
    /// SMB version 1.
    pub const CIFS: FileSystem = FileSystem::from_magic(0xff53_4d42);
    /// EROFS, read-only, compressed or not.
    pub const EROFS: FileSystem = FileSystem::from_magic(0xe0f5_e1e2);
    /// exFAT.
    pub const EXFAT: FileSystem = FileSystem::from_magic(0x2011_bab0);
    /// ext2, ext3 and ext4, which share a magic number.
    pub const EXT: FileSystem = FileSystem::from_magic(0xef53);
    /// FUSE: a file system served by a user process.
    pub const FUSE: FileSystem = FileSystem::from_magic(0x6573_5546);
    /// NFS, all versions.
    pub const NFS: FileSystem = FileSystem::from_magic(0x6969);
    /// overlayfs, layers over other file systems.
    pub const OVERLAY: FileSystem = FileSystem::from_magic(0x794c_7630);
    /// ramfs: memory that is never swapped.
    pub const RAMFS: FileSystem = FileSystem::from_magic(0x8584_58f6);
    /// SMB version 2 and later.
    pub const SMB2: FileSystem = FileSystem::from_magic(0xfe53_4d42);
    /// squashfs, read-only and compressed.
    pub const SQUASHFS: FileSystem = FileSystem::from_magic(0x7371_7368);
    /// tmpfs: memory that can be swapped.
    pub const TMPFS: FileSystem = FileSystem::from_magic(0x0102_1994);
    /// FAT.
    pub const VFAT: FileSystem = FileSystem::from_magic(0x4d44);
    /// XFS.
    pub const XFS: FileSystem = FileSystem::from_magic(0x5846_5342);

    /// Returns the file system of a file. Costs one system call.
    pub fn of(file: BorrowedFd<'_>) -> Result<FileSystem, Errno> {
        // The field's type differs between architectures.
        #[allow(clippy::unnecessary_cast)]
        Ok(FileSystem::from_magic(fstatfs(file)?.f_type as i64))
    }

    /// Returns the file system with this magic number.
    pub const fn from_magic(magic: i64) -> FileSystem {
        FileSystem { magic }
    }

    /// Returns the magic number, as in `statfs`.
    pub fn magic(self) -> i64 {
        self.magic
    }

    /// Returns a name for display, or the number in hexadecimal if unknown.
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

    /// Returns true if the file system never supports reflinks, so the call can be skipped.
    pub fn never_reflinks(self) -> bool {
        matches!(self, FileSystem::EXT | FileSystem::EXFAT | FileSystem::VFAT)
            || self.is_memory()
            || self.is_compressed_read_only()
    }

    /// Returns true if files of one such file system can have different device numbers: subvolumes,
    /// layers or exports.
    pub fn has_many_devices(self) -> bool {
        matches!(self, FileSystem::BTRFS | FileSystem::OVERLAY | FileSystem::NFS)
    }

    /// Returns true if files live in memory only. Their data is always cached and never durable.
    pub fn is_memory(self) -> bool {
        matches!(self, FileSystem::TMPFS | FileSystem::RAMFS)
    }

    /// Returns true if direct writes to files with checksums fall back to buffered writes, at a
    /// higher cost than ordinary buffered writes.
    pub fn buffers_direct_writes(self) -> bool {
        self == FileSystem::BTRFS
    }

    /// Returns true if preallocation turns compression off, as in btrfs.
    pub fn preallocation_disables_compression(self) -> bool {
        self == FileSystem::BTRFS
    }

    /// Returns true for read-only images whose files are, or may be, compressed. Reads cost
    /// processor time, and each reading thread decompresses for itself.
    pub fn is_compressed_read_only(self) -> bool {
        matches!(self, FileSystem::SQUASHFS | FileSystem::EROFS)
    }

    /// Returns true for layers over other file systems. The capabilities of its files are those of
    /// the underlying file systems.
    pub fn is_overlay(self) -> bool {
        self == FileSystem::OVERLAY
    }

    /// Returns true if a user process serves the files. Reads can then block for any time.
    pub fn is_fuse(self) -> bool {
        self == FileSystem::FUSE
    }

    /// Returns true if file contents are generated on read. `/proc` reports a size of 0 bytes for
    /// such files, `/sys` 4,096.
    pub fn generates_contents(self) -> bool {
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
    fn proc_is_recognised_by_its_magic_number() {
        let proc = File::open("/proc/self/status").unwrap();
        let file_system = FileSystem::of(proc.as_fd()).unwrap();
        assert!(file_system.generates_contents() && !file_system.is_memory());
        assert_eq!(file_system.name(), "0x9fa0");
    }

    #[test]
    fn images_and_memory_never_reflink_but_overlay_may() {
        for file_system in [FileSystem::SQUASHFS, FileSystem::EROFS, FileSystem::TMPFS] {
            assert!(file_system.never_reflinks(), "{}", file_system.name());
        }
        for file_system in [FileSystem::BTRFS, FileSystem::XFS, FileSystem::OVERLAY] {
            assert!(!file_system.never_reflinks(), "{}", file_system.name());
        }
    }
}
