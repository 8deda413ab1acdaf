//! Counts bytes written to the disk in two ways.
//!
//! `/proc/self/io` counts page cache that this process made dirty. It excludes other processes, but
//! also the file system's metadata; a page made dirty twice before it is written counts once; and
//! four kilobytes written into a large piece of page cache (folio) count as the whole folio, up to
//! 2 MiB. The disk's own counter is exact, but includes other programs. On a quiet machine it is
//! the better figure.

use harness::Outcome;
use harness::files;
use std::os::unix::fs::MetadataExt;

/// Values of both counters, in bytes.
#[derive(Clone, Copy)]
pub struct Written {
    pub process: u64,
    pub disk: Option<u64>,
}

impl Written {
    /// Reads the counters after everything was written to the disk.
    pub fn now() -> Outcome<Written> {
        // SAFETY: `sync` takes no arguments.
        unsafe { libc::sync() };
        let io = std::fs::read_to_string("/proc/self/io")?;
        let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        let process = line.ok_or("/proc/self/io has no write_bytes")?.trim().parse()?;
        Ok(Written { process, disk: disk() })
    }

    pub fn since(self, before: Written) -> Written {
        let disk = self.disk.zip(before.disk).map(|(now, then)| now - then);
        Written { process: self.process - before.process, disk }
    }
}

/// Returns the bytes written to the disk that holds the benchmarks' folder.
fn disk() -> Option<u64> {
    let device = std::fs::metadata(files::working()).ok()?.dev();
    let path = format!("/sys/dev/block/{}:{}/stat", libc::major(device), libc::minor(device));
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.split_whitespace().nth(6)?.parse::<u64>().ok()? * 512)
}
