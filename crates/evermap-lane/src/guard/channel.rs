//! Lines of JSON between two processes of one lane. Nobody is waited for without a limit.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// No line is longer.
const LINE_BYTES_MAX: usize = 1 << 20;

/// One end.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: UnixStream,
    /// What was read behind the last line.
    read: Vec<u8>,
}

impl Channel {
    /// This end, and the other one to hand over.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (here, there) = UnixStream::pair()?;
        Ok((Self { stream: here, read: Vec::new() }, there.into()))
    }

    /// The end that was handed over.
    pub(crate) fn of(descriptor: OwnedFd) -> Self {
        Self { stream: descriptor.into(), read: Vec::new() }
    }

    /// Says something. Fails if the other end is gone, or does not read.
    pub(crate) fn say(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.stream.set_write_timeout(Some(Duration::from_secs(1)))?;
        self.stream.write_all(&line)
    }

    /// What the other end says next; none if it has nothing more to say, or not in this time. The first is over at once, so that
    /// [`Channel::is_closed`] tells which.
    pub(crate) fn hear<M: DeserializeOwned>(&mut self, within: Duration) -> io::Result<Option<M>> {
        let until = Instant::now() + within;
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            if self.read.len() > LINE_BYTES_MAX {
                return Err(io::Error::other("a line without an end"));
            }
            let left = until.saturating_duration_since(Instant::now());
            if !is_readable(self.stream.as_fd(), left)? {
                return Ok(None);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(count) => self.read.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The other end was killed with something unread.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the other end is gone and has said nothing that was not heard.
    pub(crate) fn is_closed(&self) -> bool {
        let mut one = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let polled = rustix::event::poll(&mut one, Some(&now));
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        self.read.is_empty() && polled.is_ok() && one[0].revents().intersects(gone)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn is_readable(descriptor: BorrowedFd<'_>, within: Duration) -> io::Result<bool> {
    let time = Timespec {
        tv_sec: within.as_secs().min(86_400) as i64,
        tv_nsec: i64::from(within.subsec_nanos()),
    };
    match rustix::event::poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&time)) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_and_the_end_is_told_from_silence() {
        let (mut here, there) = Channel::pair().unwrap();
        let mut there = Channel::of(there);
        here.say(&"one").unwrap();
        here.say(&"x".repeat(10_000)).unwrap();
        let soon = Duration::from_millis(10);
        assert_eq!(there.hear::<String>(soon).unwrap().unwrap(), "one");
        assert_eq!(there.hear::<String>(soon).unwrap().unwrap().len(), 10_000);
        assert!(there.hear::<String>(soon).unwrap().is_none() && !there.is_closed());
        drop(here);
        assert!(there.hear::<String>(soon).unwrap().is_none() && there.is_closed());
    }
}
