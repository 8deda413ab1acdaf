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
