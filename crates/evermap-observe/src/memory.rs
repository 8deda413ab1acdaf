//! How much memory may be filled with pages that nobody asked to keep.

use std::fs;

/// What the kernel thinks can be had without swapping, or less where the process's control group has less left;
/// `None` where neither is told.
pub fn available_bytes() -> Option<u64> {
    [system_bytes(), group_bytes()].into_iter().flatten().min()
}

fn system_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// What is left to the control group (version 2) up to its limit.
fn group_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let read = |name| fs::read_to_string(format!("/sys/fs/cgroup{own}/{name}")).ok();
    // "max" is no limit, and no number.
    let limit: u64 = read("memory.max")?.trim().parse().ok()?;
    let used: u64 = read("memory.current")?.trim().parse().ok()?;
    Some(limit.saturating_sub(used))
}
