//! Device rates past the page cache: measured on request, or observed during reads.

mod cache;
mod measure;

use std::path::Path;

use rustix::fs::{self, AtFlags, Mode, OFlags, StatxFlags};

pub use cache::{DeviceRateCache, read_rate, store_read_rate};

/// Read and write rates of a device, in bytes a second.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct DeviceRates {
    /// Read rate.
    pub read_bytes_per_s: f64,
    /// Write rate, until the data is on the device.
    pub write_bytes_per_s: f64,
}

/// Returns the rates of the device that holds `directory`. Returns `None` if it does not support
/// direct I/O, is not writable, or has less than 1 GiB free.
///
/// The first call for a device measures: it writes and reads 64 MiB past the page cache, in an
/// unnamed file. This takes a tenth of a second, or more on slow disks. The result is cached in the
/// user's cache directory for a month; later calls only read that file.
///
/// ```no_run
/// if let Some(rates) = evermap_observe::device_rates(std::path::Path::new("/srv")) {
///     println!("reads {:.0} MB/s", rates.read_bytes_per_s / 1e6);
/// }
/// ```
pub fn device_rates(directory: &Path) -> Option<DeviceRates> {
    let cache = DeviceRateCache::of_user();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = fs::open(directory, flags, Mode::empty()).ok()?;
    let stat = fs::statx(&opened, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).ok()?;
    let device = fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    if let Some(rates) = cache.rates(device) {
        return Some(rates);
    }
    let mut rates = measure::measure(&opened)?;
    // Observed read rates are a lower bound of the device's rate, so a higher one corrects a
    // disturbed measurement.
    let seen = cache.read_rate(device).unwrap_or(0.0);
    rates.read_bytes_per_s = rates.read_bytes_per_s.max(seen);
    cache.store(device, rates);
    Some(rates)
}
