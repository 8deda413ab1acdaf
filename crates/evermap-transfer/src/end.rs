//! The two ends of a transfer: descriptors and the properties that engines depend on.
//!
//! The properties are queried once, when an [`End`] is created.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use evermap_observe::{DirectAlignment, FileSystem};
use rustix::fs::{self, FileType, OFlags, Statx, StatxFlags};
use rustix::io::Errno;

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
    /// Socket. Engines expect a connected stream socket.
    Socket,
    /// Block device.
    Block,
    /// Character device, such as a terminal or `/dev/zero`.
    Character,
}

/// Queries the attributes of a descriptor, with the alignment for direct I/O.
pub(crate) fn statx_of(file: BorrowedFd<'_>) -> Result<Statx, Errno> {
    fs::statx(file, c"", fs::AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN)
}

/// One end of a transfer.
#[derive(Debug, Clone)]
pub struct End<'a> {
    descriptor: BorrowedFd<'a>,
    path: PathBuf,
    kind: Kind,
    stat: Statx,
    append: bool,
    file_system: FileSystem,
}

impl<'a> End<'a> {
    /// Queries the properties of a descriptor. `path` is used in messages; without a path, pass a
    /// description.
    ///
    /// Cost: `statx`, `fstatfs`, `fcntl`.
    pub fn new(descriptor: BorrowedFd<'a>, path: &Path) -> Result<End<'a>> {
        let stat = statx_of(descriptor).map_err(Error::io("read the attributes of", path))?;
        End::with_stat(descriptor, path, stat)
    }

    /// Like [`End::new`], with the result of [`statx_of`] for this descriptor.
    pub(crate) fn with_stat(
        descriptor: BorrowedFd<'a>,
        path: &Path,
        stat: Statx,
    ) -> Result<End<'a>> {
        let failed = |what| Error::io(what, path);
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
                return Err(Error::io("move the bytes of", path)(Errno::ISDIR));
            }
            _ => Kind::Character,
        };
        Ok(End {
            descriptor,
            path: path.into(),
            kind,
            stat,
            append: status.contains(OFlags::APPEND),
            file_system,
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

    /// Returns the attributes when this end was created.
    pub(crate) fn stat(&self) -> &Statx {
        &self.stat
    }

    /// Returns the kind of object.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the size in bytes when this end was created, or 0 if `stat` reports none, as for
    /// block devices.
    pub fn size_bytes(&self) -> u64 {
        self.stat.stx_size
    }

    /// Returns the device number of its file system.
    pub fn device(&self) -> u64 {
        fs::makedev(self.stat.stx_dev_major, self.stat.stx_dev_minor)
    }

    /// Returns device and inode number.
    pub fn identity(&self) -> (u64, u64) {
        (self.device(), self.stat.stx_ino)
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
        DirectAlignment::of(&self.stat)
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

    /// Returns true if both ends have the same device number. Subvolumes of one btrfs differ.
    pub fn same_file_system(&self) -> bool {
        self.source.device() == self.target.device()
    }

    /// Returns true if both ends have offsets.
    pub fn have_offsets(&self) -> bool {
        self.source.reads_at_offsets() && self.target.writes_at_offsets()
    }
}
