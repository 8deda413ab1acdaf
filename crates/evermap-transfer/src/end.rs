//! The two ends of a transfer: descriptors and the properties that engines depend on.
//!
//! The properties are queried once, when an [`End`] is created.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use evermap_observe::{DirectAlignment, FileSystem};
use rustix::fs::{self, FileType, OFlags};

use crate::error::{Error, Result};

/// Kind of object behind a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Regular file with a reliable size.
    File,
    /// Regular file with an unreliable size, as in `/proc` and `/sys`.
    Generated,
    /// Pipe or FIFO.
    Pipe,
    /// Connected stream socket.
    Socket,
    /// Block device.
    Block,
    /// Other character device: a terminal, `/dev/zero`.
    Character,
}

/// One end of a transfer.
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
    /// Queries the properties of a descriptor. `path` is used in messages; without a path, pass a
    /// description.
    ///
    /// Cost: `statx`, `fstatfs`, `fcntl`.
    pub fn new(descriptor: BorrowedFd<'a>, path: &Path) -> Result<End<'a>> {
        let failed = |what| Error::io(what, path);
        let flags = fs::StatxFlags::BASIC_STATS | fs::StatxFlags::DIOALIGN;
        let stat = fs::statx(descriptor, c"", fs::AtFlags::EMPTY_PATH, flags)
            .map_err(failed("read the attributes of"))?;
        let file_system =
            FileSystem::of(descriptor).map_err(failed("read the file system type of"))?;
        let status = fs::fcntl_getfl(descriptor).map_err(failed("read the flags of"))?;
        let kind = match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::RegularFile if file_system.generates_contents() => Kind::Generated,
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

    /// Returns the descriptor, which is borrowed for `'a`.
    pub fn fd(&self) -> BorrowedFd<'a> {
        self.descriptor
    }

    /// Returns the name for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the kind of object.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the size in bytes when this end was created, or 0 if it has none.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns the device number of its file system.
    pub fn device(&self) -> u64 {
        self.device
    }

    /// Returns device and inode number.
    pub fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Returns true if the descriptor is open for appending. Most zero-copy calls refuse such a
    /// target.
    pub fn appends(&self) -> bool {
        self.append
    }

    /// Returns its file system. Pipes and sockets have one of the kernel's own.
    pub fn file_system(&self) -> FileSystem {
        self.file_system
    }

    /// Returns the alignment for direct I/O, if the file system supports it.
    pub fn direct(&self) -> Option<DirectAlignment> {
        self.direct
    }

    /// Returns true if it can be read at any offset.
    pub fn reads_at_offsets(&self) -> bool {
        matches!(self.kind, Kind::File | Kind::Generated | Kind::Block)
    }

    /// Returns true if it can be written at any offset.
    pub fn writes_at_offsets(&self) -> bool {
        matches!(self.kind, Kind::File | Kind::Block) && !self.append
    }
}

/// Source and target of a transfer.
#[derive(Debug, Clone)]
pub struct Ends<'a> {
    /// The end that is read.
    pub source: End<'a>,
    /// The end that is written.
    pub target: End<'a>,
}

impl<'a> Ends<'a> {
    /// Queries both ends.
    pub fn new(source: (&'a impl AsFd, &Path), target: (&'a impl AsFd, &Path)) -> Result<Ends<'a>> {
        Ok(Ends {
            source: End::new(source.0.as_fd(), source.1)?,
            target: End::new(target.0.as_fd(), target.1)?,
        })
    }

    /// Returns true if both ends are on one file system.
    pub fn same_file_system(&self) -> bool {
        self.source.device == self.target.device
    }

    /// Returns true if both ends have offsets.
    pub fn have_offsets(&self) -> bool {
        self.source.reads_at_offsets() && self.target.writes_at_offsets()
    }
}
