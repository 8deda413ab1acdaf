//! Identity of a file, to detect changes.

use rustix::fs::Statx;

/// Attributes that change when a file does. Before Linux 6.13 timestamps tick every few
/// milliseconds: a change within one tick is detected only if the size differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size_bytes: u64,
    /// Seconds and nanoseconds of the last modification.
    pub(crate) modified: (i64, u32),
    pub(crate) changed: (i64, u32),
}

impl Identity {
    /// Extracts the identity from a `statx` result.
    pub(crate) fn of(stat: &Statx) -> Identity {
        Identity {
            device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            size_bytes: stat.stx_size,
            modified: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            changed: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
        }
    }

    /// Describes the difference in size or times to `now`, if any. Both must be of the same inode.
    pub(crate) fn differs(&self, now: &Identity) -> Option<String> {
        if self.size_bytes != now.size_bytes {
            return Some(format!(
                "size changed from {} to {} bytes",
                self.size_bytes, now.size_bytes
            ));
        }
        if self.modified != now.modified || self.changed != now.changed {
            return Some("contents or attributes were modified".to_string());
        }
        None
    }
}
