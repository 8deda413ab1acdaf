//! Tests of `check` on simulated machines and on this one: with rights, without rights, and in a
//! control group that denies root.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use evermap_lane::machine::{CheckResult, CheckTargets, Machine, can_lend_with_fifo, check};

use crate::mock::Mock;

const NOBODY: u32 = 65_534;

fn of<'a>(all: &'a [CheckResult], name: &str) -> &'a CheckResult {
    all.iter().find(|one| one.name == name).unwrap_or_else(|| panic!("no {name} in {all:?}"))
}

fn on(mock: &Mock) -> Vec<CheckResult> {
    check(&mock.look(), &CheckTargets::default())
}

#[track_caller]
fn says(statement: &CheckResult, able: bool, what: &str) {
    assert_eq!(statement.able, able, "{statement:?}");
    assert!(statement.why.contains(what), "{statement:?} lacks {what:?}");
}

fn of_place(place: &Path) -> Vec<CheckResult> {
    check(
        &Machine::detect().unwrap(),
        &CheckTargets { places: vec![place.to_owned()], ..CheckTargets::default() },
    )
}

#[test]
fn a_single_core_cannot_be_held() {
    let all = on(&Mock::with_cores("0"));
    says(of(&all, "exclusive-core"), false, "leave no core for other programs");
    says(of(&all, "deadline-pinned"), false, "nothing to pin to");
    says(of(&all, "core"), true, "the only core online");
}

#[test]
fn cpusets_of_others_with_the_core_are_reported() {
    let mock = Mock::with_cores("0-3")
        .proc("self/cgroup", "3:cpuset:/mine\n")
        .proc("self/mountinfo", "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n")
        .sys("fs/cgroup/cpuset/mine/cpuset.cpus", "0-3\n")
        .sys("fs/cgroup/cpuset/mine/cgroup.procs", "");
    says(of(&on(&mock), "exclusive-core"), true, "no other cpuset names core 0");
    let mock = mock
        .sys("fs/cgroup/cpuset/machine/cpuset.cpus", "0-1\n")
        .sys("fs/cgroup/cpuset/machine/guest/cpuset.cpus", "0\n")
        .sys("fs/cgroup/cpuset/else/cpuset.cpus", "2\n")
        .sys("fs/cgroup/cpuset/evermap-lane-0/cpuset.cpus", "0\n");
    says(of(&on(&mock), "exclusive-core"), true, "cpuset/machine and 1 more names core 0, too");
}

#[test]
fn partitions_need_the_controller() {
    let mock = |controllers: &str| {
        Mock::with_cores("0-3")
            .proc("self/cgroup", "0::/app\n")
            .proc("self/mountinfo", "34 31 0:31 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
            .sys("fs/cgroup/app/cgroup.controllers", controllers)
            .sys("fs/cgroup/app/cgroup.procs", "")
    };
    says(
        of(&on(&mock("cpuset cpu memory\n")), "exclusive-core"),
        true,
        "by a partition of version 2",
    );
    let all = on(&mock("cpu memory\n"));
    says(of(&all, "exclusive-core"), false, "no `cpuset` controller");
    assert!(of(&all, "exclusive-core").remedy.as_ref().unwrap().contains("+cpuset"));
    says(of(&on(&Mock::with_cores("0-1")), "exclusive-core"), false, "no control groups");
}

#[test]
fn a_partition_uses_the_nearest_suitable_group() {
    let mock = |of_above: &str| {
        Mock::with_cores("0-3")
            .proc("self/cgroup", "0::/user/app\n")
            .proc("self/mountinfo", "34 31 0:31 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
            .sys("fs/cgroup/user/app/cgroup.controllers", "cpu\n")
            .sys("fs/cgroup/user/app/cgroup.type", "domain\n")
            .sys("fs/cgroup/user/cgroup.controllers", "cpuset cpu\n")
            .sys("fs/cgroup/user/cgroup.type", "domain\n")
            .sys("fs/cgroup/user/cgroup.procs", "")
            .sys("fs/cgroup/user/cpuset.cpus.partition", of_above)
    };
    says(of(&on(&mock("root\n")), "exclusive-core"), true, "fs/cgroup/user");
    says(of(&on(&mock("member\n")), "exclusive-core"), false, "no group above");
    let topmost = mock("member\n")
        .sys("fs/cgroup/cgroup.controllers", "cpuset cpu\n")
        .sys("fs/cgroup/cgroup.procs", "1\n");
    says(of(&on(&topmost), "exclusive-core"), true, "partition of version 2");
}

#[test]
fn workqueues_are_checked() {
    let mask = "devices/virtual/workqueue/cpumask";
    let with = |text: &str| on(&Mock::with_cores("0-3").sys(mask, text));
    says(of(&with("f\n"), "workqueues"), true, "can be kept off core 0");
    says(of(&with("e\n"), "workqueues"), true, "does no unbound work on core 0");
    says(of(&with("1\n"), "workqueues"), false, "no other core is left");
    says(of(&on(&Mock::with_cores("0-3")), "workqueues"), false, "no /");
}

#[test]
fn unlimited_real_time_programs_are_reported() {
    let with = |runtime: &str| {
        on(&Mock::with_cores("0-1").proc("sys/kernel/sched_rt_runtime_us", runtime))
    };
    says(of(&with("-1\n"), "throttling"), false, "keeps its core forever");
    says(of(&with("0\n"), "throttling"), false, "may not run");
    says(of(&with("950000\n"), "throttling"), true, "950000 of each 1000000 us");
    says(of(&on(&Mock::with_cores("0-1")), "throttling"), false, "unknown");
}

#[test]
fn kernels_are_distinguished() {
    let preemption = |mock: Mock| of(&on(&mock), "preemption").clone();
    let mock = || Mock::with_cores("0-1");
    says(&preemption(mock().sys("kernel/realtime", "1\n")), true, "PREEMPT_RT");
    says(
        &preemption(mock().sys("kernel/debug/sched/preempt", "none voluntary (full) lazy\n")),
        true,
        "(full)",
    );
    says(&preemption(mock().proc("cmdline", "quiet preempt=lazy\n")), true, "(lazy)");
    says(
        &preemption(mock().proc("version", "Linux version 6.1 #1 SMP Debian\n")),
        false,
        "none or voluntary",
    );
    says(
        &preemption(mock().proc("version", "Linux version 6.18 SMP PREEMPT_DYNAMIC\n")),
        false,
        "unknown",
    );
    let all = on(&mock()
        .sys("kernel/sched_ext/state", "enabled\n")
        .sys("kernel/sched_ext/root/ops", "lavd\n")
        .sys("devices/system/clocksource/clocksource0/current_clocksource", "hpet\n")
        .sys("devices/system/cpu/nohz_full", "1\n"));
    says(of(&all, "ordinary-scheduler"), true, "lavd");
    says(of(&all, "clock-source"), false, "hpet");
    says(of(&all, "tickless"), true, "cores 1");
}

#[test]
fn all_checks_answer_without_proc_and_sys() {
    let mock = Mock::silent().proc("stat", "cpu0 1\ncpu1 1\n");
    let targets = CheckTargets { places: vec![std::env::temp_dir()], ..CheckTargets::default() };
    let all = check(&mock.look(), &targets);
    says(of(&all, "core"), true, "core 0");
    says(of(&all, "disk-interrupts"), false, "no disk interrupts are known");
    says(of(&all, "exchange"), true, "tried");
    assert!(all.iter().all(|one| !one.why.is_empty()));
}

#[test]
fn trials_leave_nothing_in_a_directory() {
    let place = tempfile::tempdir().unwrap();
    let all = of_place(place.path());
    says(of(&all, "exchange"), true, "tried");
    says(of(&all, "unnamed-files"), true, "tried");
    says(of(&all, "leases"), true, "tried");
    assert!(
        all.iter()
            .filter(|one| one.place.is_some())
            .all(|one| one.place.as_deref() == Some(place.path()))
    );
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn a_named_file_is_only_read() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("clip");
    fs::write(&file, vec![7; 10_000]).unwrap();
    let before = fs::metadata(&file).unwrap();
    let all = of_place(&file);
    assert!(all.iter().any(|one| one.name == "nowait-reads"));
    assert_eq!(fs::read(&file).unwrap(), vec![7; 10_000]);
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), before.modified().unwrap());
    fs::write(&file, "").unwrap();
    says(of(&of_place(&file), "reads"), false, "empty");
}

#[test]
fn tmpfs_can_be_neither_polled_nor_mapped_synchronously() {
    let Ok(place) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("skipped: no /dev/shm");
        return;
    };
    let all = of_place(place.path());
    says(of(&all, "disk"), true, "tmpfs");
    says(of(&all, "device-mapping"), false, "MAP_SYNC");
    assert!(!of(&all, "polled-reads").able);
}

#[test]
fn an_invalid_place_is_reported() {
    says(of(&of_place(Path::new("/nowhere/at/all")), "place"), false, "No such file");
    says(of(&of_place(Path::new("/dev/null")), "place"), false, "neither a file nor a directory");
}

#[test]
fn lending_needs_core_affinity_and_fifo() {
    let all = check(&Machine::detect().unwrap(), &CheckTargets::default());
    let expected = ["core", "affinity", "fifo"].iter().all(|name| of(&all, name).able);
    assert_eq!(can_lend_with_fifo(&all), expected);
    let without: Vec<CheckResult> = all.iter().filter(|one| one.name != "fifo").cloned().collect();
    assert!(!can_lend_with_fifo(&without));
    let taken = Machine::detect().unwrap().cpus.online.iter().collect();
    let all =
        check(&Machine::detect().unwrap(), &CheckTargets { taken, ..CheckTargets::default() });
    says(of(&all, "core"), false, "no core is left");
    assert!(!can_lend_with_fifo(&all));
}

#[test]
fn a_state_directory_is_checked_but_not_made() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("run/evermap-lane");
    let targets = CheckTargets { state: Some(state.clone()), ..CheckTargets::default() };
    let all = check(&Machine::detect().unwrap(), &targets);
    says(of(&all, "state-directory"), true, "can be made");
    assert!(!state.exists());
}

/// Runs an ignored test of this program as a child, and returns its output.
fn run_child(name: &str, prepare: impl FnOnce(&mut Command)) -> String {
    run_program(&std::env::current_exe().unwrap(), name, prepare)
}

/// Like `act`, with a copy of this program that every user may execute.
fn run_copy_of_child(name: &str, prepare: impl FnOnce(&mut Command)) -> String {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), everybody).unwrap();
    let copy = folder.path().join("child");
    crate::programs::copy_program(&std::env::current_exe().unwrap(), &copy);
    run_program(&copy, name, prepare)
}

fn run_program(program: &Path, name: &str, prepare: impl FnOnce(&mut Command)) -> String {
    let mut command = Command::new(program);
    command.args(["--ignored", "--exact", "--nocapture", &format!("checks::{name}")]);
    prepare(&mut command);
    let output = command.output().unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
    said
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn missing_rights_of_user_nobody_are_named() {
    if !is_root() {
        eprintln!("skipped: only root can become nobody");
        return;
    }
    run_copy_of_child("child_as_nobody", |command| {
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
    });
}

#[test]
#[ignore = "run by `missing_rights_of_user_nobody_are_named`"]
fn child_as_nobody() {
    assert_eq!(rustix::process::geteuid().as_raw(), NOBODY);
    let all = check(&Machine::detect().unwrap(), &CheckTargets::default());
    says(of(&all, "fifo"), false, "neither CAP_SYS_NICE nor a real-time limit");
    says(of(&all, "deadline"), false, "CAP_SYS_NICE");
    says(of(&all, "core"), true, "core");
    says(of(&all, "affinity"), true, "tried");
    assert!(!of(&all, "exclusive-core").able);
    assert!(!can_lend_with_fifo(&all));
    // Every check has an answer, even about files that this user may not read.
    assert!(all.iter().all(|one| !one.why.is_empty()));
}

/// Control group that is removed at the end of the test.
struct FreshGroup(PathBuf);

impl Drop for FreshGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_new_control_group_denies_fifo_to_root_and_is_named() {
    let machine = Machine::detect().unwrap();
    let Some((file, _)) = machine.groups.real_time_runtime_us().filter(|_| is_root()) else {
        eprintln!("skipped: needs root and `cpu` groups of version 1 with real-time limits");
        return;
    };
    let group = FreshGroup(
        file.parent().unwrap().join(format!("evermap-check-test-{}", std::process::id())),
    );
    if let Err(error) = fs::create_dir(&group.0) {
        eprintln!("skipped: no group can be made: {error}");
        return;
    }
    assert_eq!(fs::read_to_string(group.0.join("cpu.rt_runtime_us")).unwrap().trim(), "0");
    run_child("child_in_a_fresh_group", |command| {
        command.env("EVERMAP_TEST_GROUP", &group.0);
    });
}

#[test]
#[ignore = "run by `a_new_control_group_denies_fifo_to_root_and_is_named`"]
fn child_in_a_fresh_group() {
    let group = PathBuf::from(std::env::var_os("EVERMAP_TEST_GROUP").unwrap());
    fs::write(group.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    let all = check(&Machine::detect().unwrap(), &CheckTargets::default());
    let fifo = of(&all, "fifo");
    says(
        fifo,
        false,
        "cpu.rt_runtime_us is 0, so no process in this control group can be real-time, not even root's",
    );
    assert!(fifo.why.contains(group.to_str().unwrap()), "{fifo:?}");
    assert!(fifo.remedy.as_ref().unwrap().contains("echo"), "{fifo:?}");
    assert!(!can_lend_with_fifo(&all));
}
