//! What one fetch may still use: its time, its bytes, and its fetcher's bytes. Whatever reads for a
//! fetch reads through here, so that no source of bytes can go round a limit.

use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use super::error::Cause;
use super::options::FetchOptions;
use super::request::Purpose;

/// Bytes read at a time: a limit is passed by less than that.
const STEP_BYTES: usize = 64 << 10;

/// Most bytes that are reserved because a length was announced.
const RESERVED_MAX_BYTES: u64 = 1 << 20;

/// The time of a fetch that may take for ever.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// What all fetches of a fetcher have read.
#[derive(Debug, Default)]
pub(super) struct Budget {
    spent_bytes: AtomicU64,
}

/// One fetch.
pub(super) struct Call<'a> {
    started: Instant,
    deadline: Instant,
    bytes_max: u64,
    total_bytes_max: u64,
    budget: &'a Budget,
}

/// Reading ended before the end.
pub(super) enum Unread {
    /// By a limit.
    Limit(Cause),
    /// By its source.
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

    /// The time that is left.
    pub(super) fn left(&self) -> Result<Duration, Cause> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(self.timeout()) } else { Ok(left) }
    }

    /// The error of who ran out of time.
    pub(super) fn timeout(&self) -> Cause {
        Cause::Timeout { after: self.started.elapsed() }
    }

    /// Is a resource of this size too large, whatever it is?
    pub(super) fn check_size(&self, bytes: u64) -> Result<(), Cause> {
        if bytes > self.bytes_max {
            return Err(Cause::TooLarge { limit_bytes: self.bytes_max, total: false });
        }
        Ok(())
    }

    /// Takes bytes from what the fetcher may read.
    pub(super) fn spend(&self, bytes: u64) -> Result<(), Cause> {
        let before = self.budget.spent_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.total_bytes_max {
            return Err(Cause::TooLarge { limit_bytes: self.total_bytes_max, total: true });
        }
        Ok(())
    }

    /// Reads to the end, within the limits. What was announced is only a hint.
    pub(super) fn read_all(
        &self,
        source: &mut dyn Read,
        announced_bytes: u64,
    ) -> Result<Vec<u8>, Unread> {
        let mut bytes = Vec::with_capacity(announced_bytes.min(RESERVED_MAX_BYTES) as usize);
        let mut step = vec![0; STEP_BYTES];
        loop {
            match source.read(&mut step) {
                Ok(0) => return Ok(bytes),
                Ok(read) => {
                    self.check_size(bytes.len() as u64 + read as u64).map_err(Unread::Limit)?;
                    self.spend(read as u64).map_err(Unread::Limit)?;
                    bytes.extend_from_slice(&step[..read]);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Unread::Source(e)),
            }
            self.left().map_err(Unread::Limit)?;
        }
    }
}

/// Nanoseconds since 1970.
pub(super) fn now_ns() -> u64 {
    to_ns(SystemTime::now())
}

/// The same of a time.
pub(super) fn to_ns(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
