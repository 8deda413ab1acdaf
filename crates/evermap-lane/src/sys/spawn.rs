//! Passes an additional descriptor to a program that is started.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::FdFlags;

/// Leaves the descriptor open in the program that the command starts, and in no program that is
/// started concurrently. Returns its number, which is the same there. The descriptor must stay open
/// until the command has been started.
pub(crate) fn keep_open(command: &mut Command, descriptor: BorrowedFd<'_>) -> RawFd {
    let raw = descriptor.as_raw_fd();
    let clear = move || {
        // SAFETY: the caller keeps the descriptor open until the command is started, and the child
        // has its own copy.
        let descriptor = unsafe { BorrowedFd::borrow_raw(raw) };
        Ok(rustix::io::fcntl_setfd(descriptor, FdFlags::empty())?)
    };
    // SAFETY: the closure makes one system call and allocates nothing, so it is safe after a fork.
    unsafe { command.pre_exec(clear) };
    raw
}

/// Takes over a descriptor that [`keep_open`] left open for this program. It closes on exec.
///
/// # Errors
/// The number is not an open descriptor, or is one of the three standard ones.
pub(crate) fn adopt(raw: RawFd) -> io::Result<OwnedFd> {
    if raw <= 2 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: `fcntl` only checks the descriptor; a closed one is an error.
    let borrowed = unsafe { BorrowedFd::borrow_raw(raw) };
    rustix::io::fcntl_setfd(borrowed, FdFlags::CLOEXEC)?;
    // SAFETY: the descriptor is open, and the process that started this program left it to this
    // call alone.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_kept_descriptor_is_open_in_the_started_program() {
        let (reader, writer) = io::pipe().unwrap();
        let mut command = Command::new("sh");
        let raw = keep_open(&mut command, writer.as_fd());
        command.arg("-c").arg(format!("printf here >&{raw}"));
        assert!(command.status().unwrap().success());
        drop((command, writer));
        assert_eq!(io::read_to_string(reader).unwrap(), "here");
    }

    #[test]
    fn invalid_descriptors_are_refused() {
        assert!(adopt(1).is_err() && adopt(-1).is_err() && adopt(1 << 20).is_err());
    }
}
