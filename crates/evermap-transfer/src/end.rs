//! The two ends of a transfer: descriptors, and what engines need to know of them.
//!
//! What an end is gets asked once, when it is made; engines decide by it and never ask again.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use evermap_observe::{DirectAlignment, FileSystem};
use rustix::fs::{self, FileType, OFlags};

use crate::error::{Error, Result};

/// What kind of thing a descriptor stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file whose size says how much there is.
    File,
    /// A regular file whose size is not to be believed, as in `/proc` and `/sys`.
    Generated,
    /// A pipe or FIFO.
    Pipe,
    /// A connected stream socket.
    Socket,
    /// A block device.
    Block,
    /// Any other: a terminal, `/dev/zero`.
    Character,
}

/// One end.
#[derive(Debug, Clone)]
pub struct End<'a> {
    descriptor: BorrowedFd<'a>,
    path: PathBuf,
    kind: Kind,
    size_bytes: u64,
    device: u64,
    inode: u64,
    append: bool,
    file_system: FileSystem,
    direct: Option<DirectAlignment>,
}

impl<'a> End<'a> {
    /// Looks at a descriptor. `path` is for messages, and for those that have none a description.
    ///
    /// Costs: statx, fstatfs, fcntl.
    pub fn new(descriptor: BorrowedFd<'a>, path: &Path) -> Result<End<'a>> {
        let look = |what| Error::io(what, path);
        let flags = fs::StatxFlags::BASIC_STATS | fs::StatxFlags::DIOALIGN;
        let stat =
            fs::statx(descriptor, c"", fs::AtFlags::EMPTY_PATH, flags).map_err(look("look at"))?;
        let file_system = FileSystem::of(descriptor).map_err(look("look at the file system of"))?;
        let status = fs::fcntl_getfl(descriptor).map_err(look("look at"))?;
        let kind = match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::RegularFile if file_system.makes_contents_up() => Kind::Generated,
            FileType::RegularFile => Kind::File,
            FileType::Fifo => Kind::Pipe,
            FileType::Socket => Kind::Socket,
            FileType::BlockDevice => Kind::Block,
            FileType::Directory => {
                let source = rustix::io::Errno::ISDIR.into();
                return Err(Error::Io {
                    operation: "move the bytes of",
                    path: path.into(),
                    source,
                });
            }
            _ => Kind::Character,
        };
        Ok(End {
            descriptor,
            path: path.into(),
            kind,
            size_bytes: stat.stx_size,
            device: fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            append: status.contains(OFlags::APPEND),
            file_system,
            direct: DirectAlignment::of(&stat),
        })
    }

    /// The descriptor, which is open as long as this end is.
    pub fn fd(&self) -> BorrowedFd<'a> {
        self.descriptor
    }

    /// Its name in messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The size when it was looked at, in bytes; 0 for what has none.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The device number of the file system that it is on.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// Device and inode.
    pub fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Whether every write goes to its end, whatever offset is named: most zero-copy calls refuse that.
    pub fn appends(&self) -> bool {
        self.append
    }

    /// The file system that it is on; of pipes and sockets one of the kernel's own.
    pub fn file_system(&self) -> FileSystem {
        self.file_system
    }

    /// What direct I/O asks, where the file system says that it does direct I/O.
    pub fn direct(&self) -> Option<DirectAlignment> {
        self.direct
    }

    /// Whether it can be read at any place.
    pub fn reads_at_offsets(&self) -> bool {
        matches!(self.kind, Kind::File | Kind::Generated | Kind::Block)
    }

    /// Whether it can be written at any place.
    pub fn writes_at_offsets(&self) -> bool {
        matches!(self.kind, Kind::File | Kind::Block) && !self.append
    }
}

/// Both ends.
#[derive(Debug, Clone)]
pub struct Ends<'a> {
    /// Where bytes come from.
    pub source: End<'a>,
    /// Where they go.
    pub target: End<'a>,
}

impl<'a> Ends<'a> {
    /// Looks at both.
    pub fn new(source: (&'a impl AsFd, &Path), target: (&'a impl AsFd, &Path)) -> Result<Ends<'a>> {
        Ok(Ends {
            source: End::new(source.0.as_fd(), source.1)?,
            target: End::new(target.0.as_fd(), target.1)?,
        })
    }

    /// Whether both are on one file system.
    pub fn share_a_file_system(&self) -> bool {
        self.source.device == self.target.device
    }

    /// Whether both have offsets.
    pub fn have_offsets(&self) -> bool {
        self.source.reads_at_offsets() && self.target.writes_at_offsets()
    }
}
