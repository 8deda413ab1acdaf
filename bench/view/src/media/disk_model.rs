//! Model of a slow disk: a file system in user space with one file, `disk`. The file holds a disk's
//! bytes in memory, and reads take as long as on a hard disk of 7200 rotations a minute.
//!
//! The model: a read that does not continue at the last one's end, or slightly after it, waits for
//! an average seek and half a rotation; all bytes from there on pass under the head at 120 MB/s.
//! Reads do not overlap. Writes take no time: no measured program waits for one. (Limits of control
//! groups cannot replace the model: they let the first tenth of a second's reads through at once,
//! and a page needs no more.)
//!
//! The model runs in a separate process, so that the kernel never waits for a process that waits
//! for the kernel, and ends with the benchmark.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};

use fuser::{
    FileAttr, FileType, Filesystem, MountOption, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Request, TimeOrNow, consts::FOPEN_DIRECT_IO,
};
use rustix::process::{Signal, set_parent_process_death_signal};

use harness::Outcome;

/// Size of the disk. Only written parts take memory.
pub const DISK_BYTES: u64 = 1 << 30;
pub const FILE: &str = "disk";
/// 8.5 ms for an average seek, 4.2 ms for half a rotation.
pub const SEEK: Duration = Duration::from_micros(12_700);
pub const BYTES_PER_SECOND: u64 = 120_000_000;
/// Largest skip ahead for which waiting is faster than a seek.
const AHEAD_BYTES_MOST: u64 = 1 << 20;

const FOLDER: u64 = 1;
const DISK: u64 = 2;
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// Position of the head.
struct Head {
    at: u64,
}

impl Head {
    /// Moves the head over a read, and returns the time that takes.
    fn read(&mut self, offset: u64, length: u64) -> Duration {
        let end = offset + length;
        let ahead = offset.checked_sub(self.at).filter(|ahead| *ahead <= AHEAD_BYTES_MOST);
        let (wait, bytes) = match ahead {
            Some(ahead) => (Duration::ZERO, ahead + length),
            None => (SEEK, length),
        };
        self.at = end;
        wait + Duration::from_secs_f64(bytes as f64 / BYTES_PER_SECOND as f64)
    }
}

struct SlowDisk {
    bytes: Vec<u8>,
    head: Head,
}

impl SlowDisk {
    fn about(&self, node: u64) -> FileAttr {
        let folder = node == FOLDER;
        FileAttr {
            ino: node,
            size: if folder { 0 } else { DISK_BYTES },
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if folder { FileType::Directory } else { FileType::RegularFile },
            perm: if folder { 0o700 } else { 0o600 },
            nlink: 1,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            flags: 0,
            blksize: 4096,
        }
    }

    fn range(&self, offset: i64, length: usize) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(offset).ok()?.min(self.bytes.len());
        Some(start..start.saturating_add(length).min(self.bytes.len()))
    }
}

impl Filesystem for SlowDisk {
    fn lookup(&mut self, _: &Request, parent: u64, name: &OsStr, reply: ReplyEntry) {
        match parent == FOLDER && name == FILE {
            true => reply.entry(&FOREVER, &self.about(DISK), 0),
            false => reply.error(libc::ENOENT),
        }
    }

    fn getattr(&mut self, _: &Request, node: u64, _: Option<u64>, reply: ReplyAttr) {
        match node {
            FOLDER | DISK => reply.attr(&FOREVER, &self.about(node)),
            _ => reply.error(libc::ENOENT),
        }
    }

    /// Ignores all changes, so opening with truncation keeps the disk's bytes.
    fn setattr(
        &mut self,
        _: &Request,
        node: u64,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<std::time::SystemTime>,
        _: Option<u64>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<u32>,
        reply: ReplyAttr,
    ) {
        reply.attr(&FOREVER, &self.about(node));
    }

    fn open(&mut self, _: &Request, _: u64, _: i32, reply: ReplyOpen) {
        // Direct I/O: the kernel caches nothing of this file, so every read arrives here.
        reply.opened(0, FOPEN_DIRECT_IO);
    }

    fn read(
        &mut self,
        _: &Request,
        _: u64,
        _: u64,
        offset: i64,
        size: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyData,
    ) {
        let start = Instant::now();
        let Some(range) = self.range(offset, size as usize) else {
            return reply.error(libc::EINVAL);
        };
        let takes = self.head.read(range.start as u64, range.len() as u64);
        std::thread::sleep(takes.saturating_sub(start.elapsed()));
        reply.data(&self.bytes[range]);
    }

    fn write(
        &mut self,
        _: &Request,
        _: u64,
        _: u64,
        offset: i64,
        data: &[u8],
        _: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyWrite,
    ) {
        match self.range(offset, data.len()) {
            Some(range) if range.len() == data.len() => {
                self.bytes[range].copy_from_slice(data);
                reply.written(data.len() as u32);
            }
            _ => reply.error(libc::ENOSPC),
        }
    }

    fn flush(&mut self, _: &Request, _: u64, _: u64, _: u64, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&mut self, _: &Request, _: u64, _: u64, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }
}

/// Runs as the child process: serves the disk until it is unmounted or the parent ends.
pub fn serve(mount_point: &str) -> Outcome {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let bytes = vec![0; usize::try_from(DISK_BYTES)?];
    let disk = SlowDisk { bytes, head: Head { at: 0 } };
    let options = [MountOption::FSName("evermap-view-bench".to_string()), MountOption::NoDev];
    Ok(fuser::mount2(disk, Path::new(mount_point), &options)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_read_that_does_not_continue_waits_for_a_seek() {
        let mut head = Head { at: 0 };
        assert!(head.read(100 << 20, 4096) > SEEK);
        assert!(head.read((100 << 20) + 4096, 4096) < Duration::from_millis(1));
        // A step back needs a seek.
        assert!(head.read(100 << 20, 4096) > SEEK);
    }

    #[test]
    fn a_short_skip_ahead_passes_at_the_speed_of_the_disk() {
        let mut head = Head { at: 0 };
        let takes = head.read(1_000_000, 200_000);
        assert_eq!(takes, Duration::from_secs_f64(0.01));
        let mut head = Head { at: 0 };
        assert!(head.read(2 << 20, 4096) > SEEK);
    }

    #[test]
    fn a_second_of_sequential_reads_delivers_the_disks_rate() {
        let mut head = Head { at: 0 };
        let chunk = 128 << 10;
        let takes: Duration = (0..915).map(|number| head.read(number * chunk, chunk)).sum();
        assert!((takes.as_secs_f64() - 1.0).abs() < 0.01, "{takes:?}");
    }
}
