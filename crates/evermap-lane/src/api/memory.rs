//! All memory of the process, locked for as long as a lane wants that.
//!
//! What is there now is brought in and locked (`MCL_CURRENT`): code that no frame has run yet would else come from the disk in the middle of one. What comes later is
//! locked when it is touched (`MCL_FUTURE | MCL_ONFAULT`): bringing that in, too, would make 8 MiB of every new thread's stack and turn each large
//! allocation into a wait. It is the process that is locked, so the first lane locks it and the last one unlocks it.
//!
//! With a limit of locked memory nothing of this is done: later allocations anywhere in the program would fail at the limit.

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::mm::{MlockAllFlags, mlockall, munlockall};

use crate::Note;
use crate::reads::{locked_bytes, locked_room_bytes};
use crate::sys::page_bytes;

static LANES: Mutex<Lanes> = Mutex::new(Lanes { process: 0, count: 0, is_ours: false });

/// Lanes that want it, and whether it is we who unlock it.
struct Lanes {
    /// Whose memory that is: a process that was forked inherits this structure, and no lock.
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

/// All memory is locked while this lives.
#[derive(Debug)]
pub(super) struct AllMemory(());

impl AllMemory {
    /// Locks it, or says why not. What is told besides is worth knowing.
    pub(super) fn lock(told: &mut Vec<Note>) -> Result<Self, Note> {
        let what = "all memory, locked and there from the beginning";
        if let Some(room_bytes) = locked_room_bytes() {
            let why = format!(
                "this process may lock {} KiB more, and only what reads go to is locked: raise the limit (`ulimit -l unlimited`, `LimitMEMLOCK=infinity`), or give it CAP_IPC_LOCK",
                room_bytes >> 10
            );
            return Err(Note::new(what, why));
        }
        let mut lanes = Lanes::of_this_process();
        if lanes.count == 0 {
            // Who had locked some before keeps it, and all the rest with it: the kernel does not tell what was.
            lanes.is_ours = locked_bytes() == Some(0);
            lock_all(told).map_err(|error| Note::new(what, error.to_string()))?;
            if !lanes.is_ours {
                let why = "this process had locked memory before: all of it stays locked when the lane is left";
                told.push(Note::new("memory unlocked at the end", why));
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

fn lock_all(told: &mut Vec<Note>) -> rustix::io::Result<()> {
    let present = match too_much() {
        None => MlockAllFlags::empty(),
        Some(mib) => {
            let why = format!(
                "this process has mapped {mib} MiB, and there is not memory for that: what is there is locked, and the rest when it is touched"
            );
            told.push(Note::new("all memory there from the beginning", why));
            MlockAllFlags::ONFAULT
        }
    };
    mlockall(MlockAllFlags::CURRENT | present)?;
    mlockall(MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT).inspect_err(|_| {
        let _ = munlockall();
    })
}

/// What is mapped, in MiB, if bringing it all in could take more than half of the memory there is.
fn too_much() -> Option<u64> {
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split(' ').next()?.parse().ok()?;
    let bytes = pages.saturating_mul(page_bytes() as u64);
    let available_bytes = evermap_observe::available_bytes()?;
    (bytes > available_bytes / 2).then_some(bytes >> 20)
}
