//! Counters that the kernel keeps of a thread and of a core.

use std::fs;

use evermap_observe::proc::field;
use rustix::time::{ClockId, clock_gettime};

use crate::machine::Roots;
use crate::process::{Stat, text};

/// Time that a thread ran, and time that it waited in the run queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunTimes {
    pub(crate) run_ns: u64,
    pub(crate) wait_ns: u64,
}

impl RunTimes {
    /// Reads the counters. Returns `None` if the thread has ended or the kernel does not keep them
    /// (`CONFIG_SCHED_INFO`).
    pub(crate) fn of(pid: u32, thread: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()?)
    }

    /// Parses `run wait slices`.
    fn parse(schedstat: &str) -> Option<Self> {
        let mut fields = schedstat.split_ascii_whitespace().map(str::parse);
        Some(Self { run_ns: fields.next()?.ok()?, wait_ns: fields.next()?.ok()? })
    }
}

/// Counters at one moment. Counters that the kernel does not provide are `None`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) processor_ns: u64,
    /// Time in the run queue: runnable, but not running.
    pub(crate) run_queue_ns: Option<u64>,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    pub(crate) voluntary_switches: u64,
    pub(crate) involuntary_switches: u64,
    pub(crate) core: CoreCounters,
}

/// Counters of a core. Counters that the kernel does not provide are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoreCounters {
    pub(crate) interrupts: Option<u64>,
    /// Time in which the core was ready to run, but the host of this virtual machine ran others.
    pub(crate) stolen_ns: Option<u64>,
}

impl CoreCounters {
    /// Reads the counters of a core. Cost: two reads of `/proc`.
    pub(crate) fn now(roots: &Roots, core: u32) -> Self {
        Self { interrupts: interrupts(roots, core), stolen_ns: stolen_ns(roots, core) }
    }

    /// Returns the increase since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            interrupts: increase(self.interrupts, before.interrupts),
            stolen_ns: increase(self.stolen_ns, before.stolen_ns),
        }
    }
}

fn increase(now: Option<u64>, before: Option<u64>) -> Option<u64> {
    Some(now?.saturating_sub(before?))
}

impl Counters {
    /// Reads the counters of the calling thread and of a core. Cost: five small reads of `/proc`.
    pub(crate) fn now(core: Option<u32>) -> Self {
        let own = |name: &str| text(&format!("/proc/thread-self/{name}"));
        let (status, stat) = (own("status").unwrap_or_default(), own("stat").unwrap_or_default());
        let stat = Stat::parse(&stat);
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Self {
            processor_ns: time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
            run_queue_ns: own("schedstat").and_then(|text| Some(RunTimes::parse(&text)?.wait_ns)),
            minor_faults: stat.as_ref().map_or(0, |stat| stat.minor_faults),
            major_faults: stat.map_or(0, |stat| stat.major_faults),
            voluntary_switches: status_field(&status, "voluntary_ctxt_switches").unwrap_or(0),
            involuntary_switches: status_field(&status, "nonvoluntary_ctxt_switches").unwrap_or(0),
            core: core.map(|core| CoreCounters::now(&Roots::default(), core)).unwrap_or_default(),
        }
    }

    /// Returns the increase since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            processor_ns: self.processor_ns.saturating_sub(before.processor_ns),
            run_queue_ns: increase(self.run_queue_ns, before.run_queue_ns),
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            voluntary_switches: self.voluntary_switches.saturating_sub(before.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .saturating_sub(before.involuntary_switches),
            core: self.core.since(before.core),
        }
    }
}

/// Number of times that a thread went to sleep voluntarily.
pub(crate) fn voluntary_switches(pid: u32, thread: u32) -> Option<u64> {
    let status = text(&format!("/proc/{pid}/task/{thread}/status"))?;
    status_field(&status, "voluntary_ctxt_switches")
}

fn status_field(status: &str, name: &str) -> Option<u64> {
    field(status, name)?.parse().ok()
}

/// Interrupts that a core has served since boot, including its own timer's. Returns `None` if they
/// are unknown.
fn interrupts(roots: &Roots, core: u32) -> Option<u64> {
    interrupts_in(&roots.proc_text("interrupts").ok()?, core)
}

fn interrupts_in(table: &str, core: u32) -> Option<u64> {
    let mut lines = table.lines();
    let name = format!("CPU{core}");
    let column = lines.next()?.split_ascii_whitespace().position(|word| word == name)?;
    let of_line = |line: &str| -> Option<u64> {
        let (_, counts) = line.split_once(':')?;
        counts.split_ascii_whitespace().nth(column)?.parse().ok()
    };
    Some(lines.filter_map(of_line).fold(0, u64::saturating_add))
}

/// Time since boot in which the host of this virtual machine ran others although the core was
/// ready. The kernel counts it in ticks of 10 ms.
fn stolen_ns(roots: &Roots, core: u32) -> Option<u64> {
    let ns_per_tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    Some(stolen_ticks_in(&roots.proc_text("stat").ok()?, core)?.saturating_mul(ns_per_tick))
}

/// Parses the `steal` column of `cpu1 user nice system idle iowait irq softirq steal ...`.
fn stolen_ticks_in(stat: &str, core: u32) -> Option<u64> {
    let name = format!("cpu{core} ");
    let line = stat.lines().find_map(|line| line.strip_prefix(&name))?;
    line.split_ascii_whitespace().nth(7)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn kernel_lines_are_parsed() {
        assert_eq!(RunTimes::parse("123 456 7\n"), Some(RunTimes { run_ns: 123, wait_ns: 456 }));
        assert_eq!(RunTimes::parse(""), None);
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t6\n";
        assert_eq!(status_field(status, "voluntary_ctxt_switches"), Some(5));
        assert_eq!(status_field(status, "nonvoluntary_ctxt_switches"), Some(6));
        let table = "     CPU0   CPU2\n 1:  10  20  APIC x 7\nLOC: 1 2 Local timer\nERR: 5\n";
        assert_eq!(interrupts_in(table, 2), Some(22));
        assert_eq!(interrupts_in(table, 0), Some(16));
        assert_eq!(interrupts_in(table, 1), None, "the core is offline");
        let stat = "cpu  1 2 3 4 5 6 7 8 9 10\ncpu1 1 2 3 4 5 6 7 80 9 10\ncpu11 1 2 3 4 5 6 7\n";
        assert_eq!(stolen_ticks_in(stat, 1), Some(80));
        assert_eq!(stolen_ticks_in(stat, 11), None, "an old kernel has no steal column");
        assert_eq!(stolen_ticks_in(stat, 0), None, "the core is offline");
    }

    #[test]
    fn counters_of_any_thread_are_readable() {
        let (pid, thread) = (std::process::id(), std::process::id());
        assert!(RunTimes::of(pid, thread).is_some() && voluntary_switches(pid, thread).is_some());
        assert_eq!(RunTimes::of(pid, u32::MAX), None);
    }

    #[test]
    fn a_thread_whose_name_is_not_utf8_has_counters() {
        // The kernel cuts names after 15 bytes, even within a character.
        let name = "aaaaaaaaaaaaaa\u{e9}";
        let seen = std::thread::Builder::new().name(name.into()).spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(2));
            let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
            (voluntary_switches(std::process::id(), own), Counters::now(None))
        });
        let (switches, counters) = seen.unwrap().join().unwrap();
        assert!(switches.is_some_and(|count| count >= 1), "{switches:?}");
        assert!(counters.voluntary_switches >= 1, "{counters:?}");
    }

    #[test]
    fn counters_of_this_thread_increase() {
        let before = Counters::now(None);
        std::thread::sleep(std::time::Duration::from_millis(2));
        let touched = vec![1_u8; 4 << 20];
        let after = Counters::now(None).since(before);
        assert!(after.voluntary_switches >= 1 && after.processor_ns > 0, "{after:?}");
        assert!(after.minor_faults > 0, "{after:?}, {} bytes were touched", touched.len());
        assert_eq!(after.core, CoreCounters::default());
    }
}
