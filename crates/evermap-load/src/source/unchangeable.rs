//! Files that can be mapped without the caller's promise, because nothing can change them while
//! they are open.
//!
//! A file accepted by mistake is undefined behaviour in a program that made no promise.

use std::os::fd::BorrowedFd;

use evermap_observe::FileSystem;
use evermap_observe::proc::{Mount, own_mounts};
use rustix::fs::{AtFlags, Statx, StatxFlags};

/// Returns true if no process can write to the file while it is open, except through root or a
/// remount.
pub(super) fn is_unchangeable(file: BorrowedFd<'_>, file_system: FileSystem, stat: &Statx) -> bool {
    let attributes = rustix::fs::StatxAttributes::IMMUTABLE | rustix::fs::StatxAttributes::VERITY;
    let sealed = rustix::fs::SealFlags::WRITE | rustix::fs::SealFlags::SHRINK;
    stat.stx_attributes.intersects(attributes)
        || rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(sealed))
        || file_system.is_compressed_read_only()
        || (changes_by_its_mounts_only(file_system) && has_read_only_mounts_only(file))
}

/// Returns true for file systems on local disks. Others can be changed by servers, programs or
/// lower layers.
fn changes_by_its_mounts_only(file_system: FileSystem) -> bool {
    matches!(
        file_system,
        FileSystem::BTRFS
            | FileSystem::EXFAT
            | FileSystem::EXT
            | FileSystem::VFAT
            | FileSystem::XFS
    )
}

/// Returns true if the whole file system is read-only. A single mount can be read-only while others
/// are writable, for example a directory passed to a container.
fn has_read_only_mounts_only(file: BorrowedFd<'_>) -> bool {
    let flags = rustix::fs::StatVfsMountFlags::RDONLY;
    if !rustix::fs::fstatvfs(file).is_ok_and(|mount| mount.f_flag.contains(flags)) {
        return false;
    }
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
    let Ok(stat) = stat else { return false };
    stat.stx_mask & StatxFlags::MNT_ID.bits() != 0 && is_read_only(&own_mounts(), stat.stx_mnt_id)
}

/// Returns true if the file system of this mount is read-only.
fn is_read_only(mounts: &[Mount], id: u64) -> bool {
    mounts.iter().find(|mount| mount.id == id).is_some_and(|mount| mount.system_has("ro"))
}

#[cfg(test)]
mod tests {
    use evermap_observe::proc::mounts;

    use super::*;

    #[test]
    fn a_read_only_mount_differs_from_a_read_only_file_system() {
        let text = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=ro\n\
                      23 22 8:1 /data /srv ro,relatime - ext4 /dev/sda1 rw\n\
                      24 22 8:2 / /boot rw,relatime master:2 - ext4 /dev/sda2 ro\n";
        let mounts = mounts(text);
        assert!(!is_read_only(&mounts, 22) && !is_read_only(&mounts, 23));
        assert!(is_read_only(&mounts, 24));
        assert!(!is_read_only(&mounts, 2) && !is_read_only(&[], 24));
    }
}
