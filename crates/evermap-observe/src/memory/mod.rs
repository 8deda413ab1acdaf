//! Available memory: how much can be filled before the system swaps or kills.

mod groups;
mod huge;

pub use huge::{HugePageSupply, huge_page_supply};

use std::fs;

use crate::proc;

/// Available memory and its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Memory {
    /// Bytes that can be filled before any process is swapped out or killed. Reclaimable page cache
    /// counts as available.
    pub available_bytes: u64,
    /// The limit that is reached first.
    pub limited_by: LimitedBy,
}

/// Limit on available memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum LimitedBy {
    /// The machine's memory.
    System,
    /// The limit of a control group that contains this process, for example a container's.
    Group,
}

/// Returns the memory available without swapping, by the kernel's estimate, or the headroom of the
/// tightest control group (version 1 or 2) of this process if that is less. Returns `None` if
/// neither is known.
///
/// Reads a few small files of `/proc` and `/sys`: two, one for each group without a limit, and
/// three for each group with one.
///
/// ```
/// use evermap_observe::{LimitedBy, memory};
/// if let Some(memory) = memory() {
///     let by = if memory.limited_by == LimitedBy::Group { "this container" } else { "this machine" };
///     println!("{by} has {} MiB left", memory.available_bytes >> 20);
/// }
/// ```
pub fn memory() -> Option<Memory> {
    tightest(system_bytes(), groups::headroom_bytes())
}

/// Returns the bytes of [`memory`].
///
/// ```
/// assert!(evermap_observe::available_bytes().is_none_or(|bytes| bytes > 0));
/// ```
pub fn available_bytes() -> Option<u64> {
    memory().map(|memory| memory.available_bytes)
}

fn tightest(system_bytes: Option<u64>, group_bytes: Option<u64>) -> Option<Memory> {
    let system = system_bytes
        .map(|available_bytes| Memory { available_bytes, limited_by: LimitedBy::System });
    let group =
        group_bytes.map(|available_bytes| Memory { available_bytes, limited_by: LimitedBy::Group });
    [system, group].into_iter().flatten().min_by_key(|memory| memory.available_bytes)
}

fn system_bytes() -> Option<u64> {
    proc::bytes_of(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_the_smaller_of_machine_and_group() {
        let memory = |available_bytes, limited_by| Some(Memory { available_bytes, limited_by });
        assert_eq!(tightest(Some(2), Some(1)), memory(1, LimitedBy::Group));
        assert_eq!(tightest(Some(1), Some(2)), memory(1, LimitedBy::System));
        assert_eq!(tightest(Some(1), Some(1)), memory(1, LimitedBy::System));
        assert_eq!(tightest(None, Some(1)), memory(1, LimitedBy::Group));
        assert_eq!(tightest(None, None), None);
    }

    #[test]
    fn available_memory_of_this_machine_is_positive() {
        assert!(memory().is_some_and(|memory| memory.available_bytes > 0));
    }
}
