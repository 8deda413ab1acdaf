//! A file system with one file, whose reads wait at a gate and fail where they are to: a slow disk, a failing disk.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation,
    INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, Request,
    SessionACL,
};

use crate::common::{directory, has_own_mounts, pattern, skip};

const FILE: INodeNo = INodeNo(2);
/// What the kernel may take for granted of a file, and for how long.
const FOR_GOOD: Duration = Duration::from_secs(3600);

/// How its reads are.
#[derive(Debug, Clone, Default)]
pub struct Reads {
    /// They are answered when this file is there.
    pub gate: Option<PathBuf>,
    /// Those that touch this range fail.
    pub failing: std::ops::Range<usize>,
    /// The file is said to have no bytes.
    pub is_unsized: bool,
}

struct Disk {
    bytes: Arc<Vec<u8>>,
    reads: Reads,
}

impl Disk {
    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let is_file = inode == FILE;
        FileAttr {
            ino: inode,
            size: if is_file && !self.reads.is_unsized { self.bytes.len() as u64 } else { 0 },
            blocks: self.bytes.len().div_ceil(512) as u64,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_file { FileType::RegularFile } else { FileType::Directory },
            perm: if is_file { 0o444 } else { 0o755 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Disk {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == "file" {
            true => reply.entry(&FOR_GOOD, &self.attributes(FILE), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOR_GOOD, &self.attributes(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: fuser::ReplyOpen) {
        let flags = match self.reads.is_unsized {
            true => fuser::FopenFlags::FOPEN_DIRECT_IO,
            false => fuser::FopenFlags::empty(),
        };
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let begin = (offset as usize).min(self.bytes.len());
        let end = (begin + size as usize).min(self.bytes.len());
        let failing = &self.reads.failing;
        let is_lost = begin < failing.end && failing.start < end;
        let (bytes, gate) = (self.bytes.clone(), self.reads.gate.clone());
        let answer = move || match is_lost {
            true => reply.error(Errno::EIO),
            false => reply.data(&bytes[begin..end]),
        };
        match gate {
            None => answer(),
            Some(gate) => {
                // Who reads waits; whoever asks for anything else does not.
                std::thread::spawn(move || {
                    while !gate.exists() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    answer();
                });
            }
        }
    }
}

/// A mounted one.
pub struct Served {
    pub path: PathBuf,
    pub bytes: Arc<Vec<u8>>,
    gate: PathBuf,
    _session: BackgroundSession,
    _directory: tempfile::TempDir,
}

impl Served {
    /// Lets reads through.
    pub fn open_gate(&self) {
        std::fs::write(&self.gate, "").unwrap();
    }

    pub fn gate(&self) -> &Path {
        &self.gate
    }
}

impl Drop for Served {
    /// Whoever still waits must not wait for ever.
    fn drop(&mut self) {
        let _ = std::fs::write(&self.gate, "");
    }
}

/// Serves a file of so many bytes, if this process may. The mount is for this thread, and what it starts.
pub fn serve(bytes: usize, is_gated: bool, reads: Reads) -> Option<Served> {
    if !Path::new("/dev/fuse").exists() || !has_own_mounts() {
        skip("there is no /dev/fuse for this user");
        return None;
    }
    let directory = directory();
    let mounted = directory.path().join("mounted");
    std::fs::create_dir(&mounted).unwrap();
    // A directory of its own, to which anybody may add the gate.
    let gates = directory.path().join("gates");
    std::fs::create_dir(&gates).unwrap();
    std::fs::set_permissions(&gates, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let gate = gates.join("open");
    let bytes = Arc::new(pattern(bytes));
    let reads = Reads { gate: is_gated.then(|| gate.clone()), ..reads };
    let mut config = Config::default();
    config.acl = SessionACL::All;
    config.mount_options = vec![MountOption::RO, MountOption::FSName("evermap-test".into())];
    match fuser::spawn_mount(Disk { bytes: bytes.clone(), reads }, &mounted, &config) {
        Ok(session) => Some(Served {
            path: mounted.join("file"),
            bytes,
            gate,
            _session: session,
            _directory: directory,
        }),
        Err(error) => {
            skip(format_args!("no file system of this program's own: {error}"));
            None
        }
    }
}
