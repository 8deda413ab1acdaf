//! Gathers facts, as few as needed: querying memory limits and devices takes longer than mapping a
//! cached file.

use evermap_observe::{FileSystem, LimitedBy, Memory};

use crate::part::Part;
use crate::plan::Facts;
use crate::source::Source;

/// Returns the facts known from opening the file. Costs nothing, except on a compressed file
/// system, where it opens the file for direct reads.
pub(crate) fn of_name(source: &Source, part: &Part) -> Facts {
    let file_system = source.file_system();
    Facts {
        bytes: part.end - part.begin,
        file_system: file_system.name().into_owned(),
        is_in_memory: file_system.is_memory(),
        is_compressed: file_system.is_compressed_read_only() && source.direct().is_none(),
        shares_blocks: file_system == FileSystem::XFS || file_system == FileSystem::BTRFS,
        is_unchangeable: source.is_unchangeable,
        resident_bytes: None,
        dirty_bytes: 0,
        direct_block_bytes: None,
        available_bytes: None,
        available_limit: "the system",
        processors: 1,
        device_bytes_per_s: None,
    }
}

/// Minimum file size for sampling the cache. A query of the whole file visits all its cached pages
/// (0.4 ms for 64 MiB in small pages, 1 ms for 1 GiB in larger ones).
const SAMPLED_BYTES_MIN: u64 = 16 << 20;
/// Number and size of the samples.
const SAMPLES: u64 = 32;
const SAMPLE_BYTES: u64 = 64 << 10;

/// Adds the cached bytes, judged by samples, if all samples agree: everything or nothing is cached.
/// Costs one system call per sample.
pub(crate) fn of_cache_by_samples(source: &Source, part: &Part) -> Option<Facts> {
    let mut facts = of_name(source, part);
    if facts.bytes < SAMPLED_BYTES_MIN || facts.is_in_memory {
        return None;
    }
    let step = (facts.bytes - SAMPLE_BYTES) / (SAMPLES - 1);
    let places = (0..SAMPLES).map(|number| part.begin + number * step);
    let mut samples = places.map(|place| {
        let found = evermap_observe::residency_of(source.cached(), place, SAMPLE_BYTES)?;
        match found.resident_bytes {
            0 => Some(false),
            resident => (resident >= SAMPLE_BYTES).then_some(true),
        }
    });
    let is_cached = samples.next()??;
    facts.resident_bytes = Some(if is_cached { facts.bytes } else { 0 });
    samples.all(|sample| sample == Some(is_cached)).then_some(facts)
}

/// Adds the cached bytes. Costs one system call. The call is skipped for files in memory, where it
/// would visit all pages (7 ms for 1 GiB of tmpfs).
pub(crate) fn of_cache(source: &Source, part: &Part) -> Facts {
    let mut facts = of_name(source, part);
    if facts.is_in_memory && source.is_dense() {
        facts.resident_bytes = Some(facts.bytes);
        return facts;
    }
    let residency = match facts.bytes {
        0 => None,
        bytes => evermap_observe::residency_of(source.cached(), part.begin, bytes),
    };
    if let Some(residency) = residency {
        facts.resident_bytes = Some(residency.resident_bytes);
        facts.dirty_bytes = residency.dirty_bytes;
    }
    facts
}

/// Adds the memory available to this process and the device's abilities. Costs about fifty system
/// calls.
pub(crate) fn of_machine(facts: Facts, source: &Source, memory: Option<Memory>) -> Facts {
    let available_limit = match memory.map(|memory| memory.limited_by) {
        Some(LimitedBy::Group) => "the control group",
        _ => "the system",
    };
    Facts {
        direct_block_bytes: source.direct().map(|_| source.block_bytes()),
        available_bytes: memory.map(|memory| memory.available_bytes),
        available_limit,
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        device_bytes_per_s: evermap_observe::read_rate(source.identity().device),
        ..facts
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Read;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn sampling_decides_only_if_everything_or_nothing_is_cached() {
        // `/var/tmp` is usually on a disk. Files in memory are not sampled.
        let file = tempfile::NamedTempFile::new_in("/var/tmp")
            .or_else(|_| tempfile::NamedTempFile::new())
            .unwrap();
        let bytes = SAMPLED_BYTES_MIN;
        file.as_file().set_len(bytes).unwrap();
        let source = || Source::open(file.path()).unwrap();
        let sample = |source: &Source, bytes| {
            of_cache_by_samples(source, &Part::new(0..bytes, 4096))
                .map(|facts| facts.resident_bytes)
        };
        if source().file_system().is_memory()
            || evermap_observe::residency_of(source().cached(), 0, 4096).is_none()
        {
            eprintln!("skipped: files are in memory, or the kernel does not report cached pages");
            return;
        }
        assert_eq!(sample(&source(), bytes), Some(Some(0)), "holes are not cached");
        file.as_file().write_all_at(&[1; 1 << 20], 0).unwrap();
        assert_eq!(sample(&source(), bytes), None, "partly cached");
        std::io::copy(&mut source_file(&file).take(bytes), &mut std::io::sink()).unwrap();
        assert_eq!(sample(&source(), bytes), Some(Some(bytes)));
        assert_eq!(sample(&source(), bytes - 1), None, "below the minimum size for sampling");
    }

    fn source_file(file: &tempfile::NamedTempFile) -> std::fs::File {
        std::fs::File::open(file.path()).unwrap()
    }
}
