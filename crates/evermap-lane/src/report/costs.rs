//! What the kernel counts of a thread and of a core.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

/// As it stood at a moment; what the kernel does not tell is missing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) processor_ns: u64,
    /// The time that it could have run and did not.
    pub(crate) run_queue_ns: Option<u64>,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    pub(crate) voluntary_switches: u64,
    pub(crate) involuntary_switches: u64,
    /// Of the core.
    pub(crate) interrupts: Option<u64>,
}

impl Counters {
    /// Of this thread, and of the core. Cost: four small reads of `/proc`.
    pub(crate) fn now(core: Option<u32>) -> Self {
        let own = |name: &str| fs::read_to_string(format!("/proc/thread-self/{name}")).ok();
        let (status, stat) = (own("status").unwrap_or_default(), own("stat").unwrap_or_default());
        let faults = faults(&stat).unwrap_or_default();
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Self {
            processor_ns: time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
            run_queue_ns: own("schedstat").and_then(|text| run_queue_ns(&text)),
            minor_faults: faults.0,
            major_faults: faults.1,
            voluntary_switches: of_status(&status, "voluntary_ctxt_switches:").unwrap_or(0),
            involuntary_switches: of_status(&status, "nonvoluntary_ctxt_switches:").unwrap_or(0),
            interrupts: core
                .and_then(|core| interrupts(&fs::read_to_string("/proc/interrupts").ok()?, core)),
        }
    }

    /// What came to it since.
    pub(crate) fn since(self, before: Self) -> Self {
        let optional = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        Self {
            processor_ns: self.processor_ns.saturating_sub(before.processor_ns),
            run_queue_ns: optional(self.run_queue_ns, before.run_queue_ns),
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            voluntary_switches: self.voluntary_switches.saturating_sub(before.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .saturating_sub(before.involuntary_switches),
            interrupts: optional(self.interrupts, before.interrupts),
        }
    }
}

/// The voluntary switches of a thread of this process.
pub(crate) fn voluntary_switches(thread: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?;
    of_status(&status, "voluntary_ctxt_switches:")
}

fn of_status(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

/// The second of `run wait slices`.
fn run_queue_ns(schedstat: &str) -> Option<u64> {
    schedstat.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Minor and major ones: the fields 10 and 12, counted behind the name, which may have anything in it.
fn faults(stat: &str) -> Option<(u64, u64)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(7);
    Some((fields.next()?.parse().ok()?, fields.nth(1)?.parse().ok()?))
}

/// All interrupts that a core has served, its own timer's too.
fn interrupts(table: &str, core: u32) -> Option<u64> {
    let mut lines = table.lines();
    let name = format!("CPU{core}");
    let column = lines.next()?.split_ascii_whitespace().position(|word| word == name)?;
    let of_line = |line: &str| -> Option<u64> {
        let (_, counts) = line.split_once(':')?;
        counts.split_ascii_whitespace().nth(column)?.parse().ok()
    };
    Some(lines.filter_map(of_line).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_lines_are_read() {
        assert_eq!(run_queue_ns("123 456 7\n"), Some(456));
        assert_eq!(run_queue_ns(""), None);
        let stat = "7 (a ) b) S 1 2 3 4 5 6 11 12 13 14 15";
        assert_eq!(faults(stat), Some((11, 13)));
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t6\n";
        assert_eq!(of_status(status, "voluntary_ctxt_switches:"), Some(5));
        assert_eq!(of_status(status, "nonvoluntary_ctxt_switches:"), Some(6));
        let table = "     CPU0   CPU2\n 1:  10  20  APIC x 7\nLOC: 1 2 Local timer\nERR: 5\n";
        assert_eq!(interrupts(table, 2), Some(22));
        assert_eq!(interrupts(table, 0), Some(16));
        assert_eq!(interrupts(table, 1), None);
    }

    #[test]
    fn this_thread_has_run_and_slept() {
        let before = Counters::now(None);
        std::thread::sleep(std::time::Duration::from_millis(2));
        let touched = vec![1_u8; 4 << 20];
        let after = Counters::now(None).since(before);
        assert!(after.voluntary_switches >= 1 && after.processor_ns > 0, "{after:?}");
        assert!(after.minor_faults > 0, "{after:?}, {} bytes were touched", touched.len());
        assert_eq!(after.interrupts, None);
    }
}
