//! Standard input and output as one socket, for the command that `ssh` starts.
//!
//! OpenSSH gives a command one socket for both. Other servers give it two pipes; then two threads
//! copy between the pipes and a socket.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use rustix::fs::{FileType, fstat};

/// Thread that copies to standard output.
#[must_use]
pub struct Closing(Option<JoinHandle<io::Result<()>>>);

impl Closing {
    /// Waits until all bytes are copied. The socket must be closed.
    pub fn end(self) -> io::Result<()> {
        match self.0.map(JoinHandle::join) {
            None | Some(Ok(Ok(_))) => Ok(()),
            Some(Ok(Err(error))) => Err(error),
            Some(Err(_)) => Err(io::Error::other("the thread that writes the output panicked")),
        }
    }
}

/// Bytes per read.
const BUFFER_BYTES: usize = 64 << 10;

/// Copies bytes until the end. Not `io::copy`, which splices: while a splice from a socket waits,
/// the kernel keeps the pipe locked, and its reader cannot read the bytes already in it.
fn copy_all(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
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

/// Returns a stream socket connected to standard input and output.
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
    // Ends with the input or the process; not joined.
    std::thread::Builder::new().spawn(move || {
        let _ = copy_all(&mut input, &mut sink);
        let _ = sink.shutdown(Shutdown::Write);
    })?;
    let copying = std::thread::Builder::new().spawn(move || copy_all(&mut source, &mut output))?;
    Ok((here.into(), Closing(Some(copying))))
}
