//! Locks all memory of the process while a lane wants it.
//!
//! Present pages are prefaulted and locked (`MCL_CURRENT`); otherwise code that no frame has run
//! yet would be read from the disk within a frame. Later mappings are locked when touched
//! (`MCL_FUTURE | MCL_ONFAULT`); prefaulting them would allocate 8 MiB for every new thread's stack
//! and make each large allocation wait. The lock covers the process, so the first lane locks and
//! the last one unlocks.
//!
//! A process with a limit of locked memory is not locked, because later allocations anywhere in the
//! program would fail at the limit.

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::mm::{MlockAllFlags, mlockall, munlockall};

use crate::Note;
use crate::reads::{locked_bytes, locked_room_bytes};
use crate::sys::page_bytes;

static LANES: Mutex<Lanes> = Mutex::new(Lanes { process: 0, count: 0, is_ours: false });

/// Lanes that want locked memory, and whether this crate locked it.
struct Lanes {
    /// Process of these counts. A forked process inherits the structure, but no lock.
    process: u32,
    count: usize,
    is_ours: bool,
}

impl Lanes {
    fn of_this_process() -> MutexGuard<'static, Self> {
        let mut lanes = LANES.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        if lanes.process != process {
            *lanes = Self { process, count: 0, is_ours: false };
        }
        lanes
    }
}

/// All memory of the process stays locked while this lives.
#[derive(Debug)]
pub(super) struct AllMemory(());

impl AllMemory {
    /// Locks all memory, or returns the reason why not. Adds notes on restrictions to `notes`.
    pub(super) fn lock(notes: &mut Vec<Note>) -> Result<Self, Note> {
        let what = "all memory locked and prefaulted";
        if let Some(room_bytes) = locked_room_bytes() {
            let why = format!(
                "this process may lock only {} KiB more, so only read buffers are locked: raise the limit (`ulimit -l unlimited`, `LimitMEMLOCK=infinity`), or give it CAP_IPC_LOCK",
                room_bytes >> 10
            );
            return Err(Note::new(what, why));
        }
        let mut lanes = Lanes::of_this_process();
        if lanes.count == 0 {
            // If the process had locked memory before, it all stays locked, since the kernel does
            // not report which part that was.
            lanes.is_ours = locked_bytes() == Some(0);
            lock_all(notes).map_err(|error| Note::new(what, error.to_string()))?;
            if !lanes.is_ours {
                let why =
                    "this process had locked memory before the lane, so all of it stays locked";
                notes.push(Note::new("memory unlocked at the end", why));
            }
        }
        lanes.count += 1;
        Ok(Self(()))
    }
}

impl Drop for AllMemory {
    fn drop(&mut self) {
        let mut lanes = Lanes::of_this_process();
        lanes.count = lanes.count.saturating_sub(1);
        if lanes.count == 0 && lanes.is_ours {
            let _ = munlockall();
        }
    }
}

fn lock_all(notes: &mut Vec<Note>) -> rustix::io::Result<()> {
    let present = match excessive_mapped_mib() {
        None => MlockAllFlags::empty(),
        Some(mib) => {
            let why = format!(
                "this process has mapped {mib} MiB, too much to prefault: present pages are locked now, the others when touched"
            );
            notes.push(Note::new("all memory prefaulted", why));
            MlockAllFlags::ONFAULT
        }
    };
    mlockall(MlockAllFlags::CURRENT | present)?;
    mlockall(MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT).inspect_err(|_| {
        let _ = munlockall();
    })
}

/// Returns the mapped size in MiB if prefaulting could take more than half of the available memory.
fn excessive_mapped_mib() -> Option<u64> {
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split(' ').next()?.parse().ok()?;
    let bytes = pages.saturating_mul(page_bytes() as u64);
    let available_bytes = evermap_observe::available_bytes()?;
    (bytes > available_bytes / 2).then_some(bytes >> 20)
}
