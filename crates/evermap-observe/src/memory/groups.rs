//! Memory headroom of this process's control groups.
//!
//! A group's limit covers all groups below it, so every group up to the root is read, and the
//! tightest counts. The two versions of control groups use different file names, listed here side
//! by side. In a container, the path in `/proc/self/cgroup` may be the host's, which is not visible
//! inside. Missing directories are skipped, up to the root of the mount, which is the container's
//! own group.

use std::fs;

use crate::proc::{Membership, memberships};

/// Limits from here on mean "no limit". Version 1 reports the largest multiple of the page size
/// instead.
const LIMIT_BYTES_MAX: u64 = 1 << 60;

/// File names of one version of control groups.
struct Version {
    limit: &'static str,
    usage: &'static str,
    /// Fields of `memory.stat` with the file pages of the group and its descendants, which the
    /// usage also covers.
    pages: [&'static str; 2],
    mounts: &'static [&'static str],
}

const FIRST: Version = Version {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    pages: ["total_inactive_file", "total_active_file"],
    mounts: &["/sys/fs/cgroup/memory"],
};

const SECOND: Version = Version {
    limit: "memory.max",
    usage: "memory.current",
    pages: ["inactive_file", "active_file"],
    // Version 2 alone, or beside version 1.
    mounts: &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
};

/// Returns the smallest headroom of all groups of this process, or `None` if no group has a limit.
pub(super) fn headroom_bytes() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    tightest(&own, |path| fs::read_to_string(path).ok())
}

/// Like [`headroom_bytes`], from the text of `/proc/self/cgroup` and a `read` function for other
/// files.
fn tightest(own: &str, read: impl Fn(&str) -> Option<String>) -> Option<u64> {
    memberships(own)
        .filter_map(|group| Some((version_of(&group)?, group.path)))
        .flat_map(|(version, path)| {
            version.mounts.iter().flat_map(move |mount| {
                upwards(path).map(move |group| (version, format!("{mount}{group}")))
            })
        })
        .filter_map(|(version, directory)| {
            let text = |name: &str| read(&format!("{directory}/{name}"));
            let limit = limit_of(&text(version.limit)?)?;
            let usage = text(version.usage)?.trim().parse().ok()?;
            let cached = text("memory.stat").map_or(0, |stat| cached_of(&stat, version.pages));
            Some(headroom_of(limit, usage, cached))
        })
        .min()
}

/// Returns the version of the hierarchy, or `None` if it has no memory controller.
fn version_of(group: &Membership<'_>) -> Option<&'static Version> {
    match group.controllers {
        None => Some(&SECOND),
        Some(_) => group.controllers().any(|name| name == "memory").then_some(&FIRST),
    }
}

/// Returns a group and its ancestors up to the root, which is the empty path. Returns only the root
/// for a group outside the visible tree (`/../other`).
fn upwards(path: &str) -> impl Iterator<Item = &str> {
    let is_seen = path.starts_with('/') && !path.split('/').any(|name| name == "..");
    let own = if is_seen { path.trim_end_matches('/') } else { "" };
    std::iter::successors(Some(own), |group| group.rfind('/').map(|at| &group[..at]))
}

/// Parses a limit. "max" is not a number and means "no limit".
fn limit_of(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|limit| *limit < LIMIT_BYTES_MAX)
}

/// Returns the bytes of file pages in a `memory.stat`. The kernel reclaims them before an
/// allocation fails.
fn cached_of(stat: &str, pages: [&str; 2]) -> u64 {
    stat.lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| pages.contains(name))
        .filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok())
        .fold(0, u64::saturating_add)
}

/// Computes the headroom. The figures are read at different times, so their sum can exceed the
/// limit.
fn headroom_of(limit: u64, usage: u64, cached: u64) -> u64 {
    limit.saturating_sub(usage.saturating_sub(cached))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const MIB: u64 = 1 << 20;
    const NO_LIMIT: &str = "9223372036854771712\n";

    /// Returns the headroom for these file contents.
    fn headroom(own: &str, files: &[(&str, &str)]) -> Option<u64> {
        let files: HashMap<_, _> = files.iter().copied().collect();
        tightest(own, |path| files.get(path).map(|text| text.to_string()))
    }

    #[test]
    fn version_1_is_found_among_other_controllers() {
        let own = "12:pids:/docker/ab\n4:cpu,cpuacct:/docker/ab\n3:memory:/docker/ab\n0::/\n";
        let files = [
            ("/sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes", "104857600\n"),
            ("/sys/fs/cgroup/memory/docker/ab/memory.usage_in_bytes", "41943040\n"),
            (
                "/sys/fs/cgroup/memory/docker/ab/memory.stat",
                "cache 1\nrss 2\ninactive_file 3\nactive_file 4\ntotal_inactive_file 10485760\n\
                 total_active_file 5242880\n",
            ),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", NO_LIMIT),
        ];
        assert_eq!(headroom(own, &files), Some((100 - 40 + 15) * MIB));
    }

    #[test]
    fn the_tightest_group_on_the_way_up_counts() {
        let own = "0::/user.slice/app.scope\n";
        let files = [
            ("/sys/fs/cgroup/user.slice/app.scope/memory.max", "max\n"),
            ("/sys/fs/cgroup/user.slice/app.scope/memory.current", "1048576\n"),
            ("/sys/fs/cgroup/user.slice/memory.max", "20971520\n"),
            ("/sys/fs/cgroup/user.slice/memory.current", "10485760\n"),
            ("/sys/fs/cgroup/user.slice/memory.stat", "anon 9\ninactive_file 1048576\n"),
        ];
        assert_eq!(headroom(own, &files), Some(11 * MIB));
    }

    #[test]
    fn version_2_is_found_beside_version_1() {
        let files = [
            ("/sys/fs/cgroup/unified/app/memory.max", "20971520\n"),
            ("/sys/fs/cgroup/unified/app/memory.current", "10485760\n"),
        ];
        assert_eq!(headroom("5:memory:/\n0::/app\n", &files), Some(10 * MIB));
    }

    #[test]
    fn a_container_that_sees_only_its_own_group_finds_it_at_the_root() {
        let files = [
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "20971520\n"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "20971520\n"),
        ];
        assert_eq!(headroom("3:memory:/docker/ab\n", &files), Some(0));
        assert_eq!(headroom("3:memory:/../ab\n", &files), Some(0));
    }

    #[test]
    fn unlimited_and_malformed_limits_are_ignored() {
        let limit = |text| {
            let files = [
                ("/sys/fs/cgroup/memory/memory.limit_in_bytes", text),
                ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n"),
            ];
            headroom("3:memory:/\n", &files)
        };
        assert_eq!(limit(NO_LIMIT), None);
        assert_eq!(limit("max\n"), None);
        assert_eq!(limit("\n"), None);
        assert_eq!(limit("2\n"), Some(1));
        assert_eq!(headroom("", &[]), None);
        assert_eq!(headroom("memory\n3:memory\n0::\n1::/\n", &[]), None);
    }

    #[test]
    fn a_group_over_its_limit_has_no_headroom_and_cache_counts_as_free() {
        assert_eq!(headroom_of(10, 20, 0), 0);
        assert_eq!(headroom_of(10, 20, 5), 0);
        assert_eq!(headroom_of(10, 10, 10), 10);
        assert_eq!(headroom_of(10, 5, 10), 10);
    }

    #[test]
    fn upwards_lists_all_ancestors_and_nothing_outside_the_tree() {
        let groups = |path| upwards(path).collect::<Vec<_>>();
        assert_eq!(groups("/a/b"), ["/a/b", "/a", ""]);
        assert_eq!(groups("/"), [""]);
        assert_eq!(groups("/../a"), [""]);
        assert_eq!(groups(""), [""]);
    }
}
