//! Notes about a stored page: its disk is slow, or its missing resources were requested again.
// The derive writes `unsafe impl`s after checking the layout at compile time. This file has no
// other unsafe code.
#![allow(unsafe_code)]

use evermap::{Error, Persist, Store};
use url::Url;

use super::names::{retry_name, slow_name};
use crate::Result;
use crate::layout::Layout;

/// Reads a note. Costs a catalog lookup if there is none.
fn read<T: Persist + Copy>(store: &Store, name: &str) -> Option<T> {
    if !store.contains(name).ok()? {
        return None;
    }
    Some(*store.read::<T>(name).ok()?)
}

/// Root of a note that reading the stored page took longer than laying it out. This happens to
/// large pages on slow disks.
#[derive(Clone, Copy, Debug, PartialEq, Persist)]
#[persist(name = "EvermapSlowPage")]
#[repr(C)]
pub struct SlowPage {
    /// Duration of the warm visit.
    pub warm_us: u64,
    /// Duration of the cold visit.
    pub cold_us: u64,
    /// Time of the note, nanoseconds since 1970.
    pub noted_ns: u64,
}

/// Lifetime of the note. By then the file may be in the page cache or on another disk.
const SLOW_IS_TRUSTED_NS: u64 = 24 * 3_600 * 1_000_000_000;

impl SlowPage {
    /// Returns the note of a page, or `None` if it has expired. Costs a catalog lookup.
    pub fn of(store: &Store, url: &Url, layout: Layout, now_ns: u64) -> Option<SlowPage> {
        let noted: SlowPage = read(store, &slow_name(url, layout))?;
        (now_ns.saturating_sub(noted.noted_ns) < SLOW_IS_TRUSTED_NS).then_some(noted)
    }

    /// Writes the note.
    ///
    /// # Errors
    /// Fails if the store can't be written.
    pub fn note(self, store: &Store, url: &Url, layout: Layout) -> Result<()> {
        Ok(store.replace::<SlowPage, _>(&slow_name(url, layout), self)?)
    }

    /// Removes a note that is wrong: laying the page out took `cold_us`, which is longer than the
    /// noted warm visit.
    ///
    /// # Errors
    /// Fails if the store can't be written.
    pub fn correct(store: &Store, url: &Url, layout: Layout, cold_us: f64) -> Result<()> {
        let name = slow_name(url, layout);
        if !store.contains(&name)? {
            return Ok(());
        }
        match store.read::<SlowPage>(&name) {
            Ok(noted) if noted.warm_us as f64 >= cold_us => Ok(()),
            _ => Ok(store.remove(&name)?),
        }
    }
}

/// Root of a note that the missing resources of a page were requested again without success.
#[derive(Clone, Copy, Debug, PartialEq, Persist)]
#[persist(name = "EvermapRetry")]
#[repr(C)]
pub struct RetryNote {
    /// Time of the last attempt, nanoseconds since 1970.
    pub tried_ns: u64,
    /// Number of attempts.
    pub attempts: u64,
}

/// Wait between the first and the second attempt. Each later wait is twice as long as the previous
/// one.
const RETRY_NS_MIN: u64 = 10 * 1_000_000_000;
/// Longest wait between attempts.
const RETRY_NS_MAX: u64 = 600 * 1_000_000_000;

impl RetryNote {
    /// Returns the note of a page. Costs a catalog lookup.
    pub fn of(store: &Store, url: &Url, layout: Layout) -> Option<RetryNote> {
        read(store, &retry_name(url, layout))
    }

    /// Returns true if it is too early for another attempt.
    pub fn is_recent(&self, now_ns: u64) -> bool {
        let doublings = self.attempts.saturating_sub(1).min(16);
        let wait_ns = (RETRY_NS_MIN << doublings).min(RETRY_NS_MAX);
        now_ns.saturating_sub(self.tried_ns) < wait_ns
    }

    /// Writes the note.
    ///
    /// # Errors
    /// Fails if the store can't be written.
    pub fn note(self, store: &Store, url: &Url, layout: Layout) -> Result<()> {
        Ok(store.replace::<RetryNote, _>(&retry_name(url, layout), self)?)
    }

    /// Removes the note, if there is one, because nothing is missing any more.
    ///
    /// # Errors
    /// Fails if the store can't be written.
    pub fn forget(store: &Store, url: &Url, layout: Layout) -> Result<()> {
        match store.remove(&retry_name(url, layout)) {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
