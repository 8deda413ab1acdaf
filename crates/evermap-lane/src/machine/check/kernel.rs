//! Checks of the kernel: rings, namespaces, preemption, clocks; of installed recorders; and of the
//! state directory.

use std::env;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::time::{ClockId, clock_getres};

use super::super::Machine;
use super::super::roots::text;
use super::CheckResult;
use crate::sys::probe;

pub(super) fn check(machine: &Machine, state: Option<&Path>) -> Vec<CheckResult> {
    let mut all = vec![
        ring(machine),
        private_mounts(machine),
        preemption(machine),
        timer_rate(),
        scheduler_of_programs(machine),
        clock_source(machine),
        recorder("strace", "reads and writes of a program"),
        recorder("perf", "disk requests, and which threads ran"),
    ];
    all.extend(state.map(state_directory));
    all
}

fn ring(machine: &Machine) -> CheckResult {
    let name = "io-uring";
    let Err(error) = probe::ring() else {
        return CheckResult::yes(name, "tried");
    };
    let setting = machine.roots.proc_text("sys/kernel/io_uring_disabled").unwrap_or_default();
    match setting.trim() {
        "1" | "2" => CheckResult::no(
            name,
            format!("{error}: kernel.io_uring_disabled is {}", setting.trim()),
        )
        .remedy("as root: `sysctl kernel.io_uring_disabled=0`; or set `mode = \"nowait\"`"),
        _ => CheckResult::no(
            name,
            format!(
                "{error}: the kernel lacks it, or a seccomp filter (as in containers) forbids it"
            ),
        )
        .remedy("allow io_uring_setup in the filter, or set `mode = \"nowait\"`"),
    }
}

fn private_mounts(machine: &Machine) -> CheckResult {
    let name = "private-mounts";
    if probe::private_mounts(false).is_ok() {
        return CheckResult::yes(name, "tried, with the rights of this process");
    }
    let Err(error) = probe::private_mounts(true) else {
        return CheckResult::yes(name, "tried, in a new user namespace");
    };
    let is_zero = |file: &str| machine.roots.proc_text(file).is_ok_and(|text| text.trim() == "0");
    let (why, remedy) = if is_zero("sys/kernel/unprivileged_userns_clone")
        || is_zero("sys/user/max_user_namespaces")
    {
        (
            "user namespaces are disabled",
            "as root: `sysctl user.max_user_namespaces=10000 kernel.unprivileged_userns_clone=1`",
        )
    } else if machine
        .roots
        .proc_text("sys/kernel/apparmor_restrict_unprivileged_userns")
        .is_ok_and(|text| text.trim() == "1")
    {
        (
            "AppArmor denies rights in user namespaces",
            "as root: `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or add a profile for this program",
        )
    } else {
        (
            "a seccomp filter or a security module forbids namespaces",
            "start the lane where they are allowed, or as root",
        )
    };
    CheckResult::no(name, format!("{error}: {why}; `view` of files on the tier is not possible"))
        .remedy(remedy)
}

fn preemption(machine: &Machine) -> CheckResult {
    let name = "preemption";
    let unknown = "chosen at boot and unknown (`preempt=` is not among the boot parameters)";
    match preemption_model(machine).as_deref() {
        Some("rt") => CheckResult::yes(name, "the whole kernel is preemptible (PREEMPT_RT)"),
        Some("full") => CheckResult::yes(name, "the kernel is preemptible except while it holds a lock (full)"),
        Some("lazy") => CheckResult::yes(name, "real-time programs preempt the kernel at once, others at the next tick (lazy)"),
        Some(model) => CheckResult::no(
            name,
            format!("{model}: kernel code is not preempted, even by a real-time program, for some milliseconds at worst"),
        )
        .remedy("boot with `preempt=full`, if the kernel has PREEMPT_DYNAMIC"),
        None => CheckResult::no(name, unknown).remedy("boot with `preempt=full`"),
    }
}

/// Preemption model: `rt`, `full`, `lazy`, `voluntary`, `none`. `None` if it is unknown.
fn preemption_model(machine: &Machine) -> Option<String> {
    let roots = &machine.roots;
    let version = roots.proc_text("version").unwrap_or_default();
    if roots.sys_text("kernel/realtime").as_deref() == Some("1") || version.contains("PREEMPT_RT") {
        return Some("rt".into());
    }
    if let Some(models) = roots.sys_text("kernel/debug/sched/preempt")
        && let Some((model, _)) = models.split_once('(').and_then(|(_, rest)| rest.split_once(')'))
    {
        return Some(model.into());
    }
    let parameters = roots.proc_text("cmdline").unwrap_or_default();
    let asked_for = parameters
        .split_ascii_whitespace()
        .filter_map(|one| one.strip_prefix("preempt="))
        .next_back();
    if let Some(model) = asked_for {
        return Some(model.into());
    }
    if version.contains("PREEMPT_DYNAMIC") {
        return built_in(
            roots
                .sys_text("kernel/osrelease")
                .or_else(|| roots.proc_text("sys/kernel/osrelease").ok())?
                .trim(),
        );
    }
    match version.contains("PREEMPT") {
        true => Some("full".into()),
        false if version.is_empty() => None,
        false => Some("none or voluntary".into()),
    }
}

/// Model that the kernel was built with, if the distribution installs its configuration.
fn built_in(release: &str) -> Option<String> {
    let config = text(&Path::new("/boot").join(format!("config-{release}"))).ok()?;
    let is_set = |option: &str| config.lines().any(|line| line.strip_prefix(option) == Some("=y"));
    let models = [
        ("CONFIG_PREEMPT_NONE", "none"),
        ("CONFIG_PREEMPT_VOLUNTARY", "voluntary"),
        ("CONFIG_PREEMPT_LAZY", "lazy"),
        ("CONFIG_PREEMPT", "full"),
    ];
    models.iter().find(|(option, _)| is_set(option)).map(|(_, model)| (*model).into())
}

/// Reports the kernel's HZ: the coarse clock advances at every tick, so its resolution is a tick.
fn timer_rate() -> CheckResult {
    let name = "timer-rate";
    let tick = clock_getres(ClockId::MonotonicCoarse);
    match (tick.tv_sec, tick.tv_nsec) {
        (0, ns @ 1..) => CheckResult::is(
            name,
            true,
            format!(
                "{} ticks a second; timers of programs are exact nevertheless",
                (1e9 / ns as f64).round()
            ),
        ),
        _ => CheckResult::no(name, "unknown"),
    }
}

fn scheduler_of_programs(machine: &Machine) -> CheckResult {
    let name = "ordinary-scheduler";
    let of = |file: &str| machine.roots.sys_text(Path::new("kernel/sched_ext").join(file));
    match of("state").as_deref() {
        Some("enabled") => {
            let which = of("root/ops").unwrap_or_else(|| "an unknown scheduler".into());
            CheckResult::yes(
                name,
                format!("sched_ext with {which}: real-time programs run before it"),
            )
        }
        Some(_) => CheckResult::yes(name, "the kernel's own; sched_ext is available but unused"),
        None => CheckResult::yes(name, "the kernel's own; no sched_ext"),
    }
}

fn clock_source(machine: &Machine) -> CheckResult {
    let name = "clock-source";
    let source =
        machine.roots.sys_text("devices/system/clocksource/clocksource0/current_clocksource");
    match source.as_deref() {
        None => CheckResult::no(name, "unknown"),
        Some(slow @ ("hpet" | "acpi_pm" | "jiffies" | "pit" | "refined-jiffies" | "xen")) => {
            CheckResult::no(name, format!("{slow}: reading the time takes a system call, and may be coarse"))
                .remedy("look in the kernel's log why the processor's counter is not used (`dmesg | grep -i clocksource`)")
        }
        Some(quick) => CheckResult::yes(name, format!("{quick}: read without a system call")),
    }
}

fn recorder(name: &'static str, what: &str) -> CheckResult {
    let paths = env::var_os("PATH").unwrap_or_default();
    let found: Option<PathBuf> = env::split_paths(&paths)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file() && access(path, Access::EXEC_OK).is_ok());
    match found {
        Some(path) => CheckResult::yes(name, format!("{}: records {what}", path.display())),
        None => CheckResult::no(name, "not installed")
            .remedy(format!("install it to record {what} (`evermap lane trace record`)")),
    }
}

/// Checks whether the state directory could be made, without making it.
fn state_directory(directory: &Path) -> CheckResult {
    let name = "state-directory";
    let there = directory.ancestors().find(|above| above.exists()).unwrap_or(Path::new("/"));
    let shown = directory.display();
    match access(there, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from) {
        Ok(()) if there == directory => CheckResult::yes(name, format!("{shown} is writable")),
        Ok(()) => CheckResult::yes(name, format!("{shown} does not exist yet, and can be made")),
        Err(error) => CheckResult::no(name, format!("{shown}: {error} ({})", there.display()))
            .remedy("set XDG_RUNTIME_DIR to a directory that you own"),
    }
}
