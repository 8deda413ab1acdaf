//! Finds real-time programs that are bound to one core: lanes of other users, whose claims are not
//! visible, and similar programs without lanes.
//!
//! `/proc` shows policy and affinity of all users' threads. Kernel threads are left out, since
//! every core has some.

use std::fs;
use std::path::Path;

use evermap_observe::proc::field;
use serde::Serialize;

use super::{CpuList, Roots};
use crate::process::Stat;

/// Maximum number of threads examined. The core is then chosen with the information so far.
const THREADS_MAX: usize = 16_384;
/// `SCHED_FIFO`, `SCHED_RR`, `SCHED_DEADLINE`.
const REAL_TIME: [u64; 3] = [1, 2, 6];

/// Thread of a program with a real-time policy that may run on one core only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BoundThread {
    /// Number of the core.
    pub core: u32,
    /// Process of the thread.
    pub process: u32,
    /// Name of the thread.
    pub name: String,
}

/// Bound threads visible to this user.
pub(super) fn read_in(roots: &Roots) -> Vec<BoundThread> {
    let mut bound = Vec::new();
    let mut left = THREADS_MAX;
    for process in numbers(&roots.proc) {
        let directory = roots.proc.join(process.to_string());
        if stat(&directory).is_none_or(|stat| stat.is_kernel_thread()) {
            continue;
        }
        for thread in numbers(&directory.join("task")) {
            let Some(rest) = left.checked_sub(1) else { return bound };
            left = rest;
            bound.extend(of_thread(&directory.join("task").join(thread.to_string()), process));
        }
    }
    bound
}

fn of_thread(directory: &Path, process: u32) -> Option<BoundThread> {
    let stat = stat(directory).filter(|stat| REAL_TIME.contains(&stat.policy))?;
    let status = super::roots::text(&directory.join("status")).ok()?;
    let cores: CpuList = field(&status, "Cpus_allowed_list")?.parse().ok()?;
    let core = cores.iter().next().filter(|_| cores.len() == 1)?;
    Some(BoundThread { core, process, name: stat.name })
}

fn stat(directory: &Path) -> Option<Stat> {
    Stat::parse(&super::roots::text(&directory.join("stat")).ok()?)
}

/// Entries of a directory whose names are numbers.
fn numbers(directory: &Path) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}
