//! Rates of devices, kept for a month: `device NUMBER READ WRITE DAY` a line, bytes a second, 0 for what is not known.

use std::path::PathBuf;

use super::DeviceRates;
use crate::kept::KeptLines;

/// What is known of devices, by their numbers (`st_dev`).
///
/// ```
/// # let place = tempfile::tempdir()?;
/// use evermap_observe::KeptDeviceRates;
/// let kept = KeptDeviceRates::at(place.path().join("device-rates"));
/// kept.keep_read_rate(7, 2e9);
/// kept.keep_read_rate(7, 1e9);
/// assert_eq!(kept.read_rate(7), Some(2e9));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct KeptDeviceRates {
    lines: KeptLines,
}

impl KeptDeviceRates {
    /// This user's, in `~/.cache/evermap/device-rates`: see [`KeptLines::of_user`].
    pub fn of_user() -> KeptDeviceRates {
        KeptDeviceRates { lines: KeptLines::of_user("device-rates") }
    }

    /// In this file, which need not be there.
    pub fn at(file: PathBuf) -> KeptDeviceRates {
        KeptDeviceRates { lines: KeptLines::at(file) }
    }

    /// What a device can do, if all of it is known. Reads the file.
    pub fn rates(&self, device: u64) -> Option<DeviceRates> {
        self.known(device).filter(|rates| rates.write_bytes_per_s > 0.0)
    }

    /// How fast a device reads, in bytes a second, if that is known. Reads the file.
    pub fn read_rate(&self, device: u64) -> Option<f64> {
        self.known(device).map(|rates| rates.read_bytes_per_s)
    }

    /// Keeps what was measured, in place of what was known. Reads the file and writes it anew.
    pub fn keep(&self, device: u64, rates: DeviceRates) {
        let prefix = prefix(device);
        let (read, write) = (rates.read_bytes_per_s, rates.write_bytes_per_s);
        self.lines.replace(&prefix, [format!("{prefix}{read:.0} {write:.0}")]);
    }

    /// Keeps a rate that reading was observed to have, if no higher one is known: whoever read may have waited for other things than
    /// the device, and nobody reads faster than it. Reads the file; writes it anew where there is something to keep.
    pub fn keep_read_rate(&self, device: u64, bytes_per_s: f64) {
        let known = self.known(device);
        let is_news = known.is_none_or(|rates| bytes_per_s > rates.read_bytes_per_s);
        // As it will be written: less than one is nothing.
        if is_news && bytes_per_s.is_finite() && bytes_per_s >= 1.0 {
            let write_bytes_per_s = known.map_or(0.0, |rates| rates.write_bytes_per_s);
            self.keep(device, DeviceRates { read_bytes_per_s: bytes_per_s, write_bytes_per_s });
        }
    }

    fn known(&self, device: u64) -> Option<DeviceRates> {
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

/// Keeps, for this user, a rate that reading from a device was observed to have: [`KeptDeviceRates::keep_read_rate`].
///
/// ```no_run
/// use std::{fs::File, os::unix::fs::MetadataExt};
/// let device = File::open("model.bin")?.metadata()?.dev();
/// evermap_observe::keep_read_rate(device, 2e9);
/// assert!(evermap_observe::read_rate(device) >= Some(2e9));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn keep_read_rate(device: u64, bytes_per_s: f64) {
    KeptDeviceRates::of_user().keep_read_rate(device, bytes_per_s);
}

/// How fast a device reads, in bytes a second, if this user has measured or observed it: [`KeptDeviceRates::read_rate`].
///
/// ```
/// match evermap_observe::read_rate(7) {
///     Some(bytes_per_s) => println!("{:.0} MB/s", bytes_per_s / 1e6),
///     None => println!("nobody has looked yet"),
/// }
/// ```
pub fn read_rate(device: u64) -> Option<f64> {
    KeptDeviceRates::of_user().read_rate(device)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn rates(read: f64, write: f64) -> DeviceRates {
        DeviceRates { read_bytes_per_s: read, write_bytes_per_s: write }
    }

    #[test]
    fn what_is_kept_is_found_again_by_its_device() {
        let directory = tempfile::tempdir().unwrap();
        let kept = KeptDeviceRates::at(directory.path().join("rates"));
        kept.keep(7, rates(2e9, 1e9));
        kept.keep(70, rates(4e9, 3e9));
        assert_eq!(kept.rates(7), Some(rates(2e9, 1e9)));
        assert_eq!(kept.rates(8), None);
        kept.keep(7, rates(1e9, 1e9));
        assert_eq!(kept.rates(7), Some(rates(1e9, 1e9)));
    }

    #[test]
    fn an_observed_rate_raises_what_is_known_and_never_lowers_it() {
        let directory = tempfile::tempdir().unwrap();
        let kept = KeptDeviceRates::at(directory.path().join("rates"));
        kept.keep_read_rate(7, 1e9);
        assert_eq!((kept.read_rate(7), kept.rates(7)), (Some(1e9), None));
        kept.keep(7, rates(2e9, 1e9));
        kept.keep_read_rate(7, 1.5e9);
        assert_eq!(kept.rates(7), Some(rates(2e9, 1e9)));
        kept.keep_read_rate(7, 3e9);
        assert_eq!(kept.rates(7), Some(rates(3e9, 1e9)));
    }

    #[test]
    fn what_is_no_rate_is_neither_kept_nor_believed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rates");
        let kept = KeptDeviceRates::at(file.clone());
        for rate in [0.0, -1.0, 0.4, f64::NAN, f64::INFINITY] {
            kept.keep_read_rate(7, rate);
            assert!(!file.exists(), "{rate}");
        }
        for line in ["device 7 inf 1", "device 7 fast 1", "device 7 1", "device 7 NaN 1"] {
            KeptLines::at(file.clone()).replace("", [line.to_string()]);
            assert_eq!(kept.read_rate(7), None, "{line}");
        }
    }
}
