//! Cores of the machine: possible, online, and allowed for this process.

use std::path::Path;

use evermap_observe::proc::field;
use serde::Serialize;

use super::{CpuList, Roots};
use crate::{Error, Result};

/// Cores of the machine as seen by this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Cpus {
    /// Cores that could ever be present.
    pub possible: CpuList,
    /// Cores that are online.
    pub online: CpuList,
    /// Cores that this thread may use: its affinity within its cpuset.
    pub allowed: CpuList,
    /// Cores isolated at boot (`isolcpus=`). They are only in affinities that name them.
    pub isolated: CpuList,
    /// Cores whose timer tick stops while one program runs (`nohz_full=`).
    pub tickless: CpuList,
}

impl Cpus {
    pub(super) fn read_in(roots: &Roots) -> Result<Self> {
        let of_sys = |name: &str| -> Option<CpuList> {
            roots.sys_text(Path::new("devices/system/cpu").join(name))?.parse().ok()
        };
        let allowed = allowed(roots);
        let online = of_sys("online")
            .or_else(|| online_by_time(&roots.proc_text("stat").ok()?))
            .or_else(|| allowed.clone())
            .ok_or_else(|| Error::Io {
                operation: "read the online cores from",
                path: roots.sys.join("devices/system/cpu/online"),
                source: std::io::ErrorKind::NotFound.into(),
            })?;
        Ok(Cpus {
            possible: of_sys("possible").unwrap_or_else(|| online.clone()),
            allowed: allowed.unwrap_or_else(|| online.clone()),
            isolated: of_sys("isolated").unwrap_or_default(),
            tickless: of_sys("nohz_full").unwrap_or_default(),
            online,
        })
    }
}

/// Cores that this thread may use, from `/proc`, or from the system call without `/proc`.
fn allowed(roots: &Roots) -> Option<CpuList> {
    if let Ok(status) = roots.own_text("status")
        && let Some(list) = field(&status, "Cpus_allowed_list")
    {
        return list.parse().ok();
    }
    if !roots.are_real() {
        return None;
    }
    let set = rustix::thread::sched_getaffinity(None).ok()?;
    let all = 0..rustix::thread::CpuSet::MAX_CPU;
    Some(all.filter(|core| set.is_set(*core)).map(|core| core as u32).collect())
}

/// Cores with a line in `/proc/stat`, which are the online ones.
fn online_by_time(stat: &str) -> Option<CpuList> {
    let number = |line: &str| -> Option<u32> {
        line.strip_prefix("cpu")?.split_ascii_whitespace().next()?.parse().ok()
    };
    let cores: CpuList =
        stat.lines().filter(|line| !line.starts_with("cpu ")).filter_map(number).collect();
    (!cores.is_empty()).then_some(cores)
}
