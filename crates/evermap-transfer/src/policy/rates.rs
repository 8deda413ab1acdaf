//! What was measured once and is kept: how fast engines are between two devices, and what a device can do at all.
//!
//! A convenience in the user's cache directory, a line an entry: whoever deletes it loses a measurement of a tenth of a second. Whatever
//! goes wrong with it, a copy goes on without.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::engines::EngineKind;

/// What is older is measured again: disks are exchanged, kernels renewed.
const DAYS_MAX: u64 = 30;
/// More lines than this are somebody else's file.
const LINES_MAX: usize = 10_000;

/// Where figures are kept; nowhere, if the user has no cache directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    file: Option<PathBuf>,
}

/// A device's own rates, in bytes a second, past the page cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct DeviceRate {
    pub(crate) read: f64,
    pub(crate) write: f64,
}

impl Kept {
    /// In `$XDG_CACHE_HOME/evermap`, else `~/.cache/evermap`.
    pub(crate) fn of_user() -> Kept {
        let set = |name: &str| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        let directory = set("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| set("HOME").map(|home| Path::new(&home).join(".cache")));
        Kept { file: directory.map(|directory| directory.join("evermap").join("transfer-rates")) }
    }

    #[cfg(test)]
    pub(crate) fn at(file: PathBuf) -> Kept {
        Kept { file: Some(file) }
    }

    /// The fastest engine for cached files from one device to another, if that was measured.
    pub(crate) fn fastest(&self, source: u64, target: u64) -> Option<EngineKind> {
        self.lines()
            .filter_map(|line| {
                let mut words = line.strip_prefix("warm ")?.split_whitespace();
                let from: u64 = words.next()?.parse().ok()?;
                let to: u64 = words.next()?.parse().ok()?;
                let engine = EngineKind::from_name(words.next()?)?;
                let ns_per_mib: f64 = words.next()?.parse().ok()?;
                let is_fresh = is_fresh(words.next()?.parse().ok()?);
                (from == source && to == target && is_fresh).then_some((engine, ns_per_mib))
            })
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(engine, _)| engine)
    }

    /// Keeps what engines took, in nanoseconds a MiB.
    pub(crate) fn keep_warm(&self, source: u64, target: u64, measured: &[(EngineKind, f64)]) {
        let prefix = format!("warm {source} {target} ");
        let day = today();
        let lines = measured
            .iter()
            .map(|(engine, ns_per_mib)| format!("{prefix}{engine} {ns_per_mib:.0} {day}"));
        self.replace(&prefix, lines);
    }

    /// What a device can do, if that was measured.
    pub(crate) fn device(&self, device: u64) -> Option<DeviceRate> {
        let prefix = format!("device {device} ");
        let line = self.lines().find(|line| line.starts_with(&prefix))?;
        let mut words = line[prefix.len()..].split_whitespace();
        let (read, write) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        is_fresh(words.next()?.parse().ok()?).then_some(DeviceRate { read, write })
    }

    /// Keeps what a device can do.
    pub(crate) fn keep_device(&self, device: u64, rate: DeviceRate) {
        let prefix = format!("device {device} ");
        let line = format!("{prefix}{:.0} {:.0} {}", rate.read, rate.write, today());
        self.replace(&prefix, [line]);
    }

    fn lines(&self) -> impl Iterator<Item = String> + use<> {
        let text =
            self.file.as_ref().and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        text.lines().take(LINES_MAX).map(str::to_string).collect::<Vec<_>>().into_iter()
    }

    /// Puts `lines` in the place of those that begin with `prefix`. Two processes at it at once: one's lines are lost, none is torn.
    fn replace(&self, prefix: &str, lines: impl IntoIterator<Item = String>) {
        let Some(file) = &self.file else { return };
        let mut kept: Vec<String> = self.lines().filter(|line| !line.starts_with(prefix)).collect();
        kept.extend(lines);
        let written = || -> std::io::Result<()> {
            if let Some(directory) = file.parent() {
                fs::create_dir_all(directory)?;
            }
            let temporary = file.with_extension(format!("{}", std::process::id()));
            let mut out = fs::File::create(&temporary)?;
            kept.iter().try_for_each(|line| writeln!(out, "{line}"))?;
            fs::rename(&temporary, file)
        };
        if let Err(error) = written() {
            tracing::debug!(file = %file.display(), %error, "measurement not kept");
        }
    }
}

/// Days since 1970, as the system's clock has it.
fn today() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |time| time.as_secs() / 86_400)
}

/// A day in the future was written by a clock that was wrong.
fn is_fresh(day: u64) -> bool {
    today().checked_sub(day).is_some_and(|age| age <= DAYS_MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_kept_is_found_again_and_replaced_by_what_is_newer() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::at(directory.path().join("cache/rates"));
        assert_eq!(kept.fastest(1, 2), None);
        kept.keep_warm(1, 2, &[(EngineKind::Splice, 300.0), (EngineKind::MmapWrite, 200.0)]);
        kept.keep_warm(1, 3, &[(EngineKind::Sendfile, 100.0)]);
        kept.keep_device(7, DeviceRate { read: 2e9, write: 1e9 });
        assert_eq!(kept.fastest(1, 2), Some(EngineKind::MmapWrite));
        kept.keep_warm(1, 2, &[(EngineKind::Splice, 100.0), (EngineKind::MmapWrite, 200.0)]);
        assert_eq!(kept.fastest(1, 2), Some(EngineKind::Splice));
        assert_eq!(kept.device(7), Some(DeviceRate { read: 2e9, write: 1e9 }));
        assert_eq!(kept.device(8), None);
    }

    #[test]
    fn what_is_a_month_old_is_measured_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rates");
        let old = today() - DAYS_MAX - 1;
        fs::write(&file, format!("warm 1 2 splice 300 {old}\ndevice 7 2 1 {old}\n")).unwrap();
        let kept = Kept::at(file);
        assert_eq!(kept.fastest(1, 2), None);
        assert_eq!(kept.device(7), None);
    }

    #[test]
    fn a_file_of_anything_else_is_no_measurement() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rates");
        fs::write(&file, "warm 1 2\nwarm x\n\u{0}\ndevice 7\nwarm 1 2 splice fast\n").unwrap();
        let kept = Kept::at(file);
        assert_eq!(kept.fastest(1, 2), None);
        assert_eq!(kept.device(7), None);
    }
}
