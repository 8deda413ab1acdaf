//! Checks of memory locking and of the memory tier.

use std::path::Path;

use super::super::Machine;
use super::rights::Rights;
use super::{CheckResult, mib};

/// Default tier of policies.
const MEMORY_TIER: &str = "/dev/shm";

pub(super) fn check(machine: &Machine) -> Vec<CheckResult> {
    vec![lock(&Rights::detect(machine)), memory_tier()]
}

fn lock(rights: &Rights) -> CheckResult {
    let name = "lock-memory";
    match rights.locked_bytes_max {
        _ if rights.may_lock => CheckResult::yes(name, "all memory of a program: this process has CAP_IPC_LOCK"),
        None => CheckResult::yes(name, "all memory of a program: no limit (RLIMIT_MEMLOCK)"),
        Some(bytes) => CheckResult::no(
            name,
            format!("only {} may be locked (RLIMIT_MEMLOCK), so only read buffers are locked", mib(bytes)),
        )
        .remedy("give the user `memlock unlimited` in /etc/security/limits.conf (`LimitMEMLOCK=infinity` in a unit of systemd), or CAP_IPC_LOCK"),
    }
}

fn memory_tier() -> CheckResult {
    let name = "memory-tier";
    let Ok(facts) = rustix::fs::statvfs(MEMORY_TIER) else {
        return CheckResult::no(name, format!("no {MEMORY_TIER}"))
            .remedy("mount a tmpfs there, or name another tier (`path` in `[tier]`)");
    };
    let is_memory = rustix::fs::open(
        Path::new(MEMORY_TIER),
        rustix::fs::OFlags::PATH,
        rustix::fs::Mode::empty(),
    )
    .and_then(|directory| evermap_observe::FileSystem::of(std::os::fd::AsFd::as_fd(&directory)))
    .is_ok_and(evermap_observe::FileSystem::is_memory);
    let free = facts.f_bavail.saturating_mul(facts.f_frsize);
    let memory = evermap_observe::available_bytes();
    let said = memory.map_or("the available memory is unknown".into(), |bytes| {
        format!("{} of memory is available", mib(bytes))
    });
    let is_possible =
        is_memory && rustix::fs::access(MEMORY_TIER, rustix::fs::Access::WRITE_OK).is_ok();
    match is_possible {
        true => CheckResult::yes(name, format!("{MEMORY_TIER} has {} free, and {said}", mib(free))),
        false => {
            CheckResult::no(name, format!("{MEMORY_TIER} is not in memory, or is not writable"))
                .remedy("mount a tmpfs there, or name another tier (`path` in `[tier]`)")
        }
    }
}
