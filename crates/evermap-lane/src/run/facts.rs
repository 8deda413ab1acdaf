//! What the kernel says of a program's threads and of its core while they run, beside what it counts.

use crate::machine::{CpuList, Roots};
use crate::process;

/// A thread's name.
pub(super) fn name(pid: u32, thread: u32) -> String {
    let name = process::text(&format!("/proc/{pid}/task/{thread}/comm")).unwrap_or_default();
    name.trim_end_matches('\n').to_owned()
}

/// Whether the core runs. Where nothing says so, it does.
pub(super) fn is_online(roots: &Roots, core: u32) -> bool {
    let online = roots.sys_text("devices/system/cpu/online");
    let online = online.and_then(|text| text.parse::<CpuList>().ok());
    online.is_none_or(|online| online.contains(core))
}
