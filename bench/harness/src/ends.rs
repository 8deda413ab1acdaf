//! Cleanup at every kind of end: normal, error, panic, signal, kill. A run leaves nothing behind.
//!
//! - Mounts are private to this process and its children: the kernel removes them when the last of
//!   these processes ends.
//! - Loop devices release their files after the last close (`loop_device.rs`).
//! - Image files are unlinked at once; the kernel frees them after the last close.
//! - Destructors undo the rest. If this process is killed, the guard does (`guard.rs`).
//! - A signal that asks for termination is noted, and becomes an error at the next step.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::UnshareFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::Outcome;

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Turns SIGINT, SIGTERM and SIGHUP into an error of the next step.
pub fn note_signals() -> Outcome {
    let flag = INTERRUPTED.get_or_init(Default::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}

/// Returns an error after a signal asked for termination. The caller returns it, so destructors
/// undo everything.
pub fn check_interrupted() -> Outcome {
    match INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
        true => Err("interrupted".into()),
        false => Ok(()),
    }
}

/// Enters a private mount namespace: mounts made from now on disappear with this thread and its
/// children. Returns false if that is not allowed; then nothing can be mounted either.
pub fn private_mounts() -> bool {
    // SAFETY: unshares the mount namespace only, never the table of open files.
    let left = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.is_ok();
    left && mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).is_ok()
}
