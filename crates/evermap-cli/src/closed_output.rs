//! Keeps a closed standard output closed.
//!
//! Rust's runtime opens `/dev/null` in place of a closed standard stream before `main`, so results
//! would vanish with exit code 0. In `main` the cause cannot be told from a user's own `/dev/null`:
//! the runtime opens it for reading and writing, as do Python's `subprocess.DEVNULL` and service
//! managers. The array of initialisers runs before the runtime, so the check is there.
//!
//! A closed descriptor must not stay free, because a file that is opened later would get its number
//! and the results. `/dev/null`, opened for reading only, takes it: every write fails with `EBADF`,
//! as a write to a closed descriptor does, in this process and in commands that it starts.

use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsRawFd, IntoRawFd};

/// Runs before Rust's runtime, so it must neither panic nor use threads or arguments.
extern "C" fn before_runtime() {
    let output = rustix::stdio::stdout();
    if rustix::io::fcntl_getfd(output).is_ok() {
        return;
    }
    let Ok(unwritable) = rustix::fs::open("/dev/null", OFlags::RDONLY, Mode::empty()) else {
        return;
    };
    if unwritable.as_raw_fd() == output.as_raw_fd() {
        let _ = unwritable.into_raw_fd();
    } else {
        let _ = rustix::stdio::dup2_stdout(unwritable);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_RUNTIME: extern "C" fn() = before_runtime;
