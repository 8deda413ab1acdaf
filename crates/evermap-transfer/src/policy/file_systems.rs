//! What is known of file systems by their magic numbers, where no call tells.

const BTRFS: i64 = 0x9123_683e;
const CIFS: i64 = 0xff53_4d42;
const EROFS: i64 = 0xe0f5_e1e2;
const EXT: i64 = 0xef53;
const FUSE: i64 = 0x6573_5546;
const NFS: i64 = 0x6969;
const OVERLAY: i64 = 0x794c_7630;
const RAMFS: i64 = 0x8584_58f6;
const SMB2: i64 = 0xfe53_4d42;
const SQUASHFS: i64 = 0x7371_7368;
const TMPFS: i64 = 0x0102_1994;
const VFAT: i64 = 0x4d44;
const XFS: i64 = 0x5846_5342;

/// Its name, for people.
pub(crate) fn name(magic: i64) -> String {
    let name = match magic {
        BTRFS => "btrfs",
        CIFS | SMB2 => "cifs",
        EROFS => "erofs",
        EXT => "ext4",
        FUSE => "fuse",
        NFS => "nfs",
        OVERLAY => "overlay",
        RAMFS => "ramfs",
        SQUASHFS => "squashfs",
        TMPFS => "tmpfs",
        VFAT => "vfat",
        XFS => "xfs",
        other => return format!("{other:#x}"),
    };
    name.to_string()
}

/// Whether asking it to share extents is a call for nothing.
pub(super) fn never_shares(magic: i64) -> bool {
    matches!(magic, EXT | TMPFS | RAMFS | SQUASHFS | EROFS | VFAT)
}

/// Whether files of one such file system may have different device numbers: subvolumes, layers, exports.
pub(super) fn has_many_devices(magic: i64) -> bool {
    matches!(magic, BTRFS | OVERLAY | NFS)
}

/// Whether it keeps files in memory only: nothing is ever cold there, nor made durable.
pub(super) fn is_memory(magic: i64) -> bool {
    matches!(magic, TMPFS | RAMFS)
}

/// Whether direct writes are turned into buffered ones where files have checksums, at more than the price of buffered ones.
pub(super) fn checks_what_is_written(magic: i64) -> bool {
    magic == BTRFS
}

/// Whether room that was reserved is written in another way than room that was not: btrfs does not compress it.
pub(crate) fn writes_reserved_room_otherwise(magic: i64) -> bool {
    magic == BTRFS
}
