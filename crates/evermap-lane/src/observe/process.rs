//! A process in `/proc`: its identity and its counters. It may end at any moment.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use evermap_observe::proc::{bytes_of, field};

use crate::machine::roots::text;
use crate::process::{Process, Stat};
use crate::refusal::Unobservable;
use crate::{Error, Result};

/// Process under observation.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) process: u32,
    /// Path of the executable, or the process' name if that is unknown.
    pub(super) program: String,
    running: Process,
}

impl Identity {
    pub(super) fn open(process: u32) -> Result<Self> {
        let refused = |why| Err(Error::Unobservable { process, why });
        let Some(stat) = Stat::of(process) else {
            return Err(Error::NoProcess { process });
        };
        let status = status(process).unwrap_or_default();
        let group = field(&status, "Tgid").and_then(|group| group.parse().ok());
        if let Some(group) = group.filter(|group| *group != process) {
            return refused(Unobservable::ThreadOf { process: group });
        }
        if stat.is_kernel_thread() {
            return refused(Unobservable::KernelThread);
        }
        if !stat.is_alive() {
            return refused(Unobservable::Zombie);
        }
        match fs::read_dir(directory(process).join("fd")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::NoProcess { process });
            }
            Err(_) => {
                let owner = fs::metadata(directory(process)).map_or(0, |facts| facts.uid());
                return refused(Unobservable::NotPermitted { owner });
            }
            Ok(_) => {}
        }
        let program = fs::read_link(directory(process).join("exe"));
        let program = program.map_or(stat.name, |path| path.to_string_lossy().into_owned());
        let program = program.strip_suffix(" (deleted)").map_or(program.clone(), str::to_owned);
        let running = Process { pid: process, start_ticks: stat.start_ticks };
        Ok(Identity { process, program, running })
    }

    /// Returns true while the same process runs.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_alive()
    }
}

pub(super) fn directory(process: u32) -> PathBuf {
    Path::new("/proc").join(process.to_string())
}

pub(super) fn directory_of_thread(process: u32, thread: u32) -> PathBuf {
    directory(process).join("task").join(thread.to_string())
}

/// Returns the bytes of locked memory.
pub(super) fn locked_bytes(process: u32) -> Option<u64> {
    bytes_of(&status(process)?, "VmLck")
}

fn status(process: u32) -> Option<String> {
    text(&directory(process).join("status")).ok()
}

/// Bytes read by a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Io {
    pub(super) read_bytes: u64,
    pub(super) from_disks_bytes: u64,
}

pub(super) fn io(process: u32) -> Option<Io> {
    let text = text(&directory(process).join("io")).ok()?;
    let of = |name: &str| -> Option<u64> { field(&text, name)?.parse().ok() };
    Some(Io { read_bytes: of("rchar")?, from_disks_bytes: of("read_bytes")? })
}

/// Counters of a thread since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) processor_ns: u64,
    pub(super) run_queue_ns: u64,
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
}

impl Counters {
    pub(super) fn read(process: u32, thread: u32) -> Option<Self> {
        let directory = directory_of_thread(process, thread);
        let stat = Stat::of_thread(process, thread)?;
        // Without schedstat, processor time has the resolution of ticks, and waiting time is
        // unknown.
        let exact = text(&directory.join("schedstat")).unwrap_or_default();
        let mut exact = exact.split_ascii_whitespace().map(|number| number.parse().ok());
        let ns_per_tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        Some(Counters {
            processor_ns: exact
                .next()
                .flatten()
                .unwrap_or(stat.processor_ticks.saturating_mul(ns_per_tick)),
            run_queue_ns: exact.next().flatten().unwrap_or(0),
            minor_faults: stat.minor_faults,
            major_faults: stat.major_faults,
        })
    }
}
