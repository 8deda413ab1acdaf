//! Checks of policies, affinity and timers, tried in new threads; and the causes of refused
//! policies, which the kernel does not report.

use std::io;
use std::num::NonZeroU64;
use std::path::PathBuf;

use super::super::Machine;
use super::rights::Rights;
use super::{CheckResult, in_new_thread};
use crate::policy::{App, Core};
use crate::sys::scheduler::{self, Policy, Scheduling, Thread};

/// Trial of deadline scheduling: a tenth of a core.
const DEADLINE_RUNTIME_NS: u64 = 1_000_000;
const DEADLINE_PERIOD_NS: u64 = 10_000_000;
/// Kernel's default of microseconds per second for real-time programs.
const RUNTIME_US: i64 = 950_000;

pub(super) fn check(machine: &Machine, taken: &[u32]) -> Vec<CheckResult> {
    let rights = Rights::detect(machine);
    let core = machine.choose_core(Core::Auto, taken).map(|chosen| chosen.core).ok();
    let fifo = fifo(machine, &rights);
    let (deadline, deadline_pinned) = deadlines(machine, &rights, core, fifo.able);
    vec![
        affinity(machine, core),
        fifo,
        deadline,
        deadline_pinned,
        throttling(machine),
        timer_slack(),
    ]
}

fn affinity(machine: &Machine, core: Option<u32>) -> CheckResult {
    let name = "affinity";
    let Some(core) = core else {
        return CheckResult::no(name, "no core to pin to, see `core`");
    };
    match in_new_thread(|| scheduler::set_affinity(Thread::CURRENT, &[core].into())) {
        Ok(()) => CheckResult::yes(name, format!("tried with core {core}")),
        Err(error) => CheckResult::no(name, format!("the kernel refuses core {core}: {error}"))
            .remedy(format!(
                "a cpuset or a seccomp filter forbids it: start the lane outside of {}",
                machine.groups.v1.get("cpuset").or(machine.groups.v2.as_ref()).map_or_else(
                    || "this container".into(),
                    |group| group.path.display().to_string()
                )
            )),
    }
}

fn fifo(machine: &Machine, rights: &Rights) -> CheckResult {
    let name = "fifo";
    let wanted = u32::from(App::default().priority);
    let limit = u32::try_from(rights.priority_max).unwrap_or(u32::MAX);
    let attempt = |priority| {
        in_new_thread(move || scheduler::set(Thread::CURRENT, &Scheduling::fifo(priority)))
    };
    match attempt(wanted) {
        Ok(()) => CheckResult::yes(name, format!("tried, at priority {wanted}")),
        Err(_) if (1..wanted).contains(&limit) && attempt(limit).is_ok() => CheckResult::yes(
            name,
            format!(
                "tried; only up to priority {limit}, the limit of this process (`ulimit -r`): set `priority = {limit}`"
            ),
        ),
        Err(error) => {
            let refusal = Refusal::of(machine, rights);
            let (why, remedy) = refusal.explain("SCHED_FIFO", &error);
            CheckResult::no(name, why).remedy(remedy)
        }
    }
}

/// Facts that can make the kernel refuse a real-time policy.
#[derive(Clone, Debug)]
struct Refusal {
    rights: Rights,
    /// File with the real-time runtime of the `cpu` group of version 1, and its value.
    group: Option<(PathBuf, i64)>,
    /// Group of version 2, if it has the `cpu` controller and is not the root.
    v2_group: Option<PathBuf>,
    /// Real-time runtime of the whole machine.
    runtime_us: Option<i64>,
}

impl Refusal {
    fn of(machine: &Machine, rights: &Rights) -> Self {
        let v2_group = machine.groups.v2.as_ref().filter(|group| {
            let has_processor =
                |text: String| text.split_ascii_whitespace().any(|one| one == "cpu");
            group.directory != group.mount
                && group.read("cgroup.controllers").is_some_and(has_processor)
        });
        Refusal {
            rights: *rights,
            group: machine.groups.real_time_runtime_us(),
            v2_group: v2_group.map(|group| group.directory.clone()),
            runtime_us: runtime_us(machine),
        }
    }

    /// Cause and remedy, in the order of the kernel's checks.
    fn explain(&self, policy: &str, error: &io::Error) -> (String, String) {
        if error.raw_os_error() != Some(libc::EPERM) {
            return (
                format!("the kernel refused {policy}: {error}"),
                "the kernel or a seccomp filter does not support the policy: set `scheduler = \"other\"`".into(),
            );
        }
        let in_group = self.group.as_ref().filter(|(_, runtime_us)| *runtime_us == 0);
        if !self.rights.may_schedule && self.rights.priority_max == 0 {
            let group = in_group.map_or(String::new(), |(file, _)| {
                format!("; even with it, the control group would refuse: {} is 0", file.display())
            });
            return (
                format!("EPERM: this process has neither CAP_SYS_NICE nor a real-time limit (RLIMIT_RTPRIO is 0){group}"),
                "start the lane as root; give the user `rtprio 98` in /etc/security/limits.conf (`LimitRTPRIO=98` in a unit of systemd); or \
                 `setcap cap_sys_nice+ep` the program"
                    .into(),
            );
        }
        if let Some((file, _)) = in_group {
            return (
                format!(
                    "EPERM: {} is 0, so no process in this control group can be real-time, not even root's",
                    file.display()
                ),
                format!(
                    "as root: give the group runtime, if its parent has some (`echo {RUNTIME_US} > {}`), or start the lane in the root group",
                    file.display()
                ),
            );
        }
        if self.runtime_us == Some(0) {
            return (
                "EPERM: kernel.sched_rt_runtime_us is 0, so no process on this machine can be real-time".into(),
                format!("as root: `sysctl kernel.sched_rt_runtime_us={RUNTIME_US}`"),
            );
        }
        if self.rights.is_in_user_namespace {
            return (
                "EPERM: this process has CAP_SYS_NICE only in its user namespace (a rootless container?), and the kernel needs it in the first one"
                    .into(),
                "give the user outside of the container a real-time limit (`rtprio 98`), which is valid inside, too".into(),
            );
        }
        if let Some(directory) = &self.v2_group {
            return (
                format!(
                    "EPERM: this kernel has no real-time runtime for groups of version 2 (CONFIG_RT_GROUP_SCHED), and this process is in {}",
                    directory.display()
                ),
                "boot with `rt_group_sched=0` (Linux 6.16), disable the `cpu` controller of this group, or start the lane in the root group"
                    .into(),
            );
        }
        if !self.rights.may_schedule {
            return (
                format!(
                    "EPERM: only priorities up to {} are allowed (RLIMIT_RTPRIO)",
                    self.rights.priority_max
                ),
                "set a lower `priority`, or raise the limit".into(),
            );
        }
        let filter = if self.rights.is_filtered { "a seccomp filter" } else { "a security module" };
        (
            format!("EPERM although this process has the right: {filter} refuses it"),
            "start the lane without it: start a container with CAP_SYS_NICE and a seccomp profile that allows sched_setattr".into(),
        )
    }
}

/// Checks deadline scheduling without and with pinning.
fn deadlines(
    machine: &Machine,
    rights: &Rights,
    core: Option<u32>,
    has_fifo: bool,
) -> (CheckResult, CheckResult) {
    let (name, pinned_name) = ("deadline", "deadline-pinned");
    let wanted = Scheduling::deadline(DEADLINE_RUNTIME_NS, DEADLINE_PERIOD_NS, DEADLINE_PERIOD_NS);
    let instead = if has_fifo {
        "`fifo` is used instead"
    } else {
        "`fifo`, its substitute, is not possible either"
    };
    let free = match in_new_thread(|| scheduler::set(Thread::CURRENT, &wanted)) {
        Ok(()) => CheckResult::yes(name, "tried, for a tenth of a core without pinning"),
        Err(error) => {
            let (why, remedy) = why_no_deadline(machine, rights, &error);
            CheckResult::no(name, format!("{why}; {instead}")).remedy(remedy)
        }
    };
    let pinned = match core {
        Some(core) if machine.cpus.online.len() > 1 => in_new_thread(|| {
            scheduler::set_affinity(Thread::CURRENT, &[core].into())?;
            scheduler::set(Thread::CURRENT, &wanted)
        }),
        _ => {
            return (
                free,
                CheckResult::no(
                    pinned_name,
                    "there is only one core or none, so there is nothing to pin to",
                ),
            );
        }
    };
    let pinned = match pinned {
        Ok(()) => CheckResult::yes(pinned_name, "tried"),
        Err(_) if !free.able => {
            CheckResult::no(pinned_name, "not possible even without pinning, see `deadline`")
        }
        Err(error) => CheckResult::no(
            pinned_name,
            format!(
                "{error}: the kernel allows it only with an affinity of all cores of the root domain; {instead} with `core = N` and `share = \"hold\"`"
            ),
        ),
    };
    (free, pinned)
}

/// Cause and remedy of a policy that the kernel has refused to this process.
pub(crate) fn why_refused(
    machine: &Machine,
    policy: Policy,
    error: &io::Error,
) -> (String, String) {
    let rights = Rights::detect(machine);
    match policy {
        Policy::Deadline => why_no_deadline(machine, &rights, error),
        _ => Refusal::of(machine, &rights).explain("SCHED_FIFO", error),
    }
}

fn why_no_deadline(machine: &Machine, rights: &Rights, error: &io::Error) -> (String, String) {
    match error.raw_os_error() {
        Some(libc::EBUSY) => (
            "EBUSY: other deadlines leave too little of the cores".into(),
            "end one of those programs, or reduce `budget_us`".into(),
        ),
        Some(libc::EPERM) if !rights.may_schedule => (
            "EPERM: this process lacks CAP_SYS_NICE, and no resource limit replaces it".into(),
            "start the lane as root, or `setcap cap_sys_nice+ep` the program".into(),
        ),
        Some(libc::EPERM) if machine.cpus.allowed != machine.cpus.online => (
            format!(
                "EPERM: this process may use cores {} of {}, and the kernel requires all cores of the root domain",
                machine.cpus.allowed, machine.cpus.online
            ),
            "start the lane without `taskset`, and outside of cpusets".into(),
        ),
        _ => Refusal::of(machine, rights).explain("SCHED_DEADLINE", error),
    }
}

fn runtime_us(machine: &Machine) -> Option<i64> {
    machine.roots.proc_text("sys/kernel/sched_rt_runtime_us").ok()?.trim().parse().ok()
}

/// Checks the kernel's limit on real-time programs, the last protection against one that never
/// sleeps.
fn throttling(machine: &Machine) -> CheckResult {
    let name = "throttling";
    let period_us: i64 = machine
        .roots
        .proc_text("sys/kernel/sched_rt_period_us")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1_000_000);
    let remedy = format!("as root: `sysctl kernel.sched_rt_runtime_us={RUNTIME_US}`");
    match runtime_us(machine) {
        None => CheckResult::no(name, "unknown: /proc does not report the limit on real-time programs"),
        Some(-1) => CheckResult::no(
            name,
            "kernel.sched_rt_runtime_us is -1: a program that never sleeps keeps its core forever, even from the kernel",
        )
        .remedy(remedy),
        Some(0) => CheckResult::no(name, "kernel.sched_rt_runtime_us is 0: real-time programs may not run").remedy(remedy),
        Some(runtime_us) => CheckResult::yes(
            name,
            format!("real-time programs may run {runtime_us} of each {period_us} us: one that never sleeps leaves the rest to others"),
        ),
    }
}

fn timer_slack() -> CheckResult {
    let name = "timer-slack";
    let tried = in_new_thread(|| {
        scheduler::set_timer_slack(NonZeroU64::MIN)?;
        scheduler::timer_slack_ns()
    });
    match tried {
        Ok(1) => CheckResult::yes(name, "tried: 1 ns instead of 50,000"),
        Ok(slack_ns) => CheckResult::no(name, format!("it stays at {slack_ns} ns")),
        Err(error) => CheckResult::no(name, format!("refused: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal() -> Refusal {
        let rights = Rights {
            may_schedule: true,
            may_lock: true,
            priority_max: 0,
            locked_bytes_max: None,
            is_filtered: false,
            is_in_user_namespace: false,
        };
        Refusal {
            rights,
            group: Some(("/g/cpu.rt_runtime_us".into(), 950_000)),
            v2_group: None,
            runtime_us: Some(950_000),
        }
    }

    fn said(refusal: &Refusal) -> (String, String) {
        refusal.explain("SCHED_FIFO", &io::Error::from_raw_os_error(libc::EPERM))
    }

    #[test]
    fn each_cause_has_its_explanation() {
        let mut without_rights = refusal();
        without_rights.rights.may_schedule = false;
        let mut in_group = refusal();
        in_group.group = Some(("/g/a/cpu.rt_runtime_us".into(), 0));
        let mut both = in_group.clone();
        both.rights.may_schedule = false;
        let mut nobody = refusal();
        nobody.runtime_us = Some(0);
        let mut rootless = refusal();
        rootless.rights.is_in_user_namespace = true;
        let mut v2_group = refusal();
        v2_group.v2_group = Some("/sys/fs/cgroup/app".into());
        let mut limited = refusal();
        limited.rights.may_schedule = false;
        limited.rights.priority_max = 20;
        let mut filtered = refusal();
        filtered.rights.is_filtered = true;
        for (refusal, why, remedy) in [
            (&without_rights, "neither CAP_SYS_NICE nor", "rtprio 98"),
            (
                &in_group,
                "/g/a/cpu.rt_runtime_us is 0, so no process in this control group can be real-time, not even root's",
                "echo 950000 > /g/a",
            ),
            (&both, "even with it, the control group would refuse", "as root"),
            (&nobody, "no process on this machine", "sysctl"),
            (&rootless, "only in its user namespace", "rtprio"),
            (&v2_group, "groups of version 2", "rt_group_sched=0"),
            (&limited, "only priorities up to 20", "lower `priority`"),
            (&filtered, "seccomp", "seccomp profile"),
            (&self::refusal(), "a security module", "sched_setattr"),
        ] {
            let said = said(refusal);
            assert!(said.0.contains(why), "{} lacks {why:?}", said.0);
            assert!(said.1.contains(remedy), "{} lacks {remedy:?}", said.1);
        }
    }

    #[test]
    fn trials_do_not_change_the_calling_thread() {
        let before = scheduler::get(Thread::CURRENT).unwrap();
        let cores = scheduler::affinity(Thread::CURRENT).unwrap();
        check(&Machine::detect().unwrap(), &[]);
        assert_eq!(scheduler::get(Thread::CURRENT).unwrap(), before);
        assert_eq!(scheduler::affinity(Thread::CURRENT).unwrap(), cores);
    }
}
