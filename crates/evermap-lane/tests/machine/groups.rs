//! Tests of finding control groups, in both versions and in containers.

use evermap_lane::machine::Groups;

use crate::mock::Mock;

const V1: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
                  32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
                  34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n";
const HYBRID: &str = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

#[test]
fn version_1_has_a_group_for_each_controller() {
    let mock = Mock::with_cores("0-1")
        .proc("self/mountinfo", V1)
        .proc("self/cgroup", "2:cpu,cpuacct:/a/b\n3:cpuset:/\n1:name=systemd:/x\n")
        .sys("fs/cgroup/cpu,cpuacct/a/b/cpu.rt_runtime_us", "0\n")
        .sys("fs/cgroup/cpuset/cpuset.cpus", "0-1\n");
    let groups = mock.look().groups;
    assert_eq!(groups.v1.keys().collect::<Vec<_>>(), ["cpu", "cpuacct", "cpuset"]);
    assert_eq!(groups.v2, None);
    let (file, runtime_us) = groups.real_time_runtime_us().unwrap();
    assert_eq!(runtime_us, 0);
    assert_eq!(file, mock.path_of_sys("fs/cgroup/cpu,cpuacct/a/b/cpu.rt_runtime_us"));
    let (file, cores) = groups.cpuset().unwrap();
    assert_eq!(file, mock.path_of_sys("fs/cgroup/cpuset/cpuset.cpus"));
    assert_eq!(cores.to_string(), "0-1");
}

#[test]
fn version_2_is_found_alone_and_with_version_1() {
    let alone = Mock::with_cores("0-3")
        .proc("self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n")
        .proc("self/cgroup", "0::/user.slice/app.scope\n")
        .sys("fs/cgroup/user.slice/app.scope/cpuset.cpus.effective", "1-3\n");
    let groups = alone.look().groups;
    assert!(groups.v1.is_empty());
    assert_eq!(groups.cpuset().unwrap().1.to_string(), "1-3");
    assert_eq!(groups.real_time_runtime_us(), None);

    let hybrid = Mock::with_cores("0-1")
        .proc("self/mountinfo", &format!("{V1}{HYBRID}"))
        .proc("self/cgroup", "3:cpuset:/shield\n0::/app\n")
        .sys("fs/cgroup/cpuset/shield/cpuset.effective_cpus", "1\n")
        .sys("fs/cgroup/unified/app/cgroup.procs", "");
    let groups = hybrid.look().groups;
    assert_eq!(groups.v2.as_ref().unwrap().directory, hybrid.path_of_sys("fs/cgroup/unified/app"));
    assert_eq!(groups.cpuset().unwrap().1.to_string(), "1", "version 1 has the cpusets");
}

#[test]
fn groups_are_found_in_a_container_that_mounts_a_part_of_the_tree() {
    let part = "34 31 0:31 /docker/ab /sys/fs/cgroup/cpuset ro,nosuid - cgroup cgroup rw,cpuset\n";
    for (own, at) in [
        // Path on the host; the mount shows a part of it.
        ("3:cpuset:/docker/ab\n", "fs/cgroup/cpuset"),
        ("3:cpuset:/docker/ab/inner\n", "fs/cgroup/cpuset/inner"),
        // Path within a control group namespace.
        ("3:cpuset:/\n", "fs/cgroup/cpuset"),
        // Outside of the visible part.
        ("3:cpuset:/../other\n", "fs/cgroup/cpuset"),
        ("3:cpuset:/docker/abc\n", "fs/cgroup/cpuset"),
    ] {
        let mock = Mock::with_cores("0-1")
            .proc("self/mountinfo", part)
            .proc("self/cgroup", own)
            .sys("fs/cgroup/cpuset/inner/cpuset.cpus", "1\n");
        let groups = mock.look().groups;
        let group = &groups.v1["cpuset"];
        assert_eq!(group.directory, mock.path_of_sys(at), "{own}");
        assert!(group.is_read_only);
    }
}

#[test]
fn the_mount_that_shows_the_group_is_used() {
    let mounts = "34 31 0:31 /docker/ab /sys/fs/cgroup/part rw - cgroup cgroup rw,cpuset\n\
                  35 31 0:31 / /sys/fs/cgroup/all rw - cgroup cgroup rw,cpuset\n";
    let mock = Mock::with_cores("0-1")
        .proc("self/mountinfo", mounts)
        .proc("self/cgroup", "3:cpuset:/other\n")
        .sys("fs/cgroup/all/other/cpuset.cpus", "0\n");
    assert_eq!(mock.look().groups.v1["cpuset"].directory, mock.path_of_sys("fs/cgroup/all/other"));
}

#[test]
fn groups_of_another_process_are_read() {
    let mock = Mock::with_cores("0-1")
        .proc("self/mountinfo", V1)
        .proc("self/cgroup", "3:cpuset:/\n")
        .proc("77/cgroup", "3:cpuset:/a\n")
        .sys("fs/cgroup/cpuset/a/cpuset.cpus", "1\n");
    let groups = Groups::of_process(&mock.roots(), 77).unwrap();
    assert_eq!(groups.cpuset().unwrap().1.to_string(), "1");
    assert_eq!(Groups::of_process(&mock.roots(), 78), None);
}

#[test]
fn empty_and_invalid_cpusets_are_ignored() {
    // A group of version 1 that was never configured, or one of version 2 that inherits.
    for text in ["\n", "x-y\n"] {
        let mock = Mock::with_cores("0-1")
            .proc("self/mountinfo", V1)
            .proc("self/cgroup", "3:cpuset:/\n:\nx\n0\n")
            .sys("fs/cgroup/cpuset/cpuset.cpus", text);
        assert_eq!(mock.look().groups.cpuset(), None);
    }
}
