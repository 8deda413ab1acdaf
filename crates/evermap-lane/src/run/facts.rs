//! What `/proc` says of a thread and of a core while they run.

use std::fs;

use crate::machine::{CpuList, Roots};

/// How long a thread ran, and how long it could have and did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ran {
    pub(super) run_ns: u64,
    pub(super) wait_ns: u64,
}

impl Ran {
    /// None where the thread is gone, or the kernel does not keep it (`CONFIG_SCHED_INFO`).
    pub(super) fn of(pid: u32, thread: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()?;
        let mut fields = text.split_ascii_whitespace().map(str::parse);
        Some(Self { run_ns: fields.next()?.ok()?, wait_ns: fields.next()?.ok()? })
    }
}

/// How often a thread went to sleep by itself.
pub(super) fn sleeps(pid: u32, thread: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).ok()?;
    let count = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    count.trim().parse().ok()
}

/// A thread's name.
pub(super) fn name(pid: u32, thread: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/task/{thread}/comm")).unwrap_or_default();
    name.trim().to_owned()
}

/// How many interrupts a core has served since the machine was started.
pub(super) fn interrupts(roots: &Roots, core: u32) -> Option<u64> {
    interrupts_in(&roots.proc_text("interrupts").ok()?, core)
}

fn interrupts_in(text: &str, core: u32) -> Option<u64> {
    let mut lines = text.lines();
    let head = format!("CPU{core}");
    let column = lines.next()?.split_ascii_whitespace().position(|name| name == head)?;
    let of_line = |line: &str| line.split_ascii_whitespace().nth(1 + column)?.parse::<u64>().ok();
    Some(lines.filter_map(of_line).fold(0, u64::saturating_add))
}

/// Whether the core runs. Where nothing says so, it does.
pub(super) fn is_online(roots: &Roots, core: u32) -> bool {
    let online = roots.sys_text("devices/system/cpu/online");
    let online = online.and_then(|text| text.parse::<CpuList>().ok());
    online.is_none_or(|online| online.contains(core))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_counted_by_core() {
        let text = "           CPU0       CPU2       \n  0:         10          7   IO-APIC   2-edge      timer\n\
                    NMI:          1          2   Non-maskable interrupts\nERR:          5\n";
        assert_eq!(interrupts_in(text, 0), Some(16));
        assert_eq!(interrupts_in(text, 2), Some(9));
        assert_eq!(interrupts_in(text, 1), None, "it is offline");
    }

    #[test]
    fn a_threads_figures_are_there() {
        let (pid, thread) = (std::process::id(), std::process::id());
        assert!(Ran::of(pid, thread).is_some() && sleeps(pid, thread).is_some());
        assert!(!name(pid, thread).is_empty());
        assert_eq!(Ran::of(pid, u32::MAX), None);
    }
}
