//! Device rates, cached for a month. Line format: `device NUMBER READ WRITE DAY`, in bytes a
//! second, 0 for an unknown rate.

use std::path::PathBuf;

use super::DeviceRates;
use crate::state_file::StateFile;

/// Cached rates of devices, by device number (`st_dev`).
///
/// ```
/// # let place = tempfile::tempdir()?;
/// use evermap_observe::DeviceRateCache;
/// let cache = DeviceRateCache::at(place.path().join("device-rates"));
/// cache.store_read_rate(7, 2e9);
/// cache.store_read_rate(7, 1e9);
/// assert_eq!(cache.read_rate(7), Some(2e9));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct DeviceRateCache {
    lines: StateFile,
}

impl DeviceRateCache {
    /// Opens the user's cache, `~/.cache/evermap/device-rates` (see [`StateFile::of_user`]).
    pub fn of_user() -> DeviceRateCache {
        DeviceRateCache { lines: StateFile::of_user("device-rates") }
    }

    /// Opens the cache in `file`, which need not exist.
    pub fn at(file: PathBuf) -> DeviceRateCache {
        DeviceRateCache { lines: StateFile::at(file) }
    }

    /// Returns a device's rates if both are known. Reads the file.
    pub fn rates(&self, device: u64) -> Option<DeviceRates> {
        self.known_rates(device).filter(|rates| rates.write_bytes_per_s > 0.0)
    }

    /// Returns a device's read rate in bytes a second, if known. Reads the file.
    pub fn read_rate(&self, device: u64) -> Option<f64> {
        self.known_rates(device).map(|rates| rates.read_bytes_per_s)
    }

    /// Stores measured rates in place of the known ones. Reads and rewrites the file.
    pub fn store(&self, device: u64, rates: DeviceRates) {
        let prefix = prefix(device);
        let (read, write) = (rates.read_bytes_per_s, rates.write_bytes_per_s);
        self.lines.replace(&prefix, [format!("{prefix}{read:.0} {write:.0}")]);
    }

    /// Stores an observed read rate if it exceeds the known one. A reader may have waited for
    /// something other than the device, but never reads faster than the device. Reads the file, and
    /// rewrites it if the rate is new.
    pub fn store_read_rate(&self, device: u64, bytes_per_s: f64) {
        let known = self.known_rates(device);
        let is_higher = known.is_none_or(|rates| bytes_per_s > rates.read_bytes_per_s);
        // Rates are written as integers, and 0 means unknown.
        if is_higher && bytes_per_s.is_finite() && bytes_per_s >= 1.0 {
            let write_bytes_per_s = known.map_or(0.0, |rates| rates.write_bytes_per_s);
            self.store(device, DeviceRates { read_bytes_per_s: bytes_per_s, write_bytes_per_s });
        }
    }

    fn known_rates(&self, device: u64) -> Option<DeviceRates> {
        let prefix = prefix(device);
        let line = self.lines.lines().find(|line| line.starts_with(&prefix))?;
        let mut rates = line[prefix.len()..].split_whitespace().map(str::parse::<f64>);
        let (read, write) = (rates.next()?.ok()?, rates.next()?.ok()?);
        let is_rate = read.is_finite() && read > 0.0 && write.is_finite() && write >= 0.0;
        is_rate.then_some(DeviceRates { read_bytes_per_s: read, write_bytes_per_s: write })
    }
}

fn prefix(device: u64) -> String {
    format!("device {device} ")
}

/// Stores an observed read rate of a device for this user. See
/// [`DeviceRateCache::store_read_rate`].
///
/// ```no_run
/// use std::{fs::File, os::unix::fs::MetadataExt};
/// let device = File::open("model.bin")?.metadata()?.dev();
/// evermap_observe::store_read_rate(device, 2e9);
/// assert!(evermap_observe::read_rate(device) >= Some(2e9));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn store_read_rate(device: u64, bytes_per_s: f64) {
    DeviceRateCache::of_user().store_read_rate(device, bytes_per_s);
}

/// Returns a device's read rate in bytes a second, if this user has measured or observed one. See
/// [`DeviceRateCache::read_rate`].
///
/// ```
/// match evermap_observe::read_rate(7) {
///     Some(bytes_per_s) => println!("{:.0} MB/s", bytes_per_s / 1e6),
///     None => println!("not measured yet"),
/// }
/// ```
pub fn read_rate(device: u64) -> Option<f64> {
    DeviceRateCache::of_user().read_rate(device)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn rates(read: f64, write: f64) -> DeviceRates {
        DeviceRates { read_bytes_per_s: read, write_bytes_per_s: write }
    }

    #[test]
    fn stored_rates_are_found_by_device_number() {
        let directory = tempfile::tempdir().unwrap();
        let cache = DeviceRateCache::at(directory.path().join("rates"));
        cache.store(7, rates(2e9, 1e9));
        cache.store(70, rates(4e9, 3e9));
        assert_eq!(cache.rates(7), Some(rates(2e9, 1e9)));
        assert_eq!(cache.rates(8), None);
        cache.store(7, rates(1e9, 1e9));
        assert_eq!(cache.rates(7), Some(rates(1e9, 1e9)));
    }

    #[test]
    fn an_observed_rate_raises_the_known_rate_and_never_lowers_it() {
        let directory = tempfile::tempdir().unwrap();
        let cache = DeviceRateCache::at(directory.path().join("rates"));
        cache.store_read_rate(7, 1e9);
        assert_eq!((cache.read_rate(7), cache.rates(7)), (Some(1e9), None));
        cache.store(7, rates(2e9, 1e9));
        cache.store_read_rate(7, 1.5e9);
        assert_eq!(cache.rates(7), Some(rates(2e9, 1e9)));
        cache.store_read_rate(7, 3e9);
        assert_eq!(cache.rates(7), Some(rates(3e9, 1e9)));
    }

    #[test]
    fn invalid_rates_are_neither_written_nor_read() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rates");
        let cache = DeviceRateCache::at(file.clone());
        for rate in [0.0, -1.0, 0.4, f64::NAN, f64::INFINITY] {
            cache.store_read_rate(7, rate);
            assert!(!file.exists(), "{rate}");
        }
        for line in ["device 7 inf 1", "device 7 fast 1", "device 7 1", "device 7 NaN 1"] {
            StateFile::at(file.clone()).replace("", [line.to_string()]);
            assert_eq!(cache.read_rate(7), None, "{line}");
        }
    }
}
