//! File system with one file whose reads can be delayed or fail, like a slow or failing disk.

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
/// Time for which the kernel may cache attributes.
const ATTRIBUTE_TIMEOUT: Duration = Duration::from_secs(3600);

/// Behaviour of reads.
#[derive(Debug, Clone, Default)]
pub struct Reads {
    /// Reads wait until this file exists.
    pub gate: Option<PathBuf>,
    /// Reads that overlap this range fail.
    pub failing: std::ops::Range<usize>,
    /// The file reports a size of 0 bytes.
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
            true => reply.entry(&ATTRIBUTE_TIMEOUT, &self.attributes(FILE), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&ATTRIBUTE_TIMEOUT, &self.attributes(inode));
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
                // Only reads wait, not other requests.
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

/// Mounted file system.
pub struct Served {
    pub path: PathBuf,
    pub bytes: Arc<Vec<u8>>,
    gate: PathBuf,
    _session: BackgroundSession,
    _directory: tempfile::TempDir,
}

impl Served {
    /// Lets waiting reads continue.
    pub fn open_gate(&self) {
        std::fs::write(&self.gate, "").unwrap();
    }

    pub fn gate(&self) -> &Path {
        &self.gate
    }
}

impl Drop for Served {
    /// Releases remaining readers, so that none waits for ever.
    fn drop(&mut self) {
        let _ = std::fs::write(&self.gate, "");
    }
}

/// Serves a file of `bytes` bytes, if this process can mount. The mount is visible to this thread
/// and processes it starts.
pub fn serve(bytes: usize, is_gated: bool, reads: Reads) -> Option<Served> {
    if !Path::new("/dev/fuse").exists() || !has_own_mounts() {
        skip("this user has no access to /dev/fuse");
        return None;
    }
    let directory = directory();
    let mounted = directory.path().join("mounted");
    std::fs::create_dir(&mounted).unwrap();
    // A separate directory in which every user can create the gate file.
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
            skip(format_args!("cannot mount the test file system: {error}"));
            None
        }
    }
}
