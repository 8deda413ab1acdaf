//! Sending a file.

mod conversation;
mod data;
mod raw;
mod source;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::address::Address;
use super::carrier::TO_A_SOCKET;
use super::connect::connect;
use super::report::SendReport;
use super::socket::Socket;
use super::watch::OnProgress;
use super::wire::CONNECTIONS_MAX;
use super::{HANDSHAKE, IDLE};
use crate::engines::EngineKind;
use crate::error::{Error, Result};
use source::Source;

/// Sends one file to a receiver.
///
/// ```
/// use evermap_transfer::net::{Address, Receive, Send};
///
/// let place = tempfile::tempdir()?;
/// let (file, inbox) = (place.path().join("file"), place.path().join("inbox"));
/// std::fs::write(&file, "what is sent")?;
/// std::fs::create_dir(&inbox)?;
///
/// let receiver = Receive::new(&inbox).listen(&"127.0.0.1:0".parse()?)?;
/// let address = receiver.address().clone();
/// let received = std::thread::spawn(move || receiver.once());
///
/// let report = Send::new(&file).connections(2).verify(true).to(&address)?;
/// assert!(report.published && report.verified);
/// assert_eq!(std::fs::read(inbox.join("file"))?, b"what is sent");
/// # received.join().unwrap()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is sent before `to` or `over`"]
#[derive(Clone)]
pub struct Send {
    path: PathBuf,
    engine: Option<EngineKind>,
    connections: u16,
    verify: bool,
    raw: bool,
    handshake: Duration,
    idle: Duration,
    cancelled: Arc<AtomicBool>,
    on_progress: Option<Arc<OnProgress>>,
}

impl Send {
    /// Of the file at `path`; a symbolic link is followed.
    pub fn new(path: impl Into<PathBuf>) -> Send {
        Send {
            path: path.into(),
            engine: None,
            connections: 1,
            verify: false,
            raw: false,
            handshake: HANDSHAKE,
            idle: IDLE,
            cancelled: Arc::default(),
            on_progress: None,
        }
    }

    /// Moves the bytes in this way and in no other. Else `splice`, then `sendfile`, then `read-write`.
    pub fn engine(mut self, engine: EngineKind) -> Send {
        self.engine = Some(engine);
        self
    }

    /// Over so many connections at a time, from 1 (the default) to 64. The receiver's copying is what takes longest, and with two it is
    /// done by two threads.
    pub fn connections(mut self, connections: u16) -> Send {
        self.connections = connections;
        self
    }

    /// Lets the receiver read back what it stored, and compares that with the source before the file gets its name.
    pub fn verify(mut self, verify: bool) -> Send {
        self.verify = verify;
        self
    }

    /// Sends the file's bytes and nothing else, over one connection: to programs that are not Evermap. The only sign of the
    /// end is the end, so nobody says what became of them. Any source will do, streams as well.
    pub fn raw(mut self, raw: bool) -> Send {
        self.raw = raw;
        self
    }

    /// How long connecting and each answer before the first byte may take: 10 seconds.
    pub fn handshake_timeout(mut self, time: Duration) -> Send {
        self.handshake = time;
        self
    }

    /// How long nothing may move: 60 seconds. A receiver that is at work gives a sign every second, so less than three would end
    /// transfers that are well.
    pub fn idle_timeout(mut self, time: Duration) -> Send {
        self.idle = time;
        self
    }

    /// Ends the transfer, a tenth of a second after it was set.
    pub fn cancelled_by(mut self, cancelled: Arc<AtomicBool>) -> Send {
        self.cancelled = cancelled;
        self
    }

    /// Is called ten times a second with the bytes that were sent, and all that there are (0 if that is not known).
    pub fn on_progress(
        mut self,
        progress: impl Fn(u64, u64) + std::marker::Send + Sync + 'static,
    ) -> Send {
        self.on_progress = Some(Arc::new(progress));
        self
    }

    /// Connects and sends. Success means that the receiver has published the file, unless it throws away or the bytes are
    /// raw: then that they were handed to the network.
    ///
    /// # Errors
    ///
    /// - [`Error::Io`]: the file cannot be read.
    /// - [`Error::SourceChanged`], [`Error::Differs`]: the receiver was told to discard, and has.
    /// - [`Error::Peer`]: there is no connection, or it broke. If that was after everything else, it says that the file
    ///   may be there.
    /// - [`Error::PeerRefused`]: the receiver's own reason.
    /// - [`Error::Refused`]: the engine that was asked for cannot do it.
    /// - [`Error::Cancelled`], [`Error::Usage`].
    pub fn to(&self, address: &Address) -> Result<SendReport> {
        self.check(self.connections)?;
        if matches!(address, Address::Tcp { port: 0, .. }) {
            return Err(Error::Usage(format!(
                "{address}: nobody listens at port 0; name the receiver's"
            )));
        }
        let source = Source::open(&self.path)?;
        let more = || connect(address, self.handshake, &self.cancelled);
        match self.raw {
            true => raw::send(self, &source, &more()?),
            false => conversation::send(self, &source, self.connections, more),
        }
    }

    /// The same over a connected stream socket.
    ///
    /// ```
    /// use std::os::unix::net::UnixStream;
    /// use evermap_transfer::net::{Receive, Send};
    ///
    /// let place = tempfile::tempdir()?;
    /// let (file, copy) = (place.path().join("file"), place.path().join("copy"));
    /// std::fs::write(&file, "what is sent")?;
    /// let (here, there) = UnixStream::pair()?;
    /// let receiver = Receive::new(&copy);
    /// let received = std::thread::spawn(move || receiver.over(there));
    /// Send::new(&file).over(here)?;
    /// assert_eq!(received.join().unwrap()?.path, Some(copy));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Send::to`].
    pub fn over(&self, socket: impl Into<OwnedFd>) -> Result<SendReport> {
        self.over_all(vec![socket.into()])
    }

    /// The same over several, which all lead to one receiver: that many connections are used.
    ///
    /// # Errors
    ///
    /// As [`Send::to`].
    pub fn over_all(&self, sockets: Vec<OwnedFd>) -> Result<SendReport> {
        let connections = u16::try_from(sockets.len()).unwrap_or(u16::MAX);
        self.check(connections)?;
        let source = Source::open(&self.path)?;
        let mut sockets = sockets.into_iter();
        let mut more = || match sockets.next() {
            Some(socket) => Socket::new(socket, "the receiver"),
            None => Err(Error::Usage("no socket to send over".into())),
        };
        match self.raw {
            true => raw::send(self, &source, &more()?),
            false => conversation::send(self, &source, connections, more),
        }
    }

    fn check(&self, connections: u16) -> Result<()> {
        if connections == 0 || connections > CONNECTIONS_MAX {
            return Err(Error::Usage(format!(
                "{connections} connections: a transfer has 1 to {CONNECTIONS_MAX}"
            )));
        }
        if self.raw && (connections > 1 || self.verify) {
            return Err(Error::Usage(
                "raw bytes go over one connection, and nobody reads them back: leave out `raw`, or `connections` and `verify`"
                    .into(),
            ));
        }
        Ok(())
    }

    fn engines(&self) -> Vec<EngineKind> {
        match self.engine {
            Some(engine) => vec![engine],
            None => TO_A_SOCKET.to_vec(),
        }
    }
}

impl std::fmt::Debug for Send {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Send")
            .field("path", &self.path)
            .field("engine", &self.engine)
            .field("connections", &self.connections)
            .field("verify", &self.verify)
            .field("raw", &self.raw)
            .finish_non_exhaustive()
    }
}
