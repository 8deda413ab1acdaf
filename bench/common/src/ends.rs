//! The end of it all: by itself, by an error, by a panic, by a signal, by being killed. Nothing may stay behind.
//!
//! - Mounts are private to this process and its children: the kernel takes them down when the last of them ends.
//! - Loop devices let go of their files when nobody uses them any more (`loop_device.rs`).
//! - Files of images have no name; they are gone when nobody has them open.
//! - What is left is undone by values that go away, and, if this process was killed, by a guard (`guard.rs`).
//! - A signal that asks for the end is noted, and becomes an error at the next step.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::UnshareFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::Outcome;

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Makes signals that ask for the end errors of the next step.
pub fn note_signals() -> Outcome {
    let flag = INTERRUPTED.get_or_init(Default::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}

/// An error once a signal asked for the end: everything on the way out is undone by what it belongs to.
pub fn go_on() -> Outcome {
    match INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
        true => Err("interrupted".into()),
        false => Ok(()),
    }
}

/// Leaves the mounts of all others, so that those that come now are gone with this thread and its children. False
/// where that is not allowed: then nothing can be mounted either.
pub fn private_mounts() -> bool {
    // SAFETY: only the namespace of mounts is left, never the table of files.
    let left = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.is_ok();
    left && mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).is_ok()
}
