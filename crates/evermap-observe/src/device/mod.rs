//! What a device can do by itself, past the page cache: measured when somebody asks, or observed while somebody reads.

mod kept;
mod measured;

use std::path::Path;

use rustix::fs::{self, AtFlags, Mode, OFlags, StatxFlags};

pub use kept::{KeptDeviceRates, keep_read_rate, read_rate};

/// A device's rates, in bytes a second.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct DeviceRates {
    /// Reading.
    pub read_bytes_per_s: f64,
    /// Writing, until it is on the device.
    pub write_bytes_per_s: f64,
}

/// The rates of the device that `directory` is on; `None` where it does no direct I/O, cannot be written to, or has little room left.
///
/// Measured once for each device, by 64 MiB that are written and read past the page cache, in a file that never has a name, and
/// kept in the user's cache directory. A tenth of a second and more on slow disks; afterwards some small reads.
///
/// ```no_run
/// if let Some(rates) = evermap_observe::device_rates(std::path::Path::new("/srv")) {
///     println!("reads {:.0} MB/s", rates.read_bytes_per_s / 1e6);
/// }
/// ```
pub fn device_rates(directory: &Path) -> Option<DeviceRates> {
    let kept = KeptDeviceRates::of_user();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = fs::open(directory, flags, Mode::empty()).ok()?;
    let stat = fs::statx(&opened, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).ok()?;
    let device = fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    if let Some(rates) = kept.rates(device) {
        return Some(rates);
    }
    let mut rates = measured::of(&opened)?;
    // Nobody reads faster than the device: what was seen already holds, where this measurement was disturbed.
    let seen = kept.read_rate(device).unwrap_or(0.0);
    rates.read_bytes_per_s = rates.read_bytes_per_s.max(seen);
    kept.keep(device, rates);
    Some(rates)
}
