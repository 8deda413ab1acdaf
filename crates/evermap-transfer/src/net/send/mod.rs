//! Sending a file.

mod conversation;
mod data;
mod raw;
mod refusal;
mod source;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::address::Address;
use super::connect::connect;
use super::engine_chain::TO_SOCKET;
use super::report::SendReport;
use super::socket::Socket;
use super::watch::OnProgress;
use super::wire::CONNECTIONS_MAX;
use super::{HANDSHAKE_TIMEOUT, IDLE_TIMEOUT};
use crate::engines::EngineKind;
use crate::error::{Error, Result};
use source::Source;

/// Builder for sending one file to a receiver.
///
/// ```
/// use evermap_transfer::net::{Address, Receive, Send};
///
/// let directory = tempfile::tempdir()?;
/// let (file, inbox) = (directory.path().join("file"), directory.path().join("inbox"));
/// std::fs::write(&file, "contents")?;
/// std::fs::create_dir(&inbox)?;
///
/// let receiver = Receive::new(&inbox).listen(&"127.0.0.1:0".parse()?)?;
/// let address = receiver.address().clone();
/// let received = std::thread::spawn(move || receiver.once());
///
/// let report = Send::new(&file).connections(2).verify(true).to(&address)?;
/// assert!(report.published && report.verified);
/// assert_eq!(std::fs::read(inbox.join("file"))?, b"contents");
/// # received.join().unwrap()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "call `to` or `over` to send"]
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
    /// Creates a sender of the file at `path`. Symbolic links are followed.
    pub fn new(path: impl Into<PathBuf>) -> Send {
        Send {
            path: path.into(),
            engine: None,
            connections: 1,
            verify: false,
            raw: false,
            handshake: HANDSHAKE_TIMEOUT,
            idle: IDLE_TIMEOUT,
            cancelled: Arc::default(),
            on_progress: None,
        }
    }

    /// Uses only this engine. Default: `splice`, then `sendfile`, then `read-write`.
    pub fn engine(mut self, engine: EngineKind) -> Send {
        self.engine = Some(engine);
        self
    }

    /// Sets the number of connections, 1 (default) to 64. The receiver's copying takes longest; two
    /// connections use two threads for it.
    pub fn connections(mut self, connections: u16) -> Send {
        self.connections = connections;
        self
    }

    /// Makes the receiver read back its copy, and compares digests before the file is published.
    pub fn verify(mut self, verify: bool) -> Send {
        self.verify = verify;
        self
    }

    /// Sends only the file's bytes, over one connection, to programs other than Evermap. The
    /// receiver sees the end of the stream as the end of the file, and there is no confirmation.
    /// The source may be a stream.
    pub fn raw(mut self, raw: bool) -> Send {
        self.raw = raw;
        self
    }

    /// Sets the timeout for connecting and for each answer before the first byte. Default: 10
    /// seconds.
    pub fn handshake_timeout(mut self, time: Duration) -> Send {
        self.handshake = time;
        self
    }

    /// Sets the timeout without progress. Default: 60 seconds. A busy receiver sends a keep-alive
    /// every second, so values below 3 seconds end healthy transfers.
    pub fn idle_timeout(mut self, time: Duration) -> Send {
        self.idle = time;
        self
    }

    /// Cancels the transfer within a tenth of a second after the flag is set. Connecting over TCP
    /// and reading from a silent source are not interrupted.
    pub fn cancelled_by(mut self, cancelled: Arc<AtomicBool>) -> Send {
        self.cancelled = cancelled;
        self
    }

    /// Sets a callback that is called ten times a second with the bytes sent and the total (0 if
    /// unknown).
    pub fn on_progress(
        mut self,
        progress: impl Fn(u64, u64) + std::marker::Send + Sync + 'static,
    ) -> Send {
        self.on_progress = Some(Arc::new(progress));
        self
    }

    /// Connects and sends.
    ///
    /// Success means that the receiver has published the file, or received all of it to discard it.
    /// For raw bytes it means only that they were passed to the network.
    ///
    /// # Errors
    ///
    /// - [`Error::Io`]: the file cannot be read.
    /// - [`Error::SourceChanged`], [`Error::Differs`]: the receiver was told to discard the file.
    /// - [`Error::Peer`]: no connection, or it failed. If it failed at the very end, the message
    ///   says that the file may exist.
    /// - [`Error::PeerRefused`]: the receiver's own reason.
    /// - [`Error::Refused`]: the requested engine cannot send this file.
    /// - [`Error::Cancelled`], [`Error::Usage`].
    pub fn to(&self, address: &Address) -> Result<SendReport> {
        self.check(self.connections)?;
        if matches!(address, Address::Tcp { port: 0, .. }) {
            return Err(Error::Usage(format!(
                "{address}: port 0 is not a destination; use the receiver's port"
            )));
        }
        let source = Source::open(&self.path)?;
        let more = || connect(address, self.handshake, &self.cancelled);
        match self.raw {
            true => raw::send(self, &source, &more()?),
            false => conversation::send(self, &source, self.connections, more),
        }
    }

    /// Sends over a connected stream socket. Like [`Send::to`], but ignores [`Send::connections`].
    ///
    /// ```
    /// use std::os::unix::net::UnixStream;
    /// use evermap_transfer::net::{Receive, Send};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let (file, copy) = (directory.path().join("file"), directory.path().join("copy"));
    /// std::fs::write(&file, "contents")?;
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
    /// Same as [`Send::to`].
    pub fn over(&self, socket: impl Into<OwnedFd>) -> Result<SendReport> {
        self.over_all(vec![socket.into()])
    }

    /// Sends over several connected sockets to one receiver. Ignores [`Send::connections`].
    ///
    /// # Errors
    ///
    /// Same as [`Send::to`].
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
                "invalid number of connections {connections}: use 1 to {CONNECTIONS_MAX}"
            )));
        }
        if self.raw && (connections > 1 || self.verify) {
            return Err(Error::Usage(
                "raw bytes use one connection and cannot be verified: omit `raw`, or `connections` and `verify`"
                    .into(),
            ));
        }
        Ok(())
    }

    fn engines(&self) -> Vec<EngineKind> {
        match self.engine {
            Some(engine) => vec![engine],
            None => TO_SOCKET.to_vec(),
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
