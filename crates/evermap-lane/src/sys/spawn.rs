//! A descriptor for a program that is started, beside its input and its outputs.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::FdFlags;

/// Leaves the descriptor open in the program that the command starts, and in no other that is started at the same time. It has the same number there,
/// which is given. The descriptor must live until the command has been started.
pub(crate) fn keep_open(command: &mut Command, descriptor: BorrowedFd<'_>) -> RawFd {
    let raw = descriptor.as_raw_fd();
    let clear = move || {
        // SAFETY: the caller keeps it open until the command is started, and this is the child's own copy.
        let descriptor = unsafe { BorrowedFd::borrow_raw(raw) };
        Ok(rustix::io::fcntl_setfd(descriptor, FdFlags::empty())?)
    };
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(clear) };
    raw
}

/// What [`keep_open`] left open for this program. It is closed when this program becomes another.
///
/// # Errors
/// A number that is no open descriptor, or one of those that every program has.
pub(crate) fn adopt(raw: RawFd) -> io::Result<OwnedFd> {
    if raw <= 2 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: only asked whether it is open; a number that is none gives an error.
    let borrowed = unsafe { BorrowedFd::borrow_raw(raw) };
    rustix::io::fcntl_setfd(borrowed, FdFlags::CLOEXEC)?;
    // SAFETY: it is open, and whoever started this program left it to this call alone.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_descriptor_is_there_in_the_program_and_closed_here_on_exec() {
        let (reader, writer) = io::pipe().unwrap();
        let mut command = Command::new("sh");
        let raw = keep_open(&mut command, writer.as_fd());
        command.arg("-c").arg(format!("printf here >&{raw}"));
        assert!(command.status().unwrap().success());
        drop((command, writer));
        assert_eq!(io::read_to_string(reader).unwrap(), "here");
    }

    #[test]
    fn what_is_no_descriptor_is_refused() {
        assert!(adopt(1).is_err() && adopt(-1).is_err() && adopt(1 << 20).is_err());
    }
}
