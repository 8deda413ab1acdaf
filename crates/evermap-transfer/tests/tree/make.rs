//! Trees to copy.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

use evermap_transfer::tree::{self, TreeMeter, TreeOptions, TreeReport};

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Reports a skipped test on stderr.
pub fn skip(what: &str) {
    eprintln!("SKIPPED: {what}");
}

/// Returns a directory on the fastest file system, for tests with many files.
pub fn fast() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

pub fn copy(source: &Path, target: &Path) -> TreeReport {
    copy_with(source, target, &TreeOptions::default())
}

pub fn copy_with(source: &Path, target: &Path, options: &TreeOptions) -> TreeReport {
    tree::copy(source, target, options, &TreeMeter::default()).unwrap()
}

pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Sets times long ago with distinct nanoseconds, which no file has by chance.
pub fn set_times(path: &Path, seed: i64) {
    let time = |nanoseconds| Timespec { tv_sec: 1_000_000_000 + seed, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: time(123_456_789), last_modification: time(987_654_321) };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

pub fn set_xattr(path: &Path, name: &str, value: &[u8]) -> bool {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).is_ok()
}

/// Returns `user::rw- user:1234:rwx group::r-- mask::rwx other::---` in the kernel's format.
pub fn acl(group: u16) -> Vec<u8> {
    let none = u32::MAX;
    let entries =
        [(1u16, 6u16, none), (2, 7, 1234), (4, group, none), (16, 7, none), (32, 0, none)];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Creates a file with data at the given offsets and holes between.
pub fn sparse(path: &Path, length: u64, data: &[(u64, usize)]) {
    let file = fs::File::create(path).unwrap();
    for (offset, bytes) in data {
        file.write_all_at(&vec![0x5a; *bytes], *offset).unwrap();
    }
    file.set_len(length).unwrap();
}

/// Creates a tree with one of each kind of entry.
pub fn everything(root: &Path) {
    let inner = root.join("inner/deeper");
    fs::create_dir_all(&inner).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    for size in [0, 1, 4095, 4096, 4097, (256 << 10) - 1, 256 << 10, (256 << 10) + 1, 1 << 20] {
        let content: Vec<u8> =
            (0..size).map(|at: usize| (at * 7 + at / 251 + size) as u8).collect();
        fs::write(inner.join(format!("size {size}")), content).unwrap();
    }
    sparse(&root.join("hole at the start"), 200 << 10, &[(128 << 10, 72 << 10)]);
    sparse(&root.join("hole at the end"), 200 << 10, &[(0, 4096)]);
    sparse(&root.join("only a hole"), 100 << 10, &[]);
    sparse(&root.join("large with holes"), 8 << 20, &[(1 << 20, 4096), (5 << 20, 300 << 10)]);
    for (name, mode) in [("setuid", 0o4755), ("setgid", 0o2711), ("sticky", 0o1644), ("nothing", 0)]
    {
        fs::write(root.join(name), name).unwrap();
        set_mode(&root.join(name), mode);
    }
    let names: [&[u8]; 4] = [b"new\nline", b"\xff\xfe not UTF-8", b"-rf", b" * ? ; "];
    for name in names {
        fs::write(root.join(OsStr::from_bytes(name)), name).unwrap();
    }
    fs::write(root.join("n".repeat(255)), "long").unwrap();
    symlink("inner/deeper", root.join("link to a directory")).unwrap();
    symlink("/nowhere/at/all", root.join("link to nothing")).unwrap();
    fs::hard_link(root.join("setuid"), inner.join("another name")).unwrap();
    fs::hard_link(root.join("setuid"), root.join("empty").join("a third name")).unwrap();
    fs::hard_link(root.join("link to nothing"), inner.join("a link's other name")).unwrap();
    fs::hard_link(root.join("large with holes"), inner.join("large, again")).unwrap();
    rustix::fs::mknodat(CWD, root.join("FIFO"), FileType::Fifo, Mode::from_raw_mode(0o666), 0)
        .unwrap();
    set_mode(&root.join("FIFO"), 0o666);
    rustix::fs::mknodat(CWD, root.join("socket"), FileType::Socket, Mode::from_raw_mode(0o600), 0)
        .unwrap();
    fs::write(root.join("xattrs"), "with").unwrap();
    set_xattr(&root.join("xattrs"), "user.short", b"value");
    set_xattr(&root.join("xattrs"), "user.empty", b"");
    set_xattr(&root.join("xattrs"), "user.long", &[7; 2000]);
    set_mode(&root.join("xattrs"), 0o444);
    fs::write(root.join("ACL"), "with").unwrap();
    set_xattr(&root.join("ACL"), "system.posix_acl_access", &acl(4));
    set_xattr(&root.join("empty"), "system.posix_acl_default", &acl(5));
    set_xattr(&root.join("inner"), "user.directory", b"too");
    if is_root() {
        everything_of_root(root);
    }
    let mut paths = vec![root.to_path_buf()];
    paths.extend(crate::compare::tree(root).keys().map(|name| root.join(name)));
    set_mode(&root.join("inner"), 0o2770);
    set_mode(&root.join("empty"), 0o555);
    for (seed, path) in paths.iter().enumerate().rev() {
        set_times(path, seed as i64);
    }
}

fn everything_of_root(root: &Path) {
    let device = rustix::fs::makedev(1, 3);
    let made = rustix::fs::mknodat(
        CWD,
        root.join("device"),
        FileType::CharacterDevice,
        Mode::from_raw_mode(0o620),
        device,
    );
    if made.is_err() {
        skip("devices: not permitted even as root");
    }
    for (name, owner) in
        [("setgid", (1234, 5678)), ("link to nothing", (1, 2)), ("FIFO", (3, 4)), ("inner", (5, 6))]
    {
        std::os::unix::fs::lchown(root.join(name), Some(owner.0), Some(owner.1)).unwrap();
    }
    // The change of owner cleared it.
    set_mode(&root.join("setgid"), 0o2711);
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    set_xattr(&root.join("setuid"), "security.capability", &capability);
    set_xattr(&root.join("link to a directory"), "trusted.of-a-link", b"kept");
}

/// Creates nested directories, deeper than a path can express.
pub fn chain(root: &Path, levels: usize) {
    fs::create_dir(root).unwrap();
    let mut directory = fs::File::open(root).unwrap();
    for level in 0..levels {
        rustix::fs::mkdirat(&directory, "d", Mode::from_raw_mode(0o755)).unwrap();
        directory =
            rustix::fs::openat(&directory, "d", open_flags(), Mode::empty()).unwrap().into();
        if level % 1000 == 999 {
            let file = rustix::fs::openat(
                &directory,
                "file",
                rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY,
                Mode::from_raw_mode(0o644),
            );
            rustix::io::write(file.unwrap(), level.to_string().as_bytes()).unwrap();
        }
    }
}

/// Returns the nesting depth and the contents of the files in it.
pub fn chain_of(root: &Path) -> (usize, Vec<String>) {
    let (mut levels, mut files) = (0, Vec::new());
    let mut directory: std::os::fd::OwnedFd = fs::File::open(root).unwrap().into();
    while let Ok(next) = rustix::fs::openat(&directory, "d", open_flags(), Mode::empty()) {
        directory = next;
        levels += 1;
        if let Ok(file) =
            rustix::fs::openat(&directory, "file", rustix::fs::OFlags::RDONLY, Mode::empty())
        {
            files.push(std::io::read_to_string(fs::File::from(file)).unwrap());
        }
    }
    (levels, files)
}

fn open_flags() -> rustix::fs::OFlags {
    rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY
}

/// Removes a tree too deep for the standard library's removal.
pub fn remove(path: &Path) {
    assert!(std::process::Command::new("rm").arg("-rf").arg(path).status().unwrap().success());
}

/// A mount, undone on drop.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Mounts. Returns `None` with a message if that is not permitted.
    pub fn new(arguments: &[&OsStr], at: &Path) -> Option<Mounted> {
        fs::create_dir_all(at).unwrap();
        let mounted = std::process::Command::new("mount").args(arguments).arg(at).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Mounted(at.to_path_buf())),
            _ => {
                skip("mounts are not permitted here");
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
