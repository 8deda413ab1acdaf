//! Supply of free huge pages.

use std::fs;

/// Supply of huge pages, which determines how long a huge-page fault takes.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct HugePageSupply {
    /// Free bytes in blocks of at least one huge page, shared by all processes.
    pub free_bytes: u64,
    /// True if a huge-page fault waits for the kernel to compact or reclaim memory when no such
    /// block is free. Applies to memory with `MADV_HUGEPAGE`.
    pub faults_wait: bool,
    /// Share of the last ten seconds in which some process waited for memory, 0 to 1. 0 if the
    /// kernel does not report it.
    pub pressure: f64,
}

/// Returns the supply of huge pages of `huge_page_bytes` each. Returns `None` if the kernel does
/// not report it or has no huge pages.
///
/// Costs three small reads of `/proc` and `/sys`. Sources: `/proc/buddyinfo`,
/// `/sys/kernel/mm/transparent_hugepage`, `/proc/pressure/memory`.
///
/// ```
/// if let Some(supply) = evermap_observe::huge_page_supply(2 << 20) {
///     println!("{} MiB are free in huge pages", supply.free_bytes >> 20);
/// }
/// ```
pub fn huge_page_supply(huge_page_bytes: u64) -> Option<HugePageSupply> {
    let defrag = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/defrag").ok()?;
    let blocks = fs::read_to_string("/proc/buddyinfo").ok()?;
    let pressure = fs::read_to_string("/proc/pressure/memory").ok();
    Some(HugePageSupply {
        free_bytes: free_bytes_of(&blocks, rustix::param::page_size() as u64, huge_page_bytes),
        faults_wait: faults_wait(&defrag),
        pressure: pressure.and_then(|text| pressure_of(&text)).unwrap_or(0.0),
    })
}

/// Sums the free blocks in `/proc/buddyinfo` that hold a huge page. Each zone has a line with the
/// number of free blocks of 1, 2, 4 ... pages.
fn free_bytes_of(text: &str, page_bytes: u64, huge_page_bytes: u64) -> u64 {
    let of_zone = |line: &str| -> Option<u64> {
        let (_, counts) = line.split_once("zone ")?;
        let counts = counts.split_ascii_whitespace().skip(1).enumerate();
        counts
            .filter_map(|(order, count)| {
                let block_bytes = page_bytes.checked_shl(order as u32)?;
                let count = count.parse::<u64>().ok()?;
                (block_bytes >= huge_page_bytes).then(|| count.saturating_mul(block_bytes))
            })
            .reduce(u64::saturating_add)
    };
    text.lines().filter_map(of_zone).fold(0, u64::saturating_add)
}

/// Parses `defrag`. The active setting is in brackets.
fn faults_wait(text: &str) -> bool {
    ["[always]", "[madvise]", "[defer+madvise]"].iter().any(|setting| text.contains(setting))
}

/// Parses `/proc/pressure/memory`.
fn pressure_of(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let share = some.split_ascii_whitespace().find_map(|word| word.strip_prefix("avg10="))?;
    share.parse::<f64>().ok().map(|percent| percent / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_hold_a_huge_page_are_counted_in_all_zones() {
        let text = "Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      3 \n\
                    Node 0, zone   Normal  14627   6424   3413    941    248     69     13      4      1      2    975 \n";
        let mib = 1 << 20;
        assert_eq!(free_bytes_of(text, 4096, 2 * mib), (2 + 3 * 4 + 2 * 2 + 975 * 4) * mib);
        assert_eq!(free_bytes_of(text, 4096, 4 * mib), (3 * 4 + 975 * 4) * mib);
        assert_eq!(free_bytes_of("", 4096, 2 * mib), 0);
        assert_eq!(free_bytes_of("Node 0, zone\nzone x 1 y\n\0", 4096, 2 * mib), 0);
    }

    #[test]
    fn faults_wait_by_the_setting_in_brackets() {
        assert!(faults_wait("always defer defer+madvise [madvise] never\n"));
        assert!(faults_wait("always defer [defer+madvise] madvise never\n"));
        assert!(faults_wait("[always] defer defer+madvise madvise never\n"));
        assert!(!faults_wait("always [defer] defer+madvise madvise never\n"));
        assert!(!faults_wait("always defer defer+madvise madvise [never]\n"));
    }

    #[test]
    fn pressure_is_the_share_of_the_last_ten_seconds() {
        let text = "some avg10=12.50 avg60=3.00 avg300=0.00 total=80630812\n\
                    full avg10=1.00 avg60=0.00 avg300=0.00 total=18080541\n";
        assert_eq!(pressure_of(text), Some(0.125));
        assert_eq!(pressure_of("full avg10=1.00\n"), None);
    }
}
