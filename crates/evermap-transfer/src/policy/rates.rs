//! Stored measurements of engine speed between two devices.

#[cfg(test)]
use std::path::PathBuf;

use evermap_observe::StateFile;

use crate::engines::EngineKind;

/// Cache file of measured rates, which expire after a month. Stores nothing if the user has no
/// cache directory. `evermap-observe` keeps device rates in a separate file.
///
/// Lines are `warm SOURCE TARGET ENGINE NS_PER_MIB`: device numbers, engine, and time per MiB for
/// files in the page cache.
#[derive(Debug, Clone, Default)]
pub(crate) struct RateCache {
    lines: StateFile,
}

impl RateCache {
    /// Uses `$XDG_CACHE_HOME/evermap`, or `~/.cache/evermap`.
    pub(crate) fn of_user() -> RateCache {
        RateCache { lines: StateFile::of_user("transfer-rates") }
    }

    #[cfg(test)]
    pub(crate) fn at(file: PathBuf) -> RateCache {
        RateCache { lines: StateFile::at(file) }
    }

    /// Returns the fastest engine for files in the page cache between two devices, if measured.
    pub(crate) fn fastest(&self, source: u64, target: u64) -> Option<EngineKind> {
        self.lines
            .lines()
            .filter_map(|line| {
                let mut words = line.strip_prefix("warm ")?.split_whitespace();
                let from: u64 = words.next()?.parse().ok()?;
                let to: u64 = words.next()?.parse().ok()?;
                let engine = EngineKind::from_name(words.next()?)?;
                let ns_per_mib: f64 = words.next()?.parse().ok()?;
                (from == source && to == target).then_some((engine, ns_per_mib))
            })
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(engine, _)| engine)
    }

    /// Stores the measured nanoseconds per MiB of each engine.
    pub(crate) fn store(&self, source: u64, target: u64, measured: &[(EngineKind, f64)]) {
        let prefix = format!("warm {source} {target} ");
        let lines =
            measured.iter().map(|(engine, ns_per_mib)| format!("{prefix}{engine} {ns_per_mib:.0}"));
        self.lines.replace(&prefix, lines);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;

    #[test]
    fn stored_rates_are_found_and_replaced_by_newer_ones() {
        let directory = tempfile::tempdir().unwrap();
        let rate_cache = RateCache::at(directory.path().join("cache/rates"));
        assert_eq!(rate_cache.fastest(1, 2), None);
        rate_cache.store(1, 2, &[(EngineKind::Splice, 300.0), (EngineKind::MmapWrite, 200.0)]);
        rate_cache.store(1, 3, &[(EngineKind::Sendfile, 100.0)]);
        assert_eq!(rate_cache.fastest(1, 2), Some(EngineKind::MmapWrite));
        rate_cache.store(1, 2, &[(EngineKind::Splice, 100.0), (EngineKind::MmapWrite, 200.0)]);
        assert_eq!(rate_cache.fastest(1, 2), Some(EngineKind::Splice));
    }

    #[test]
    fn malformed_lines_are_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rates");
        fs::write(&file, "warm 1 2\nwarm x\n\u{0}\nwarm 1 2 splice fast\n").unwrap();
        let rate_cache = RateCache::at(file);
        assert_eq!(rate_cache.fastest(1, 2), None);
        // `replace` adds today's date, so the line has not expired. It is still malformed.
        rate_cache.lines.replace("warm 1 2 splice ", ["warm 1 2 splice fast".to_string()]);
        assert_eq!(rate_cache.fastest(1, 2), None);
    }
}
