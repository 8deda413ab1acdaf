//! A connected stream socket: what is said on it, with a limit to every wait.
//!
//! The bytes of files are moved by engines, on the same descriptor, which blocks. What is said here is small, never blocks in the
//! kernel, and looks up between waits whether somebody has cancelled.

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
use crate::sys::queue::wake_after;

/// A receiver that is woken for each segment of 64 KiB has its sender pay for waking it each time: 658 ms of processor a GiB where
/// TCP paces segments, and 180 to one that is woken after this much. Later wakings gain nothing more.
pub(super) const WAKING_BYTES: u64 = 128 << 10;

/// How long a wait lasts before somebody may have cancelled.
const TURN: Duration = Duration::from_millis(100);

/// How long a wait may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience<'a> {
    cancelled: &'a AtomicBool,
    limit: Limit,
}

#[derive(Debug, Clone, Copy)]
enum Limit {
    /// Until then, whatever comes meanwhile.
    Deadline(Instant, Duration),
    /// As long as something comes so often.
    Idle(Duration),
}

impl<'a> Patience<'a> {
    /// All has to be there after `time`: for what is short, and what strangers send.
    pub(super) fn within(time: Duration, cancelled: &'a AtomicBool) -> Patience<'a> {
        Patience { cancelled, limit: Limit::Deadline(Instant::now() + time, time) }
    }

    /// A byte has to move every `time`.
    pub(super) fn idle(time: Duration, cancelled: &'a AtomicBool) -> Patience<'a> {
        Patience { cancelled, limit: Limit::Idle(time) }
    }

    /// What is left of it, if something moved last at `moved`.
    fn left(&self, moved: Instant) -> Option<Duration> {
        let end = match self.limit {
            Limit::Deadline(end, _) => end,
            Limit::Idle(time) => moved + time,
        };
        end.checked_duration_since(Instant::now())
    }

    /// The whole of it.
    fn time(&self) -> Duration {
        match self.limit {
            Limit::Deadline(_, time) | Limit::Idle(time) => time,
        }
    }
}

/// Who is at the other end, as far as limits for each peer go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Peer {
    /// An IPv4 address, also one written as IPv6.
    V4(Ipv4Addr),
    /// The first 64 bits of an IPv6 address: the rest is whatever the host picks.
    V6([u16; 4]),
    /// A user of this machine, over a UNIX socket.
    User(u32),
    /// The kernel does not tell.
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

/// A socket, shared between who talks on it and who may have to end it.
#[derive(Debug, Clone)]
pub(super) struct Socket {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    descriptor: OwnedFd,
    /// Whom it is connected with, in words.
    address: String,
    is_tcp: bool,
    peer: Peer,
}

impl Socket {
    /// Takes a connected stream socket and makes it block. `otherwise` names a peer that has no address, as those of UNIX
    /// sockets.
    pub(super) fn new(descriptor: OwnedFd, otherwise: &str) -> Result<Socket> {
        let look = |errno| Error::io("use as a socket", otherwise)(errno);
        if sockopt::socket_type(&descriptor).map_err(look)? != SocketType::STREAM {
            return Err(Error::Usage(format!(
                "{otherwise} is no stream socket, which a transfer needs"
            )));
        }
        let is_tcp = sockopt::socket_domain(&descriptor).map_err(look)? != AddressFamily::UNIX;
        let peer = match rustix::net::getpeername(&descriptor) {
            Ok(peer) => peer,
            Err(Errno::NOTCONN) => {
                let what = "it went away before anything was said, or was never connected".into();
                return Err(Error::Peer { address: otherwise.into(), what });
            }
            Err(errno) => return Err(look(errno)),
        };
        let id = Peer::of(&descriptor, peer.clone());
        let address = match peer.and_then(named) {
            Some(address) => address,
            None => otherwise.to_string(),
        };
        let flags = rustix::fs::fcntl_getfl(&descriptor).map_err(look)?;
        if flags.contains(OFlags::NONBLOCK) {
            rustix::fs::fcntl_setfl(&descriptor, flags - OFlags::NONBLOCK).map_err(look)?;
        }
        if is_tcp {
            // What is said is a question or an answer: nothing is gained by waiting for more of it. Proxies may refuse.
            let _ = sockopt::set_tcp_nodelay(&descriptor, true);
        }
        Ok(Socket { shared: Arc::new(Shared { descriptor, address, is_tcp, peer: id }) })
    }

    pub(super) fn address(&self) -> &str {
        &self.shared.address
    }

    /// Who is at the other end.
    pub(super) fn peer(&self) -> Peer {
        self.shared.peer
    }

    /// For engines, which put a path into messages.
    pub(super) fn path(&self) -> PathBuf {
        self.shared.address.clone().into()
    }

    pub(super) fn is_tcp(&self) -> bool {
        self.shared.is_tcp
    }

    /// An error about this connection.
    pub(super) fn error(&self, what: impl Into<String>) -> Error {
        Error::Peer { address: self.address().into(), what: what.into() }
    }

    /// An error about what came over it.
    pub(super) fn malformed(&self, what: Malformed) -> Error {
        self.error(what.to_string())
    }

    /// An error of a call on it.
    pub(super) fn broken(&self, errno: Errno, doing: &str) -> Error {
        match errno {
            Errno::PIPE | Errno::CONNRESET | Errno::CONNABORTED | Errno::NOTCONN => {
                self.error(format!(
                    "it went away {doing}; nothing was kept: look at what it says, and send again"
                ))
            }
            errno => self.error(format!(
                "the connection failed {doing} ({errno}); nothing was kept: send again"
            )),
        }
    }

    /// Reads all of `buffer`.
    pub(super) fn read_exact(
        &self,
        buffer: &mut [u8],
        patience: Patience<'_>,
        doing: &str,
    ) -> Result<()> {
        let (mut read, mut moved) = (0, Instant::now());
        while read < buffer.len() {
            match rustix::net::recv(self, &mut buffer[read..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    return Err(self.error(format!(
                        "it closed the connection {doing}; nothing was kept: look at what it says, and send again"
                    )));
                }
                Ok((bytes, _)) => (read, moved) = (read + bytes, Instant::now()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, patience, moved, doing)?,
                Err(errno) => return Err(self.broken(errno, doing)),
            }
        }
        Ok(())
    }

    /// Writes all of `bytes`; with `more`, they may wait for what follows at once.
    pub(super) fn write_all(
        &self,
        bytes: &[u8],
        more: bool,
        patience: Patience<'_>,
        doing: &str,
    ) -> Result<()> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let flags = if more && self.is_tcp() { flags | SendFlags::MORE } else { flags };
        let (mut sent, mut moved) = (0, Instant::now());
        while sent < bytes.len() {
            match rustix::net::send(self, &bytes[sent..], flags) {
                Ok(bytes) => (sent, moved) = (sent + bytes, Instant::now()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, patience, moved, doing)?,
                Err(errno) => return Err(self.broken(errno, doing)),
            }
        }
        Ok(())
    }

    pub(super) fn say(&self, frame: &Frame, patience: Patience<'_>) -> Result<()> {
        self.write_all(&frame.encode(), false, patience, "before all was said")
    }

    /// The next frame; `awaiting` says for which one, as in "while its answer was awaited".
    pub(super) fn listen(&self, patience: Patience<'_>, awaiting: &str) -> Result<Frame> {
        let mut head = [0; FRAME_BYTES];
        self.read_exact(&mut head, patience, awaiting)?;
        let text_bytes = Frame::text_bytes(&head).map_err(|what| self.malformed(what))?;
        let mut text = [0; TEXT_BYTES_MAX];
        self.read_exact(&mut text[..text_bytes], patience, awaiting)?;
        Frame::decode(&head, &text[..text_bytes]).map_err(|what| self.malformed(what))
    }

    /// What the other end said before it went, if it did: the reason of its own that it gave up for.
    pub(super) fn last_words(&self, time: Duration) -> Option<(Reason, u64, String)> {
        let never = AtomicBool::new(false);
        let patience = Patience::within(time, &never);
        loop {
            match self.listen(patience, "") {
                Ok(Frame::Failed { reason, at, text }) => return Some((reason, at, text)),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }

    /// Whether the other end has closed, or says that it gave up. What else it may have said stays to be read.
    pub(super) fn has_given_up(&self) -> bool {
        let mut kind = [0; 4];
        match rustix::net::recv(self, &mut kind, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((0, _)) => true,
            Ok((read, _)) => read == kind.len() && Frame::is_failed(&kind),
            Err(errno) => !matches!(errno, Errno::AGAIN | Errno::INTR),
        }
    }

    /// Calls `body`, in which who waits for bytes sleeps until [`WAKING_BYTES`] have come, or the stream has ended. Unless `body`
    /// reads up to the end, at least as many must be due after what it reads, or nobody wakes it. Only TCP does so.
    pub(super) fn seldom_woken<T>(&self, body: impl FnOnce() -> T) -> T {
        let is_set = self.is_tcp() && wake_after(self.as_fd(), WAKING_BYTES as i32);
        let result = body();
        if is_set {
            wake_after(self.as_fd(), 1);
        }
        result
    }

    /// Bytes in its queues, which change while something moves.
    pub(super) fn queued_bytes(&self) -> (u64, u64) {
        (
            crate::sys::queue::unread_bytes(self.as_fd()),
            crate::sys::queue::unsent_bytes(self.as_fd()),
        )
    }

    /// Says that nothing more will be sent, and wakes whoever is sending.
    pub(super) fn end_sending(&self) {
        // One that is closed by the other end already cannot be, which is as good.
        let _ = rustix::net::shutdown(self, Shutdown::Write);
    }

    /// Wakes whoever is receiving.
    pub(super) fn end_receiving(&self) {
        let _ = rustix::net::shutdown(self, Shutdown::Read);
    }

    /// Makes closing it a reset, which no receiver takes for the end of the bytes. UNIX sockets have no such thing.
    pub(super) fn reset_when_closed(&self) {
        if self.is_tcp() {
            let _ = sockopt::set_socket_linger(self, Some(Duration::ZERO));
        }
    }

    fn wait(
        &self,
        flags: PollFlags,
        patience: Patience<'_>,
        moved: Instant,
        doing: &str,
    ) -> Result<()> {
        if patience.cancelled.load(Ordering::Relaxed) {
            return Err(Error::Cancelled { left: "nothing is left behind".into() });
        }
        let Some(left) = patience.left(moved) else {
            let time = patience.time();
            return Err(self.error(format!(
                "nothing moved for {time:?} {doing}; nothing was kept: see whether the other end still runs and the network is up"
            )));
        };
        let turn = left.min(TURN);
        let turn = Timespec { tv_sec: 0, tv_nsec: i64::from(turn.subsec_nanos()) };
        let mut polled = [PollFd::new(self, flags)];
        match poll(&mut polled, Some(&turn)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(self.broken(errno, doing)),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.descriptor.as_fd()
    }
}

/// The address of a peer that has one.
fn named(peer: SocketAddrAny) -> Option<String> {
    std::net::SocketAddr::try_from(peer).ok().map(|address| address.to_string())
}
