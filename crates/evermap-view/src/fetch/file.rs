//! Reads `file:` addresses. Only regular files are read, because others may block. A file's type is
//! checked before it is opened, and again after it was opened with `O_NONBLOCK`.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use url::Url;

use super::call::{Call, ReadError, now_ns};
use super::cause::Cause;
use super::stamp::FileStamp;

/// Minimum age of a file's last change for its time stamps to be reliable. Some file systems count
/// in steps of two seconds, and a second change within a step would not show.
const SETTLED_NS: i64 = 2_000_000_000;

/// Returns the path of a `file:` address.
pub(super) fn path_of(url: &Url) -> Result<PathBuf, Cause> {
    url.to_file_path().map_err(|()| {
        Cause::BadAddress("a file address is `file:///` followed by an absolute path".to_string())
    })
}

/// Returns a file's bytes and its stamp.
pub(super) fn read(url: &Url, call: &Call<'_>) -> Result<(Vec<u8>, FileStamp), Cause> {
    let path = path_of(url)?;
    call.left()?;
    check_kind(&std::fs::metadata(&path).map_err(|e| cause_of(&e))?)?;
    let mut file = open(&path)?;
    let before = file.metadata().map_err(|e| cause_of(&e))?;
    check_kind(&before)?;
    call.check_size(before.size())?;
    let read_ns = now_ns();
    let bytes = call.read_all(&mut file, before.size()).map_err(|unread| match unread {
        ReadError::Limit(cause) => cause,
        ReadError::Source(e) => cause_of(&e),
    })?;
    let after = file.metadata().map_err(|e| cause_of(&e))?;
    let mut stamp = FileStamp::of(url, &before, *blake3::hash(&bytes).as_bytes());
    stamp.settled = is_settled(&stamp, read_ns) && stamp.is_of(&after);
    Ok((bytes, stamp))
}

fn open(path: &Path) -> Result<File, Cause> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)
        .map_err(|e| cause_of(&e))
}

fn check_kind(metadata: &Metadata) -> Result<(), Cause> {
    let kind = metadata.file_type();
    let what = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => {
            return Err(Cause::File("it is a directory; name a file in it".to_string()));
        }
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(Cause::File(format!("it is {what}; only regular files can be read")))
}

/// Converts an error of the kernel.
pub(super) fn cause_of(error: &io::Error) -> Cause {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Cause::NoFile,
        io::ErrorKind::PermissionDenied => Cause::File(
            "permission denied; check the permissions of the file and its directory".to_string(),
        ),
        _ => Cause::File(error.to_string()),
    }
}

fn is_settled(stamp: &FileStamp, read_ns: u64) -> bool {
    let newest_ns = stamp.modified_ns.max(stamp.changed_ns);
    i64::try_from(read_ns).unwrap_or(i64::MAX).saturating_sub(newest_ns) >= SETTLED_NS
}

impl FileStamp {
    fn of(url: &Url, metadata: &Metadata, hash: [u8; 32]) -> FileStamp {
        FileStamp {
            url: url.as_str().to_string(),
            device: metadata.dev(),
            inode: metadata.ino(),
            size_bytes: metadata.size(),
            modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
            settled: false,
            hash,
        }
    }

    /// Returns true if the metadata belongs to the same, unchanged file.
    pub(super) fn is_of(&self, metadata: &Metadata) -> bool {
        self.device == metadata.dev()
            && self.inode == metadata.ino()
            && self.size_bytes == metadata.size()
            && self.modified_ns == ns(metadata.mtime(), metadata.mtime_nsec())
            && self.changed_ns == ns(metadata.ctime(), metadata.ctime_nsec())
    }
}

fn ns(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}
