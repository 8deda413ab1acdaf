//! Gathering facts, no more than are needed: a look at memory limits and devices takes longer than mapping a cached file.

use evermap_observe::{FileSystem, LimitedBy, Memory};

use crate::part::Part;
use crate::plan::Facts;
use crate::source::Source;

/// Known since it was opened. Costs nothing.
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

/// Files from this size on are looked at in a few places first: asking for all of a file goes over all pages of it that are cached (64 MiB in small pages: 0.4 ms, 1 GiB in larger ones 1 ms).
const GLANCED_BYTES_MIN: u64 = 16 << 20;
/// So many places of so many bytes.
const GLANCES: u64 = 32;
const GLANCE_BYTES: u64 = 64 << 10;

/// And what of it is cached, by a look at a few places, if that is the same in all of them: all, or nothing. Costs a system call for each.
pub(crate) fn of_cache_at_a_glance(source: &Source, part: &Part) -> Option<Facts> {
    let mut facts = of_name(source, part);
    if facts.bytes < GLANCED_BYTES_MIN || facts.is_in_memory {
        return None;
    }
    let step = (facts.bytes - GLANCE_BYTES) / (GLANCES - 1);
    let places = (0..GLANCES).map(|number| part.begin + number * step);
    let mut looks = places.map(|place| {
        let found = evermap_observe::residency_of(source.cached(), place, GLANCE_BYTES)?;
        match found.resident_bytes {
            0 => Some(false),
            resident => (resident >= GLANCE_BYTES).then_some(true),
        }
    });
    let is_cached = looks.next()??;
    facts.resident_bytes = Some(if is_cached { facts.bytes } else { 0 });
    looks.all(|look| look == Some(is_cached)).then_some(facts)
}

/// And what of it is cached. Costs a system call, unless it can be nowhere else: that one would go over all its pages (7 ms for 1 GiB of tmpfs).
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

/// And what this process may use, and the device can do. Costs some fifty system calls.
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
    fn a_glance_is_enough_where_all_is_cached_or_nothing_and_never_else() {
        // Where files are on a disk as a rule: one in memory is not looked at.
        let file = tempfile::NamedTempFile::new_in("/var/tmp")
            .or_else(|_| tempfile::NamedTempFile::new())
            .unwrap();
        let bytes = GLANCED_BYTES_MIN;
        file.as_file().set_len(bytes).unwrap();
        let source = || Source::open(file.path()).unwrap();
        let glance = |source: &Source, bytes| {
            of_cache_at_a_glance(source, &Part::new(0..bytes, 4096))
                .map(|facts| facts.resident_bytes)
        };
        if source().file_system().is_memory()
            || evermap_observe::residency_of(source().cached(), 0, 4096).is_none()
        {
            eprintln!(
                "skipped: files are in memory here, or the kernel does not tell what is cached"
            );
            return;
        }
        assert_eq!(glance(&source(), bytes), Some(Some(0)), "holes that nobody has read");
        file.as_file().write_all_at(&[1; 1 << 20], 0).unwrap();
        assert_eq!(glance(&source(), bytes), None, "some of it is cached, and that is seen");
        std::io::copy(&mut source_file(&file).take(bytes), &mut std::io::sink()).unwrap();
        assert_eq!(glance(&source(), bytes), Some(Some(bytes)));
        assert_eq!(glance(&source(), bytes - 1), None, "short enough to be looked at as a whole");
    }

    fn source_file(file: &tempfile::NamedTempFile) -> std::fs::File {
        std::fs::File::open(file.path()).unwrap()
    }
}
