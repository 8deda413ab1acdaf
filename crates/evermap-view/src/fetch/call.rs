//! Limits of one fetch: its time, its bytes, and its fetcher's bytes. All reading for a fetch goes
//! through this module, so that no source can exceed a limit.

use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::cause::Cause;
use super::options::FetchOptions;
use super::request::Purpose;

/// Bytes read at a time. A limit is exceeded by less than that.
const STEP_BYTES: usize = 64 << 10;

/// Maximum number of bytes that are allocated because a length was announced.
const RESERVED_MAX_BYTES: u64 = 1 << 20;

/// Time limit if `FetchOptions::timeout` overflows the clock.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Bytes that all fetches of a fetcher have read.
#[derive(Debug, Default)]
pub(super) struct Budget {
    spent_bytes: AtomicU64,
}

/// One fetch with its limits.
pub(super) struct Call<'a> {
    started: Instant,
    deadline: Instant,
    bytes_max: u64,
    total_bytes_max: u64,
    budget: &'a Budget,
}

/// Reasons why reading ended early.
pub(super) enum ReadError {
    /// A limit was exceeded.
    Limit(Cause),
    /// The source failed.
    Source(io::Error),
}

impl<'a> Call<'a> {
    pub(super) fn new(
        options: &FetchOptions,
        purpose: Purpose,
        deadline: Option<Instant>,
        budget: &'a Budget,
    ) -> Call<'a> {
        let started = Instant::now();
        let own = started.checked_add(options.timeout).unwrap_or(started + LONGEST);
        Call {
            started,
            deadline: deadline.map_or(own, |deadline| deadline.min(own)),
            bytes_max: match purpose {
                Purpose::Page => options.page_bytes_max,
                _ => options.resource_bytes_max,
            },
            total_bytes_max: options.total_bytes_max,
            budget,
        }
    }

    /// Returns the time that is left.
    pub(super) fn left(&self) -> Result<Duration, Cause> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(self.timeout()) } else { Ok(left) }
    }

    /// Returns the error for a timeout of this fetch.
    pub(super) fn timeout(&self) -> Cause {
        Cause::Timeout { after: self.started.elapsed() }
    }

    /// Checks the size of a resource against the limit.
    pub(super) fn check_size(&self, bytes: u64) -> Result<(), Cause> {
        if bytes > self.bytes_max {
            return Err(Cause::TooLarge { limit_bytes: self.bytes_max, total: false });
        }
        Ok(())
    }

    /// Counts bytes against the fetcher's limit.
    pub(super) fn spend(&self, bytes: u64) -> Result<(), Cause> {
        let before = self.budget.spent_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.total_bytes_max {
            return Err(Cause::TooLarge { limit_bytes: self.total_bytes_max, total: true });
        }
        Ok(())
    }

    /// Reads to the end, within the limits. `announced_bytes` only affects the first allocation.
    pub(super) fn read_all(
        &self,
        source: &mut dyn Read,
        announced_bytes: u64,
    ) -> Result<Vec<u8>, ReadError> {
        let mut bytes = Vec::with_capacity(announced_bytes.min(RESERVED_MAX_BYTES) as usize);
        let mut step = vec![0; STEP_BYTES];
        loop {
            match source.read(&mut step) {
                Ok(0) => return Ok(bytes),
                Ok(read) => {
                    self.check_size(bytes.len() as u64 + read as u64).map_err(ReadError::Limit)?;
                    self.spend(read as u64).map_err(ReadError::Limit)?;
                    bytes.extend_from_slice(&step[..read]);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(ReadError::Source(e)),
            }
            self.left().map_err(ReadError::Limit)?;
        }
    }
}

/// Returns the current time in nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    to_ns(SystemTime::now())
}

/// Converts a time to nanoseconds since 1970.
pub(super) fn to_ns(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
