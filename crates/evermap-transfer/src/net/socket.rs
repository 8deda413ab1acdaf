//! A connected stream socket: protocol messages, with a timeout on each wait.
//!
//! Engines move file data on the same, blocking descriptor. Protocol messages are small and never
//! block in the kernel. Waits check for cancellation.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrAny, SocketType, sockopt,
};

use super::wire::{FRAME_BYTES, Frame, Malformed, Reason, TEXT_BYTES_MAX};
use crate::error::{Error, Result};
use crate::sys::queue::set_wake_threshold;

/// Bytes to receive before the receiver wakes. Waking it for each segment of 64 KiB costs the
/// sender 658 ms of processor time per GiB if TCP paces segments, and 180 ms with this value.
/// Larger values gain nothing more.
pub(super) const WAKE_BYTES: u64 = 128 << 10;

/// Interval at which a wait checks for cancellation.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Timeout of a read or write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeout<'a> {
    cancelled: &'a AtomicBool,
    limit: Limit,
}

#[derive(Debug, Clone, Copy)]
enum Limit {
    /// Ends at this instant, with the original duration for messages.
    Deadline(Instant, Duration),
    /// Ends after this time without progress.
    Idle(Duration),
}

impl<'a> Timeout<'a> {
    /// Creates a timeout for the whole operation: for short messages and for data from unidentified
    /// peers.
    pub(super) fn within(time: Duration, cancelled: &'a AtomicBool) -> Timeout<'a> {
        Timeout { cancelled, limit: Limit::Deadline(Instant::now() + time, time) }
    }

    /// Creates a timeout that restarts with each byte moved.
    pub(super) fn idle(time: Duration, cancelled: &'a AtomicBool) -> Timeout<'a> {
        Timeout { cancelled, limit: Limit::Idle(time) }
    }

    /// Returns the remaining time if the last byte moved at `moved`.
    fn left(&self, moved: Instant) -> Option<Duration> {
        let end = match self.limit {
            Limit::Deadline(end, _) => end,
            Limit::Idle(time) => moved + time,
        };
        end.checked_duration_since(Instant::now())
    }

    /// Returns the full duration.
    fn time(&self) -> Duration {
        match self.limit {
            Limit::Deadline(_, time) | Limit::Idle(time) => time,
        }
    }
}

/// Identity of a peer for per-peer limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Peer {
    /// IPv4 address, including mapped ones in IPv6.
    V4(Ipv4Addr),
    /// First 64 bits of an IPv6 address. The host chooses the rest.
    V6([u16; 4]),
    /// User of this machine, over a UNIX socket.
    User(u32),
    /// Not reported by the kernel.
    Unknown,
}

impl Peer {
    fn of(descriptor: &OwnedFd, address: Option<SocketAddrAny>) -> Peer {
        if let Some(Ok(address)) = address.map(std::net::SocketAddr::try_from) {
            return match address.ip().to_canonical() {
                IpAddr::V4(address) => Peer::V4(address),
                IpAddr::V6(address) => {
                    let [a, b, c, d, ..] = address.segments();
                    Peer::V6([a, b, c, d])
                }
            };
        }
        match sockopt::socket_peercred(descriptor) {
            Ok(credentials) => Peer::User(credentials.uid.as_raw()),
            Err(_) => Peer::Unknown,
        }
    }
}

/// A connection. Clones share it between the thread that uses it and the one that may end it.
#[derive(Debug, Clone)]
pub(super) struct Socket {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    descriptor: OwnedFd,
    /// Peer's address, for messages.
    address: String,
    is_tcp: bool,
    peer: Peer,
}

impl Socket {
    /// Wraps a connected stream socket and makes it blocking. `otherwise` names peers without an
    /// address, as of UNIX sockets.
    pub(super) fn new(descriptor: OwnedFd, otherwise: &str) -> Result<Socket> {
        let failed = |errno| Error::io("use as a socket", otherwise)(errno);
        if sockopt::socket_type(&descriptor).map_err(failed)? != SocketType::STREAM {
            return Err(Error::Usage(format!(
                "{otherwise} is not a stream socket, which transfers require"
            )));
        }
        let is_tcp = sockopt::socket_domain(&descriptor).map_err(failed)? != AddressFamily::UNIX;
        let peer = match rustix::net::getpeername(&descriptor) {
            Ok(peer) => peer,
            Err(Errno::NOTCONN) => {
                let what = "the peer closed the connection before the transfer began, or it was never connected".into();
                return Err(Error::Peer { address: otherwise.into(), what });
            }
            Err(errno) => return Err(failed(errno)),
        };
        let id = Peer::of(&descriptor, peer.clone());
        let address = match peer.and_then(named) {
            Some(address) => address,
            None => otherwise.to_string(),
        };
        let flags = rustix::fs::fcntl_getfl(&descriptor).map_err(failed)?;
        if flags.contains(OFlags::NONBLOCK) {
            rustix::fs::fcntl_setfl(&descriptor, flags - OFlags::NONBLOCK).map_err(failed)?;
        }
        if is_tcp {
            // Messages are questions and answers, so there is nothing to wait for. Proxies may
            // refuse this option.
            let _ = sockopt::set_tcp_nodelay(&descriptor, true);
        }
        Ok(Socket { shared: Arc::new(Shared { descriptor, address, is_tcp, peer: id }) })
    }

    pub(super) fn address(&self) -> &str {
        &self.shared.address
    }

    /// Returns the peer's identity.
    pub(super) fn peer(&self) -> Peer {
        self.shared.peer
    }

    /// Returns the address as a path, for engines.
    pub(super) fn path(&self) -> PathBuf {
        self.shared.address.clone().into()
    }

    pub(super) fn is_tcp(&self) -> bool {
        self.shared.is_tcp
    }

    /// Creates an error about this connection.
    pub(super) fn error(&self, what: impl Into<String>) -> Error {
        Error::Peer { address: self.address().into(), what: what.into() }
    }

    /// Creates an error about malformed data.
    pub(super) fn malformed(&self, what: Malformed) -> Error {
        self.error(what.to_string())
    }

    /// Creates an error for a failed call on this connection.
    pub(super) fn connection_error(&self, errno: Errno, doing: &str) -> Error {
        match errno {
            Errno::PIPE | Errno::CONNRESET | Errno::CONNABORTED | Errno::NOTCONN => {
                self.error(format!(
                    "the peer closed the connection {doing}; nothing was kept: check the peer's messages and send again"
                ))
            }
            errno => self.error(format!(
                "the connection failed {doing} ({errno}); nothing was kept: send again"
            )),
        }
    }

    /// Reads until `buffer` is full.
    pub(super) fn read_exact(
        &self,
        buffer: &mut [u8],
        timeout: Timeout<'_>,
        doing: &str,
    ) -> Result<()> {
        let (mut read, mut moved) = (0, Instant::now());
        while read < buffer.len() {
            match rustix::net::recv(self, &mut buffer[read..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    return Err(self.error(format!(
                        "the peer closed the connection {doing}; nothing was kept: check the peer's messages and send again"
                    )));
                }
                Ok((bytes, _)) => (read, moved) = (read + bytes, Instant::now()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, timeout, moved, doing)?,
                Err(errno) => return Err(self.connection_error(errno, doing)),
            }
        }
        Ok(())
    }

    /// Writes all of `bytes`. With `more`, they may be delayed until the next write.
    pub(super) fn write_all(
        &self,
        bytes: &[u8],
        more: bool,
        timeout: Timeout<'_>,
        doing: &str,
    ) -> Result<()> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let flags = if more && self.is_tcp() { flags | SendFlags::MORE } else { flags };
        let (mut sent, mut moved) = (0, Instant::now());
        while sent < bytes.len() {
            match rustix::net::send(self, &bytes[sent..], flags) {
                Ok(bytes) => (sent, moved) = (sent + bytes, Instant::now()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, timeout, moved, doing)?,
                Err(errno) => return Err(self.connection_error(errno, doing)),
            }
        }
        Ok(())
    }

    pub(super) fn send_frame(&self, frame: &Frame, timeout: Timeout<'_>) -> Result<()> {
        self.write_all(&frame.encode(), false, timeout, "while a message was sent")
    }

    /// Reads the next frame. `awaiting` describes the situation in error messages.
    pub(super) fn read_frame(&self, timeout: Timeout<'_>, awaiting: &str) -> Result<Frame> {
        let mut head = [0; FRAME_BYTES];
        self.read_exact(&mut head, timeout, awaiting)?;
        let text_bytes = Frame::text_bytes(&head).map_err(|what| self.malformed(what))?;
        let mut text = [0; TEXT_BYTES_MAX];
        self.read_exact(&mut text[..text_bytes], timeout, awaiting)?;
        Frame::decode(&head, &text[..text_bytes]).map_err(|what| self.malformed(what))
    }

    /// Reads the reason for which the peer gave up, if it sent one.
    pub(super) fn read_failure(&self, time: Duration) -> Option<(Reason, u64, String)> {
        let never = AtomicBool::new(false);
        let timeout = Timeout::within(time, &never);
        loop {
            match self.read_frame(timeout, "") {
                Ok(Frame::Failed { reason, at, text }) => return Some((reason, at, text)),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }

    /// Returns true if the peer has closed the connection or sent a failure. Other data stays
    /// unread.
    pub(super) fn has_given_up(&self) -> bool {
        let mut kind = [0; 4];
        match rustix::net::recv(self, &mut kind, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((0, _)) => true,
            Ok((read, _)) => read == kind.len() && Frame::is_failed(&kind),
            Err(errno) => !matches!(errno, Errno::AGAIN | Errno::INTR),
        }
    }

    /// Calls `body` with a wake threshold: a waiting receiver wakes only after [`WAKE_BYTES`]
    /// arrived or the stream ended. Unless `body` reads to the end of the stream, at least that
    /// many bytes must follow what it reads, or it never wakes. TCP only.
    pub(super) fn with_wake_threshold<T>(&self, body: impl FnOnce() -> T) -> T {
        let is_set = self.is_tcp() && set_wake_threshold(self.as_fd(), WAKE_BYTES as i32);
        let result = body();
        if is_set {
            set_wake_threshold(self.as_fd(), 1);
        }
        result
    }

    /// Returns the bytes in the receive and send queues, which change as data moves.
    pub(super) fn queued_bytes(&self) -> (u64, u64) {
        (
            crate::sys::queue::unread_bytes(self.as_fd()),
            crate::sys::queue::unsent_bytes(self.as_fd()),
        )
    }

    /// Shuts down the sending side, which wakes a blocked sender.
    pub(super) fn end_sending(&self) {
        // Fails if the peer has already closed the connection, which has the same effect.
        let _ = rustix::net::shutdown(self, Shutdown::Write);
    }

    /// Shuts down the receiving side, which wakes a blocked receiver.
    pub(super) fn end_receiving(&self) {
        let _ = rustix::net::shutdown(self, Shutdown::Read);
    }

    /// Makes closing reset the connection, so that no receiver mistakes it for the end of the data.
    /// Not available on UNIX sockets.
    pub(super) fn reset_when_closed(&self) {
        if self.is_tcp() {
            let _ = sockopt::set_socket_linger(self, Some(Duration::ZERO));
        }
    }

    fn wait(
        &self,
        flags: PollFlags,
        timeout: Timeout<'_>,
        moved: Instant,
        doing: &str,
    ) -> Result<()> {
        if timeout.cancelled.load(Ordering::Relaxed) {
            return Err(Error::Cancelled { left: "no partial file remains".into() });
        }
        let Some(left) = timeout.left(moved) else {
            let time = timeout.time();
            return Err(self.error(format!(
                "no progress for {time:?} {doing}; nothing was kept: check that the peer is running and the network is up"
            )));
        };
        let turn = left.min(POLL_INTERVAL);
        let turn = Timespec { tv_sec: 0, tv_nsec: i64::from(turn.subsec_nanos()) };
        let mut polled = [PollFd::new(self, flags)];
        match poll(&mut polled, Some(&turn)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(self.connection_error(errno, doing)),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.descriptor.as_fd()
    }
}

/// Formats the address of a peer that has one.
fn named(peer: SocketAddrAny) -> Option<String> {
    std::net::SocketAddr::try_from(peer).ok().map(|address| address.to_string())
}
