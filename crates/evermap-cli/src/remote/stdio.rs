//! Standard input and output as one socket, for the command that `ssh` starts.
//!
//! OpenSSH gives a command one socket for both; other servers give it two pipes. Between pipes and a socket, two threads
//! carry the bytes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use rustix::fs::{FileType, fstat};

/// What is still to be carried to standard output.
#[must_use]
pub struct Closing(Option<JoinHandle<io::Result<()>>>);

impl Closing {
    /// Waits until all has been carried. The socket must have been closed.
    pub fn end(self) -> io::Result<()> {
        match self.0.map(JoinHandle::join) {
            None | Some(Ok(Ok(_))) => Ok(()),
            Some(Ok(Err(error))) => Err(error),
            Some(Err(_)) => Err(io::Error::other("the thread that writes the output panicked")),
        }
    }
}

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// Carries bytes until their end. Not `io::copy`, which splices: while a splice from a socket waits for bytes, the kernel
/// keeps the pipe locked, and its reader cannot take the bytes that are in it already.
fn carry(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(bytes) => to.write_all(&buffer[..bytes])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A stream socket that is standard input and output.
pub fn socket() -> io::Result<(OwnedFd, Closing)> {
    let (input, output) = (io::stdin(), io::stdout());
    let identity = |stat: &rustix::fs::Stat| (stat.st_dev, stat.st_ino);
    let (from, to) = (fstat(input.as_fd())?, fstat(output.as_fd())?);
    let is_socket = FileType::from_raw_mode(from.st_mode) == FileType::Socket;
    if is_socket && identity(&from) == identity(&to) {
        return Ok((input.as_fd().try_clone_to_owned()?, Closing(None)));
    }
    let (here, there) = UnixStream::pair()?;
    let mut input = File::from(input.as_fd().try_clone_to_owned()?);
    let mut output = File::from(output.as_fd().try_clone_to_owned()?);
    let (mut sink, mut source) = (there.try_clone()?, there);
    // Ends with the input, or with the process: nobody waits for it.
    std::thread::Builder::new().spawn(move || {
        let _ = carry(&mut input, &mut sink);
        let _ = sink.shutdown(Shutdown::Write);
    })?;
    let carrying = std::thread::Builder::new().spawn(move || carry(&mut source, &mut output))?;
    Ok((here.into(), Closing(Some(carrying))))
}
