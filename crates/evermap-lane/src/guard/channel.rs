//! Lines of JSON between two processes of one lane. Every wait has a timeout.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum length of a line. Each file shown from a tier takes some hundred bytes.
const LINE_BYTES_MAX: usize = 16 << 20;
/// Longest time that a running process may take to read a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// One end of the channel.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: UnixStream,
    /// Bytes received after the last line.
    read: Vec<u8>,
    /// Number of those bytes that contain no end of a line.
    searched: usize,
}

impl Channel {
    /// Makes a channel: this end, and the descriptor of the other one.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (here, there) = UnixStream::pair()?;
        Ok((Self::of(here.into()), there.into()))
    }

    /// Opens the end that was handed over.
    pub(crate) fn of(descriptor: OwnedFd) -> Self {
        Self { stream: descriptor.into(), read: Vec::new(), searched: 0 }
    }

    /// Sends a message to a running process. Fails if the other end is closed or does not read.
    pub(crate) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.send_within(message, SEND_TIMEOUT)
    }

    /// Sends a message to a process that may need this time before it reads.
    pub(crate) fn send_within(
        &mut self,
        message: &impl Serialize,
        within: Duration,
    ) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        if line.len() >= LINE_BYTES_MAX {
            return Err(io::Error::other(format!(
                "the message has {} bytes, and {LINE_BYTES_MAX} are allowed: place fewer files on the tier",
                line.len()
            )));
        }
        line.push(b'\n');
        self.stream.set_write_timeout(Some(within))?;
        self.stream.write_all(&line)
    }

    /// Receives the next message. Returns `None` if the other end is closed or sends nothing in
    /// this time; [`Channel::is_closed`] tells which.
    pub(crate) fn receive<M: DeserializeOwned>(
        &mut self,
        within: Duration,
    ) -> io::Result<Option<M>> {
        let until = Instant::now() + within;
        loop {
            if let Some(line) = self.next_line() {
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            if self.read.len() > LINE_BYTES_MAX {
                return Err(io::Error::other("a line exceeds the maximum length"));
            }
            if !is_readable(self.stream.as_fd(), until)? {
                return Ok(None);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(count) => self.read.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The other end was killed with data unread.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    fn next_line(&mut self) -> Option<Vec<u8>> {
        let found = self.read.iter().skip(self.searched).position(|byte| *byte == b'\n');
        let Some(behind) = found else {
            self.searched = self.read.len();
            return None;
        };
        let end = self.searched + behind;
        self.searched = 0;
        Some(self.read.drain(..=end).collect())
    }

    /// Returns true if the other end is closed and nothing received is left to read.
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

/// Waits until there is data or the end of the stream. Returns false at `until`. Signals do not end
/// the wait.
fn is_readable(descriptor: BorrowedFd<'_>, until: Instant) -> io::Result<bool> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let time = Timespec {
            tv_sec: left.as_secs().min(86_400) as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match rustix::event::poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&time)) {
            Ok(count) => return Ok(count > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::signals::interrupted;

    #[test]
    fn lines_arrive_complete_and_a_closed_end_differs_from_a_silent_one() {
        let (mut here, there) = Channel::pair().unwrap();
        let mut there = Channel::of(there);
        here.send(&"one").unwrap();
        here.send(&"x".repeat(10_000)).unwrap();
        let soon = Duration::from_millis(10);
        assert_eq!(there.receive::<String>(soon).unwrap().unwrap(), "one");
        assert_eq!(there.receive::<String>(soon).unwrap().unwrap().len(), 10_000);
        assert!(there.receive::<String>(soon).unwrap().is_none() && !there.is_closed());
        drop(here);
        assert!(there.receive::<String>(soon).unwrap().is_none() && there.is_closed());
    }

    #[test]
    fn long_lines_are_received_and_too_long_ones_are_not_sent() {
        let (mut here, there) = Channel::pair().unwrap();
        let mut there = Channel::of(there);
        let timeout = Duration::from_secs(60);
        std::thread::scope(|scope| {
            let long = "x".repeat(8 << 20);
            let said = scope.spawn(move || here.send_within(&long, timeout).map(|()| here));
            assert_eq!(there.receive::<String>(timeout).unwrap().unwrap().len(), 8 << 20);
            let mut here = said.join().unwrap().unwrap();
            let error = here.send(&"x".repeat(LINE_BYTES_MAX)).unwrap_err().to_string();
            assert!(error.contains("fewer files"), "{error}");
            here.send(&"one").unwrap();
            assert_eq!(there.receive::<String>(timeout).unwrap().unwrap(), "one");
        });
    }

    #[test]
    fn an_interrupted_wait_keeps_its_timeout() {
        let (_here, there) = Channel::pair().unwrap();
        let mut there = Channel::of(there);
        let (say, hear) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let soon = Duration::from_millis(50);
            let heard = interrupted(soon, || there.receive::<String>(8 * soon));
            say.send(heard.unwrap().is_none()).unwrap();
        });
        assert_eq!(hear.recv_timeout(Duration::from_secs(60)), Ok(true), "the wait does not end");
    }
}
