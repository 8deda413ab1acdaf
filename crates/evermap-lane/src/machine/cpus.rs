//! Which cores there are, which of them run, and which this process may use.

use std::path::Path;

use serde::Serialize;

use super::{CpuList, Roots};
use crate::{Error, Result};

/// The cores of the machine, as this process has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Cpus {
    /// Those that could ever be there.
    pub possible: CpuList,
    /// Those that run.
    pub online: CpuList,
    /// Those that this thread may be scheduled on: its affinity within its cpuset.
    pub allowed: CpuList,
    /// Those that the kernel was told at boot to move nothing to (`isolcpus=`). They are in nobody's affinity that does not ask for them.
    pub isolated: CpuList,
    /// Those whose timer stops while one program runs (`nohz_full=`).
    pub tickless: CpuList,
}

impl Cpus {
    pub(super) fn look_in(roots: &Roots) -> Result<Self> {
        let of_sys = |name: &str| -> Option<CpuList> {
            roots.sys_text(Path::new("devices/system/cpu").join(name))?.parse().ok()
        };
        let allowed = allowed(roots);
        let online = of_sys("online")
            .or_else(|| online_by_time(&roots.proc_text("stat").ok()?))
            .or_else(|| allowed.clone())
            .ok_or_else(|| Error::Io {
                operation: "tell which cores there are from",
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

/// What `/proc` says this thread may use; what the call says where there is no `/proc`.
fn allowed(roots: &Roots) -> Option<CpuList> {
    if let Ok(status) = roots.own_text("status")
        && let Some(list) = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
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

/// The cores that `/proc/stat` has a line for: those that run.
fn online_by_time(stat: &str) -> Option<CpuList> {
    let number = |line: &str| -> Option<u32> {
        line.strip_prefix("cpu")?.split_ascii_whitespace().next()?.parse().ok()
    };
    let cores: CpuList =
        stat.lines().filter(|line| !line.starts_with("cpu ")).filter_map(number).collect();
    (!cores.is_empty()).then_some(cores)
}
