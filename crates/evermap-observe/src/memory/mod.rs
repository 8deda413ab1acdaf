//! How much memory may be filled with pages that nobody asked to keep.

mod groups;
mod huge;

pub use huge::{HugePageSupply, huge_page_supply};

use std::fs;

/// Memory that is to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Memory {
    /// Bytes that can be filled before anybody is swapped out or killed. Page cache that can be taken back counts as free.
    pub available_bytes: u64,
    /// What will be short first.
    pub limited_by: LimitedBy,
}

/// What memory ends at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum LimitedBy {
    /// The machine: there is no more.
    System,
    /// A limit of a control group that this process is in, a container's say.
    Group,
}

/// What the kernel thinks can be had without swapping, or less where one of the control groups that this process is in (version 1 or
/// 2) has less left up to its limit; `None` where neither is told.
///
/// Costs some small reads of `/proc` and `/sys`: two, one for each group without a limit, and two more for each that has one.
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

/// The bytes of [`memory`].
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
    available_of(&fs::read_to_string("/proc/meminfo").ok()?)
}

/// Of `/proc/meminfo`.
fn available_of(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_read_in_kibibytes() {
        let text = "MemTotal:        8127692 kB\nMemFree:  1 kB\nMemAvailable:    4063846 kB\n";
        assert_eq!(available_of(text), Some(4_063_846 << 10));
        assert_eq!(available_of("MemTotal:        8127692 kB\n"), None);
        assert_eq!(available_of("MemAvailable:    18446744073709551615 kB\n"), None);
    }

    #[test]
    fn the_tighter_of_machine_and_group_is_told_with_its_name() {
        let memory = |available_bytes, limited_by| Some(Memory { available_bytes, limited_by });
        assert_eq!(tightest(Some(2), Some(1)), memory(1, LimitedBy::Group));
        assert_eq!(tightest(Some(1), Some(2)), memory(1, LimitedBy::System));
        assert_eq!(tightest(Some(1), Some(1)), memory(1, LimitedBy::System));
        assert_eq!(tightest(None, Some(1)), memory(1, LimitedBy::Group));
        assert_eq!(tightest(None, None), None);
    }

    #[test]
    fn this_machine_says_what_it_has() {
        assert!(memory().is_some_and(|memory| memory.available_bytes > 0));
    }
}
