//! Which files can be mapped without a promise: those that nothing can change while they are open.
//!
//! Whatever is counted in here by mistake is undefined behaviour in a program that promised nothing.

use std::os::fd::BorrowedFd;

use evermap_observe::FileSystem;
use rustix::fs::{AtFlags, Statx, StatxFlags};

/// Files that nobody can write to while they are open, root and remounts aside.
pub(super) fn is_unchangeable(file: BorrowedFd<'_>, file_system: FileSystem, stat: &Statx) -> bool {
    let attributes = rustix::fs::StatxAttributes::IMMUTABLE | rustix::fs::StatxAttributes::VERITY;
    let sealed = rustix::fs::SealFlags::WRITE | rustix::fs::SealFlags::SHRINK;
    stat.stx_attributes.intersects(attributes)
        || rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(sealed))
        || file_system.is_compressed_read_only()
        || (changes_by_its_mounts_only(file_system) && has_read_only_mounts_only(file))
}

/// What is on a disk of this machine. What servers, programs or layers below have, they may change.
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

/// Whether the file system as a whole is read-only. One mount of it may be (a container's, of a directory that is given to it) while others
/// are not.
fn has_read_only_mounts_only(file: BorrowedFd<'_>) -> bool {
    let flags = rustix::fs::StatVfsMountFlags::RDONLY;
    if !rustix::fs::fstatvfs(file).is_ok_and(|mount| mount.f_flag.contains(flags)) {
        return false;
    }
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
    let mounts = std::fs::read_to_string("/proc/thread-self/mountinfo");
    let (Ok(stat), Ok(mounts)) = (stat, mounts) else { return false };
    stat.stx_mask & StatxFlags::MNT_ID.bits() != 0 && is_read_only(&mounts, stat.stx_mnt_id)
}

/// Of a `mountinfo`: whether the file system of a mount is read-only.
fn is_read_only(mounts: &str, mount: u64) -> bool {
    let mount = mount.to_string();
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(&mount));
    let options = line.and_then(|line| line.split_once(" - ")?.1.splitn(3, ' ').nth(2));
    options.is_some_and(|options| options.split(',').any(|option| option == "ro"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_that_is_read_only_is_told_from_a_file_system_that_is() {
        let mounts = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=ro\n\
                      23 22 8:1 /data /srv ro,relatime - ext4 /dev/sda1 rw\n\
                      24 22 8:2 / /boot rw,relatime master:2 - ext4 /dev/sda2 ro\n";
        assert!(!is_read_only(mounts, 22) && !is_read_only(mounts, 23));
        assert!(is_read_only(mounts, 24));
        assert!(!is_read_only(mounts, 2) && !is_read_only("", 24));
    }
}
