//! Use of huge pages where they are cheap.
//!
//! A huge page saves 511 faults. It costs more than it saves in two cases:
//!
//! - No huge page is free, and the fault waits for compaction. Reading 512 MB takes 1,275 ms of
//!   processor time with huge pages, and 260 ms without.
//! - A virtual machine has returned free memory to its host. The same read takes 544 ms with huge
//!   pages, and 381 ms without.
//!
//! So a load asks for at most three quarters of the free huge pages if faults wait for compaction,
//! and for none under memory pressure. A load that fills its memory itself also measures the cost
//! of huge and small pages. It stops asking for huge pages when they cost more.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evermap_observe::HugePageSupply;
use rustix::time::{ClockId, clock_gettime};

use crate::sys::HUGE_PAGE_BYTES;
use crate::sys::advice::{SafeAdvice, advise};

/// Share of time waiting for memory above which memory is under pressure.
const PRESSURE_MAX: f64 = 0.05;
/// A load leaves one in this many free huge pages to other programs.
const LEFT_SHARE: u64 = 4;
/// Minimum bytes of small pages for a cost sample.
const SAMPLE_BYTES_MIN: usize = 256 << 10;
/// Extra processor time of huge pages after which a load stops asking for them. Earlier savings
/// count against it, up to this amount.
const LOSS_NS_MAX: i64 = 1_000_000;
/// Time after a loss during which no load of this process asks for huge pages in private memory.
const AFTER_LOSS: Duration = Duration::from_secs(10);

/// Time of the last loss, in milliseconds since the first query; 0 if none.
static LOST_AT_MS: AtomicU64 = AtomicU64::new(0);

/// Budget of huge pages for one load, shared by its threads.
#[derive(Debug)]
pub struct HugePages {
    /// Remaining number of huge pages.
    left: AtomicU64,
    /// Cost of filling a huge page's bytes in small pages, in nanoseconds of processor time; 0
    /// until measured.
    small_ns: AtomicU64,
    /// Total extra cost of huge pages over small ones, in nanoseconds.
    loss_ns: AtomicI64,
}

impl HugePages {
    /// Determines the budget for a load of `bytes`. Costs three small reads of `/proc` and `/sys`.
    /// Reads nothing for less than a huge page, or shortly after a loss.
    pub fn query(bytes: usize) -> HugePages {
        let wanted = (bytes / HUGE_PAGE_BYTES) as u64;
        let allowed = match wanted {
            0 => 0,
            _ if is_recent(LOST_AT_MS.load(Ordering::Relaxed), now_ms()) => 0,
            _ => allowed(wanted, evermap_observe::huge_page_supply(HUGE_PAGE_BYTES as u64)),
        };
        HugePages::of(allowed)
    }

    fn of(allowed: u64) -> HugePages {
        HugePages {
            left: AtomicU64::new(allowed),
            small_ns: AtomicU64::new(0),
            loss_ns: AtomicI64::new(0),
        }
    }

    /// Fills a range of memory by calling `fill` in this thread. Uses a huge page if the range is
    /// exactly one, `is_untouched` returns true, and the budget permits. Uses small pages until a
    /// range of at least `SAMPLE_BYTES_MIN` has measured their cost.
    pub fn fill<T>(
        &self,
        address: usize,
        bytes: usize,
        is_untouched: impl FnOnce() -> bool,
        fill: impl FnOnce() -> T,
    ) -> T {
        if self.left.load(Ordering::Relaxed) == 0 {
            return fill();
        }
        let can_be_huge = bytes == HUGE_PAGE_BYTES && address.is_multiple_of(HUGE_PAGE_BYTES);
        let is_small_known = self.small_ns.load(Ordering::Relaxed) > 0;
        let is_huge =
            can_be_huge && is_small_known && is_untouched() && self.advise(address, bytes) > 0;
        let begun = thread_ns();
        let filled = fill();
        let ns = thread_ns().saturating_sub(begun);
        match is_huge {
            true => self.note_huge(ns),
            false => self.note_small(ns, bytes),
        }
        filled
    }

    /// Advises whole huge pages within the budget. Returns the bytes taken from the budget, even if
    /// the kernel refuses the advice.
    pub(crate) fn advise(&self, address: usize, bytes: usize) -> usize {
        let wanted = (bytes / HUGE_PAGE_BYTES) as u64;
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left - left.min(wanted))
            })
            .map_or(0, |left| left.min(wanted));
        let bytes = taken as usize * HUGE_PAGE_BYTES;
        // Best effort: small pages hold the same bytes.
        let _ = advise(address, bytes, SafeAdvice::HugePages);
        bytes
    }

    fn note_small(&self, ns: u64, bytes: usize) {
        if bytes >= SAMPLE_BYTES_MIN {
            let ns = u128::from(ns) * HUGE_PAGE_BYTES as u128 / bytes as u128;
            self.small_ns.store((ns as u64).max(1), Ordering::Relaxed);
        }
    }

    fn note_huge(&self, ns: u64) {
        let loss = ns as i64 - self.small_ns.load(Ordering::Relaxed) as i64;
        // Limit the credit, so that one gain cannot cover many later losses.
        let sum = |before: i64| Some((before + loss).max(-LOSS_NS_MAX));
        let before = self.loss_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
        if before.unwrap_or_else(|before| before) + loss > LOSS_NS_MAX {
            self.left.store(0, Ordering::Relaxed);
            LOST_AT_MS.store(now_ms(), Ordering::Relaxed);
        }
    }
}

/// Returns the number of huge pages that a load may ask for.
fn allowed(wanted: u64, supply: Option<HugePageSupply>) -> u64 {
    // Without data from the kernel, allow all.
    let Some(supply) = supply else { return wanted };
    if supply.pressure > PRESSURE_MAX {
        return 0;
    }
    if !supply.faults_wait {
        return wanted;
    }
    let free = supply.free_bytes / HUGE_PAGE_BYTES as u64;
    wanted.min(free - free / LEFT_SHARE)
}

fn is_recent(lost_at_ms: u64, now_ms: u64) -> bool {
    lost_at_ms != 0 && now_ms.saturating_sub(lost_at_ms) < AFTER_LOSS.as_millis() as u64
}

/// Returns the milliseconds since the first call, starting at 1.
fn now_ms() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed().as_millis() as u64 + 1
}

/// Returns the processor time of this thread, which other programs do not lengthen.
fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PAGE: u64 = HUGE_PAGE_BYTES as u64;

    fn supply(free_pages: u64) -> HugePageSupply {
        HugePageSupply { free_bytes: free_pages * PAGE, faults_wait: true, pressure: 0.0 }
    }

    #[test]
    fn no_more_huge_pages_are_asked_for_than_are_free() {
        assert_eq!(allowed(256, Some(supply(1000))), 256);
        assert_eq!(allowed(256, Some(supply(100))), 75);
        assert_eq!(allowed(256, Some(supply(0))), 0);
    }

    #[test]
    fn huge_pages_are_unlimited_if_faults_do_not_wait() {
        let supply = HugePageSupply { faults_wait: false, ..supply(0) };
        assert_eq!(allowed(256, Some(supply)), 256);
        assert_eq!(allowed(256, None), 256);
    }

    #[test]
    fn memory_pressure_forbids_huge_pages() {
        assert_eq!(allowed(256, Some(HugePageSupply { pressure: 0.1, ..supply(1000) })), 0);
    }

    #[test]
    fn advice_stops_at_the_budget() {
        let region = crate::region::Region::aligned(4 * HUGE_PAGE_BYTES).unwrap();
        let pages = HugePages::of(3);
        let base = region.address() as usize;
        assert_eq!(pages.advise(base, 2 * HUGE_PAGE_BYTES), 2 * HUGE_PAGE_BYTES);
        assert_eq!(pages.advise(base, HUGE_PAGE_BYTES - 1), 0);
        assert_eq!(pages.advise(base, 2 * HUGE_PAGE_BYTES), HUGE_PAGE_BYTES);
        assert_eq!(pages.advise(base, 2 * HUGE_PAGE_BYTES), 0);
    }

    #[test]
    fn losing_more_than_a_millisecond_ends_the_budget() {
        let pages = HugePages::of(100);
        pages.note_small(100_000, HUGE_PAGE_BYTES / 4);
        let left = || pages.left.load(Ordering::Relaxed);
        for ns in [100_000, 100_000, 100_000, 2_300_000] {
            pages.note_huge(ns);
        }
        assert_eq!(left(), 100, "a gain of 0.9 ms offsets part of the loss of 1.9 ms");
        pages.note_huge(600_000);
        assert_eq!(left(), 0);
    }

    #[test]
    fn huge_pages_are_allowed_again_ten_seconds_after_a_loss() {
        assert!(!is_recent(0, 5_000), "never lost");
        assert!(is_recent(5_000, 14_999));
        assert!(!is_recent(5_000, 15_000));
    }

    #[test]
    fn the_first_range_is_small_and_touched_ranges_stay_small() {
        let region = crate::region::Region::aligned(4 * HUGE_PAGE_BYTES).unwrap();
        let pages = HugePages::of(3);
        let left = || pages.left.load(Ordering::Relaxed);
        let at = |number: usize| region.address() as usize + number * HUGE_PAGE_BYTES;
        pages.fill(at(0), HUGE_PAGE_BYTES, || true, || ());
        assert_eq!(left(), 3, "the cost of small pages is unknown before");
        pages.fill(at(1), HUGE_PAGE_BYTES, || false, || ());
        pages.fill(at(1) + 4096, HUGE_PAGE_BYTES, || true, || ());
        pages.fill(at(1), HUGE_PAGE_BYTES - 4096, || true, || ());
        assert_eq!(left(), 3);
        pages.fill(at(2), HUGE_PAGE_BYTES, || true, || ());
        assert_eq!(left(), 2);
    }
}
