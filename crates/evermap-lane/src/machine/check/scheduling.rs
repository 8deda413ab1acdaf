//! Policies, affinity and timers: tried in threads of their own. And why a policy was refused, which the kernel does not say.

use std::io;
use std::num::NonZeroU64;
use std::path::PathBuf;

use super::super::Machine;
use super::rights::Rights;
use super::{Statement, apart};
use crate::policy::{App, Core};
use crate::sys::scheduler::{self, Policy, Scheduling, Thread};

/// What is tried for deadlines: a tenth of a core.
const DEADLINE_RUNTIME_NS: u64 = 1_000_000;
const DEADLINE_PERIOD_NS: u64 = 10_000_000;
/// What the kernel leaves real-time programs of each second, if nobody changed it.
const RUNTIME_US: i64 = 950_000;

pub(super) fn check(machine: &Machine, taken: &[u32]) -> Vec<Statement> {
    let rights = Rights::look(machine);
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

fn affinity(machine: &Machine, core: Option<u32>) -> Statement {
    let name = "affinity";
    let Some(core) = core else {
        return Statement::no(name, "there is no core to be pinned to, see `core`");
    };
    match apart(|| scheduler::set_affinity(Thread::CURRENT, &[core].into())) {
        Ok(()) => Statement::yes(name, format!("tried with core {core}")),
        Err(error) => Statement::no(name, format!("the kernel refuses core {core}: {error}"))
            .remedy(format!(
                "a cpuset or a filter of calls forbids it: start this elsewhere than in {}",
                machine.groups.v1.get("cpuset").or(machine.groups.v2.as_ref()).map_or_else(
                    || "this container".into(),
                    |group| group.path.display().to_string()
                )
            )),
    }
}

fn fifo(machine: &Machine, rights: &Rights) -> Statement {
    let name = "fifo";
    let wish = u32::from(App::default().priority);
    let limit = u32::try_from(rights.priority_max).unwrap_or(u32::MAX);
    let attempt =
        |priority| apart(move || scheduler::set(Thread::CURRENT, &Scheduling::fifo(priority)));
    match attempt(wish) {
        Ok(()) => Statement::yes(name, format!("tried, at priority {wish}")),
        Err(_) if (1..wish).contains(&limit) && attempt(limit).is_ok() => Statement::yes(
            name,
            format!(
                "tried; up to priority {limit} only, the limit of this process (`ulimit -r`): say `priority = {limit}`"
            ),
        ),
        Err(error) => {
            let refusal = Refusal::of(machine, rights);
            let (why, remedy) = refusal.explain("SCHED_FIFO", &error);
            Statement::no(name, why).remedy(remedy)
        }
    }
}

/// What could have made the kernel refuse a real-time policy.
#[derive(Clone, Debug)]
struct Refusal {
    rights: Rights,
    /// The `cpu` group of version 1: the file of its real-time time, and what is in it.
    group: Option<(PathBuf, i64)>,
    /// The group of version 2, if it has the `cpu` controller and is not the root.
    second: Option<PathBuf>,
    /// Of the whole machine.
    runtime_us: Option<i64>,
}

impl Refusal {
    fn of(machine: &Machine, rights: &Rights) -> Self {
        let second = machine.groups.v2.as_ref().filter(|group| {
            let has_processor =
                |text: String| text.split_ascii_whitespace().any(|one| one == "cpu");
            group.directory != group.mount
                && group.read("cgroup.controllers").is_some_and(has_processor)
        });
        Refusal {
            rights: *rights,
            group: machine.groups.real_time_runtime_us(),
            second: second.map(|group| group.directory.clone()),
            runtime_us: runtime_us(machine),
        }
    }

    /// The cause and the remedy, in the order in which the kernel looks at them.
    fn explain(&self, policy: &str, error: &io::Error) -> (String, String) {
        if error.raw_os_error() != Some(libc::EPERM) {
            return (
                format!("{policy} is refused: {error}"),
                "this kernel, or a filter of calls, has no such policy: say `scheduler = \"other\"`".into(),
            );
        }
        let in_group = self.group.as_ref().filter(|(_, runtime_us)| *runtime_us == 0);
        if !self.rights.may_schedule && self.rights.priority_max == 0 {
            let group = in_group.map_or(String::new(), |(file, _)| {
                format!(
                    "; and even then its control group would refuse it: {} is 0",
                    file.display()
                )
            });
            return (
                format!("EPERM: this process has neither CAP_SYS_NICE nor a real-time limit (RLIMIT_RTPRIO is 0){group}"),
                "start it as root; or give the user `rtprio 98` in /etc/security/limits.conf (`LimitRTPRIO=98` in a unit of systemd); or \
                 `setcap cap_sys_nice+ep` the program"
                    .into(),
            );
        }
        if let Some((file, _)) = in_group {
            return (
                format!(
                    "EPERM: {} is 0, so nobody in this control group can be real-time, root neither",
                    file.display()
                ),
                format!(
                    "as root: give the group time, as far as its parent has some (`echo {RUNTIME_US} > {}`), or start this in the root group",
                    file.display()
                ),
            );
        }
        if self.runtime_us == Some(0) {
            return (
                "EPERM: kernel.sched_rt_runtime_us is 0, so nobody on this machine can be real-time".into(),
                format!("as root: `sysctl kernel.sched_rt_runtime_us={RUNTIME_US}`"),
            );
        }
        if self.rights.is_in_user_namespace {
            return (
                "EPERM: this process has CAP_SYS_NICE in its user namespace only (a rootless container?), and the kernel asks for it in the first one"
                    .into(),
                "give the user outside of it a real-time limit (`rtprio 98`), which counts in here, too".into(),
            );
        }
        if let Some(directory) = &self.second {
            return (
                format!(
                    "EPERM: this kernel gives groups of version 2 no real-time time (CONFIG_RT_GROUP_SCHED), and this process is in {}",
                    directory.display()
                ),
                "boot with `rt_group_sched=0` (Linux 6.16), take the `cpu` controller away from this group, or start this in the root group"
                    .into(),
            );
        }
        if !self.rights.may_schedule {
            return (
                format!(
                    "EPERM: priorities up to {} only are allowed (RLIMIT_RTPRIO)",
                    self.rights.priority_max
                ),
                "say a lower `priority`, or raise the limit".into(),
            );
        }
        let filter = if self.rights.is_filtered {
            "a filter of calls (seccomp)"
        } else {
            "a security module"
        };
        (
            format!("EPERM although this process has the right: {filter} refuses it"),
            "start it without that: of a container, with CAP_SYS_NICE and a seccomp profile that allows sched_setattr".into(),
        )
    }
}

/// Without and with pinning.
fn deadlines(
    machine: &Machine,
    rights: &Rights,
    core: Option<u32>,
    has_fifo: bool,
) -> (Statement, Statement) {
    let (name, pinned_name) = ("deadline", "deadline-pinned");
    let wish = Scheduling::deadline(DEADLINE_RUNTIME_NS, DEADLINE_PERIOD_NS, DEADLINE_PERIOD_NS);
    let instead = if has_fifo {
        "`fifo` is used instead"
    } else {
        "`fifo`, which would be used instead, is not possible either"
    };
    let free = match apart(|| scheduler::set(Thread::CURRENT, &wish)) {
        Ok(()) => Statement::yes(name, "tried, for a tenth of a core without pinning"),
        Err(error) => {
            let (why, remedy) = why_no_deadline(machine, rights, &error);
            Statement::no(name, format!("{why}; {instead}")).remedy(remedy)
        }
    };
    let pinned = match core {
        Some(core) if machine.cpus.online.len() > 1 => apart(|| {
            scheduler::set_affinity(Thread::CURRENT, &[core].into())?;
            scheduler::set(Thread::CURRENT, &wish)
        }),
        _ => {
            return (
                free,
                Statement::no(
                    pinned_name,
                    "with one core, or none, there is nothing to be pinned to",
                ),
            );
        }
    };
    let pinned = match pinned {
        Ok(()) => Statement::yes(pinned_name, "tried"),
        Err(_) if !free.able => {
            Statement::no(pinned_name, "as little as without pinning, see `deadline`")
        }
        Err(error) => Statement::no(
            pinned_name,
            format!(
                "{error}: the kernel wants such a program to have all cores of its root domain; {instead} with `core = N` and `share = \"hold\"`"
            ),
        ),
    };
    (free, pinned)
}

/// Why the kernel has refused this process a policy, and what to do about it.
pub(crate) fn why_refused(
    machine: &Machine,
    policy: Policy,
    error: &io::Error,
) -> (String, String) {
    let rights = Rights::look(machine);
    match policy {
        Policy::Deadline => why_no_deadline(machine, &rights, error),
        _ => Refusal::of(machine, &rights).explain("SCHED_FIFO", error),
    }
}

fn why_no_deadline(machine: &Machine, rights: &Rights, error: &io::Error) -> (String, String) {
    match error.raw_os_error() {
        Some(libc::EBUSY) => (
            "EBUSY: other deadlines leave too little of the cores".into(),
            "end one of those, or ask for less (`budget_us`)".into(),
        ),
        Some(libc::EPERM) if !rights.may_schedule => (
            "EPERM: this process lacks CAP_SYS_NICE, and no limit stands for it".into(),
            "start it as root, or `setcap cap_sys_nice+ep` the program".into(),
        ),
        Some(libc::EPERM) if machine.cpus.allowed != machine.cpus.online => (
            format!(
                "EPERM: this process may use cores {} of {}, and the kernel wants it to have all of its root domain",
                machine.cpus.allowed, machine.cpus.online
            ),
            "start it without `taskset`, and outside of cpusets".into(),
        ),
        _ => Refusal::of(machine, rights).explain("SCHED_DEADLINE", error),
    }
}

fn runtime_us(machine: &Machine) -> Option<i64> {
    machine.roots.proc_text("sys/kernel/sched_rt_runtime_us").ok()?.trim().parse().ok()
}

/// The last net below a program that never sleeps.
fn throttling(machine: &Machine) -> Statement {
    let name = "throttling";
    let period_us: i64 = machine
        .roots
        .proc_text("sys/kernel/sched_rt_period_us")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1_000_000);
    let remedy = format!("as root: `sysctl kernel.sched_rt_runtime_us={RUNTIME_US}`");
    match runtime_us(machine) {
        None => Statement::no(name, "not known: /proc does not say what real-time programs get at most"),
        Some(-1) => Statement::no(
            name,
            "kernel.sched_rt_runtime_us is -1: a program that never sleeps keeps its core for ever, from the kernel, too",
        )
        .remedy(remedy),
        Some(0) => Statement::no(name, "kernel.sched_rt_runtime_us is 0: real-time programs get nothing").remedy(remedy),
        Some(runtime_us) => Statement::yes(
            name,
            format!("real-time programs get {runtime_us} of each {period_us} us: one that never sleeps leaves the rest to others"),
        ),
    }
}

fn timer_slack() -> Statement {
    let name = "timer-slack";
    let tried = apart(|| {
        scheduler::set_timer_slack(NonZeroU64::MIN)?;
        scheduler::timer_slack_ns()
    });
    match tried {
        Ok(1) => Statement::yes(name, "tried: timers may be 1 ns late by intent, not 50,000"),
        Ok(slack_ns) => Statement::no(name, format!("it stays at {slack_ns} ns")),
        Err(error) => Statement::no(name, format!("refused: {error}")),
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
            second: None,
            runtime_us: Some(950_000),
        }
    }

    fn said(refusal: &Refusal) -> (String, String) {
        refusal.explain("SCHED_FIFO", &io::Error::from_raw_os_error(libc::EPERM))
    }

    #[test]
    fn each_cause_is_told_from_the_others() {
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
        let mut second = refusal();
        second.second = Some("/sys/fs/cgroup/app".into());
        let mut limited = refusal();
        limited.rights.may_schedule = false;
        limited.rights.priority_max = 20;
        let mut filtered = refusal();
        filtered.rights.is_filtered = true;
        for (refusal, why, remedy) in [
            (&without_rights, "neither CAP_SYS_NICE nor", "rtprio 98"),
            (
                &in_group,
                "/g/a/cpu.rt_runtime_us is 0, so nobody in this control group can be real-time, root neither",
                "echo 950000 > /g/a",
            ),
            (&both, "even then its control group would refuse it", "as root"),
            (&nobody, "nobody on this machine", "sysctl"),
            (&rootless, "in its user namespace only", "rtprio"),
            (&second, "groups of version 2", "rt_group_sched=0"),
            (&limited, "up to 20 only", "lower `priority`"),
            (&filtered, "seccomp", "seccomp profile"),
            (&self::refusal(), "a security module", "sched_setattr"),
        ] {
            let said = said(refusal);
            assert!(said.0.contains(why), "{} lacks {why:?}", said.0);
            assert!(said.1.contains(remedy), "{} lacks {remedy:?}", said.1);
        }
    }

    #[test]
    fn what_is_tried_ends_with_its_thread() {
        let before = scheduler::get(Thread::CURRENT).unwrap();
        let cores = scheduler::affinity(Thread::CURRENT).unwrap();
        check(&Machine::look().unwrap(), &[]);
        assert_eq!(scheduler::get(Thread::CURRENT).unwrap(), before);
        assert_eq!(scheduler::affinity(Thread::CURRENT).unwrap(), cores);
    }
}
