//! Model of a device: time to read, garbage collection and stalls.
//!
//! The profiles have four kinds (DRAM, PC-RAM, NAND flash, disks); a profile may define others.
//! Only flash collects garbage: background writes use up its free pages, and to free a block it
//! moves the pages still needed and erases. Reads that arrive in the meantime wait until it is
//! done.

use crate::random::Random;

/// Timing of a device. Created by [`Profile::device_of`](super::Profile::device_of).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Device {
    request_ms: f64,
    page_ms: f64,
    stall_share: f64,
    stall_ms: f64,
    collection: Option<Collection>,
}

/// Costs of reading, in the units of a profile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadCost {
    pub(crate) request_us: f64,
    pub(crate) page_us: f64,
    pub(crate) stall_percent: f64,
    pub(crate) stall_ms: f64,
}

/// Costs of freeing a block, in the units of a profile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flash {
    pub(crate) program_us: f64,
    pub(crate) erase_us: f64,
    pub(crate) block_pages: f64,
    pub(crate) valid_percent: f64,
}

/// Periodic garbage collection.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Collection {
    /// Time from the begin of one collection to the begin of the next.
    gap_ms: f64,
    duration_ms: f64,
}

impl Device {
    /// Creates a device under a load of background writes. Returns the reason if it would collect
    /// garbage all the time.
    pub(crate) fn of(
        read_cost: ReadCost,
        flash: Option<Flash>,
        background_pages_per_ms: f64,
    ) -> Result<Self, String> {
        let ReadCost { request_us, page_us, stall_percent, stall_ms } = read_cost;
        let collection = match flash {
            Some(flash) => Collection::of(flash, page_us, background_pages_per_ms)?,
            None => None,
        };
        let (request_ms, page_ms) = (request_us / 1e3, page_us / 1e3);
        Ok(Self { request_ms, page_ms, stall_share: stall_percent / 100.0, stall_ms, collection })
    }

    /// Returns the time to read `pages` with `requests`, without interference.
    pub fn read_ms(&self, requests: u32, pages: u32) -> f64 {
        f64::from(requests) * self.request_ms + f64::from(pages) * self.page_ms
    }

    /// Returns the duration and the interval of garbage collection, or `None` if the device does
    /// not collect garbage.
    pub fn collection_ms(&self) -> Option<(f64, f64)> {
        self.collection.map(|collection| (collection.duration_ms, collection.gap_ms))
    }

    /// Returns true if the device adds no delay to reads.
    pub(crate) fn is_steady(&self) -> bool {
        self.collection.is_none() && (self.stall_share == 0.0 || self.stall_ms == 0.0)
    }

    /// Returns the delay that garbage collection adds to I/O of this length, which begins at a
    /// random time.
    ///
    /// For the same random numbers, longer I/O never has a smaller delay.
    pub(crate) fn collection_delay_ms(&self, io_ms: f64, random: &mut Random) -> f64 {
        // Always draw, so that the numbers drawn later are the same for all devices.
        let phase = random.unit();
        match self.collection {
            Some(collection) if io_ms > 0.0 => collection.delay_ms(io_ms, phase),
            _ => 0.0,
        }
    }

    /// Returns the total stall of the requests. Each one stalls with the probability of the
    /// profile.
    pub(crate) fn stall_delay_ms(&self, requests: u32, random: &mut Random) -> f64 {
        if self.stall_share == 0.0 || self.stall_ms == 0.0 {
            return 0.0;
        }
        let stalled = (0..requests).filter(|_| random.unit() < self.stall_share).count();
        stalled as f64 * self.stall_ms
    }
}

impl Collection {
    fn of(
        Flash { program_us, erase_us, block_pages, valid_percent }: Flash,
        read_us: f64,
        pages_per_ms: f64,
    ) -> Result<Option<Self>, String> {
        if pages_per_ms == 0.0 {
            return Ok(None);
        }
        let moved_pages = valid_percent / 100.0 * block_pages;
        let duration_ms = (erase_us + moved_pages * (read_us + program_us)) / 1e3;
        let gap_ms = (block_pages - moved_pages) / pages_per_ms;
        if duration_ms < gap_ms {
            return Ok(Some(Self { gap_ms, duration_ms }));
        }
        Err(format!(
            "the device would collect garbage all the time ({duration_ms:.1} ms every {gap_ms:.1} ms); \
             reduce the background writes or the share of valid pages"
        ))
    }

    /// Returns the delay of I/O that begins `phase` of an interval after a collection began. I/O
    /// pauses during collections.
    fn delay_ms(&self, io_ms: f64, phase: f64) -> f64 {
        let since_ms = phase * self.gap_ms;
        let rest_ms = (self.duration_ms - since_ms).max(0.0);
        // Count the collections that begin during the I/O. It proceeds only between collections.
        let until_next_ms = self.gap_ms - since_ms - rest_ms;
        let free_ms = self.gap_ms - self.duration_ms;
        let begun =
            if io_ms <= until_next_ms { 0.0 } else { ((io_ms - until_next_ms) / free_ms).ceil() };
        rest_ms + begun * self.duration_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    const READ_COST: ReadCost =
        ReadCost { request_us: 0.0, page_us: 25.0, stall_percent: 0.0, stall_ms: 0.0 };
    const FLASH: Flash =
        Flash { program_us: 200.0, erase_us: 1_500.0, block_pages: 64.0, valid_percent: 50.0 };

    /// Background writes of 6 pages in 41.7 ms.
    fn flash() -> Device {
        Device::of(READ_COST, Some(FLASH), 0.144).unwrap()
    }

    #[test]
    fn a_collection_moves_valid_pages_and_erases() {
        let (duration, gap) = flash().collection_ms().unwrap();
        assert!((duration - (1.5 + 32.0 * 0.225)).abs() < 1e-9, "{duration}");
        assert!((gap - 32.0 / 0.144).abs() < 1e-9, "{gap}");
    }

    #[test]
    fn the_mean_delay_is_the_share_of_time_spent_collecting() {
        // Long I/O proceeds in the time that collections leave.
        let (duration, gap) = flash().collection_ms().unwrap();
        let io_ms = 10_000.0;
        let count = 20_000;
        let total: f64 = (0..count)
            .map(|n| flash().collection_delay_ms(io_ms, &mut Random::nth(1, Purpose::Device, n)))
            .sum();
        let (mean, expected) = (total / count as f64, io_ms * duration / (gap - duration));
        assert!((mean / expected - 1.0).abs() < 0.01, "{mean} for {expected}");
    }

    #[test]
    fn more_io_is_never_delayed_less() {
        for n in 0..200 {
            let delay =
                |io_ms| flash().collection_delay_ms(io_ms, &mut Random::nth(4, Purpose::Device, n));
            let delays: Vec<f64> = (0..400).map(|step| delay(f64::from(step) * 2.5)).collect();
            assert!(delays.is_sorted(), "{n}");
            assert_eq!(delays[0], 0.0, "no I/O has no delay");
        }
    }

    #[test]
    fn flash_without_writes_and_other_devices_do_not_collect() {
        let quiet = Device::of(READ_COST, Some(FLASH), 0.0).unwrap();
        let disk = ReadCost { request_us: 8_000.0, page_us: 30.0, ..READ_COST };
        let disk = Device::of(disk, None, 1.0).unwrap();
        for device in [quiet, disk] {
            assert_eq!(device.collection_delay_ms(50.0, &mut Random::of(1, Purpose::Device)), 0.0);
            assert_eq!(device.collection_ms(), None);
        }
        assert!((disk.read_ms(2, 10) - 16.3).abs() < 1e-9);
    }

    #[test]
    fn a_device_that_would_only_collect_is_refused() {
        let busy = Device::of(READ_COST, Some(Flash { valid_percent: 90.0, ..FLASH }), 2.0);
        assert!(busy.unwrap_err().contains("all the time"));
    }

    #[test]
    fn stalls_occur_with_the_given_probability() {
        let stalling = ReadCost { page_us: 0.0, stall_percent: 1.0, stall_ms: 20.0, ..READ_COST };
        let device = Device::of(stalling, None, 0.0).unwrap();
        let stalled = device.stall_delay_ms(200_000, &mut Random::of(2, Purpose::Device)) / 20.0;
        assert!((stalled - 2_000.0).abs() < 4.0 * 2_000_f64.sqrt(), "{stalled}");
    }
}
