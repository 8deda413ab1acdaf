//! Receiving files.

mod conversation;
mod data;
mod listener;
mod names;
mod raw;
mod sink;
mod slots;
mod space;
mod target;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::address::Address;
use super::engine_chain::FROM_SOCKET;
use super::report::ReceiveReport;
use super::socket::Socket;
use super::watch::OnProgress;
use super::wire::Hello;
use super::{HANDSHAKE_TIMEOUT, IDLE_TIMEOUT};
use crate::engines::EngineKind;
use crate::error::{Error, Result};
use crate::policy::Durability;
use conversation::Greeting;
pub use listener::Listener;
use slots::WaitState;
use target::Target;

/// Callback for connections that were refused.
type OnRefused = dyn Fn(&Error) + Send + Sync;

/// Builder for receiving files.
///
/// A file is published when all of it has arrived and the sender has confirmed that its source did
/// not change. An existing file is replaced atomically. A failed transfer leaves nothing behind,
/// unless only the flush of the directory failed.
///
/// ```
/// use evermap_transfer::net::{Receive, Send};
///
/// let directory = tempfile::tempdir()?;
/// let (file, copy) = (directory.path().join("file"), directory.path().join("copy"));
/// std::fs::write(&file, "contents")?;
///
/// let receiver = Receive::new(&copy).listen(&"127.0.0.1:0".parse()?)?;
/// let address = receiver.address().clone();
/// let sent = std::thread::spawn(move || Send::new(&file).to(&address));
///
/// let report = receiver.once()?;
/// assert_eq!(report.path, Some(copy.clone()));
/// assert_eq!(std::fs::read(copy)?, b"contents");
/// # sent.join().unwrap()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "call `listen`, `on` or `over` to receive"]
#[derive(Clone)]
pub struct Receive {
    target: PathBuf,
    engine: Option<EngineKind>,
    verify: bool,
    raw: bool,
    discard: bool,
    durability: Durability,
    transfer_bytes_max: Option<u64>,
    dot_files: bool,
    handshake: Duration,
    idle: Duration,
    wait: Option<Duration>,
    cancelled: Arc<AtomicBool>,
    on_progress: Option<Arc<OnProgress>>,
    on_refused: Option<Arc<OnRefused>>,
}

impl Receive {
    /// Creates a receiver. `target` is a file, or a directory in which the sender's file name is
    /// used.
    pub fn new(target: impl Into<PathBuf>) -> Receive {
        Receive {
            target: target.into(),
            engine: None,
            verify: false,
            raw: false,
            discard: false,
            durability: Durability::None,
            transfer_bytes_max: None,
            dot_files: false,
            handshake: HANDSHAKE_TIMEOUT,
            idle: IDLE_TIMEOUT,
            wait: None,
            cancelled: Arc::default(),
            on_progress: None,
            on_refused: None,
        }
    }

    /// Uses only this engine. Default: `splice`, then `read-write`.
    pub fn engine(mut self, engine: EngineKind) -> Receive {
        self.engine = Some(engine);
        self
    }

    /// Reads back the stored data and lets the sender compare it, even if the sender did not ask
    /// for it.
    pub fn verify(mut self, verify: bool) -> Receive {
        self.verify = verify;
        self
    }

    /// Stores all bytes of one connection as the file, from programs other than Evermap. A killed
    /// sender cannot be distinguished from one that finished.
    pub fn raw(mut self, raw: bool) -> Receive {
        self.raw = raw;
        self
    }

    /// Discards the data as cheaply as the kernel can, to measure senders and networks. The target
    /// is ignored.
    pub fn discard(mut self, discard: bool) -> Receive {
        self.discard = discard;
        self
    }

    /// Sets the durability guaranteed when the sender is told that the file is published. With
    /// `Data` the contents are on the disk before the file has its name; with `Full` the name is
    /// too. Targets that are not files are not flushed.
    pub fn durability(mut self, durability: Durability) -> Receive {
        self.durability = durability;
        self
    }

    /// Sets the maximum number of bytes per transfer. Default: half of the target's free space at
    /// the start, and on a file system in memory at most an eighth of the machine's memory. A
    /// sender that announces more is refused before its first byte ([`Error::TooLarge`]). Raw
    /// transfers are ended when more has arrived.
    pub fn transfer_bytes_max(mut self, bytes: u64) -> Receive {
        self.transfer_bytes_max = Some(bytes);
        self
    }

    /// Accepts names with a leading dot, such as `.bashrc`, in a target directory. Default: no.
    /// Names with control characters and names of this crate's unfinished files are always refused.
    pub fn dot_files(mut self, accepted: bool) -> Receive {
        self.dot_files = accepted;
        self
    }

    /// Sets the timeout for a peer's hello, and for all connections of a sender. Default: 10
    /// seconds.
    pub fn handshake_timeout(mut self, time: Duration) -> Receive {
        self.handshake = time;
        self
    }

    /// Sets the timeout without progress. Default: 60 seconds. A busy sender sends a keep-alive
    /// every second, so values below 3 seconds end healthy transfers.
    pub fn idle_timeout(mut self, time: Duration) -> Receive {
        self.idle = time;
        self
    }

    /// Sets how long [`Listener::once`] waits for a sender. Default: forever.
    pub fn wait_timeout(mut self, time: Duration) -> Receive {
        self.wait = Some(time);
        self
    }

    /// Cancels the transfer, or the listener, within a tenth of a second after the flag is set.
    pub fn cancelled_by(mut self, cancelled: Arc<AtomicBool>) -> Receive {
        self.cancelled = cancelled;
        self
    }

    /// Sets a callback that is called ten times a second with the bytes received and the total (0
    /// if unknown).
    pub fn on_progress(mut self, progress: impl Fn(u64, u64) + Send + Sync + 'static) -> Receive {
        self.on_progress = Some(Arc::new(progress));
        self
    }

    /// Sets a callback for connections that a listener refused before a transfer began, with the
    /// reason.
    pub fn on_refused(mut self, refused: impl Fn(&Error) + Send + Sync + 'static) -> Receive {
        self.on_refused = Some(Arc::new(refused));
        self
    }

    /// Starts listening at `address`. Does not accept connections yet.
    ///
    /// # Errors
    ///
    /// [`Error::Peer`] if the address is unavailable, [`Error::Io`] if the target's directory does
    /// not exist, [`Error::Usage`].
    pub fn listen(&self, address: &Address) -> Result<Listener> {
        Listener::new(self.clone(), self.target()?, address)
    }

    /// Listens at `address` and accepts one transfer: [`Receive::listen`] and [`Listener::once`].
    ///
    /// # Errors
    ///
    /// Same as both.
    pub fn on(&self, address: &Address) -> Result<ReceiveReport> {
        self.listen(address)?.once()
    }

    /// Receives over a connected stream socket, see [`Send::over`](super::Send::over).
    ///
    /// # Errors
    ///
    /// - [`Error::Peer`]: the peer violated the protocol, or the connection failed.
    /// - [`Error::NoSpace`], [`Error::TooLarge`], [`Error::Io`]: the file cannot be created or
    ///   written.
    /// - [`Error::SourceChanged`], [`Error::Differs`], [`Error::PeerRefused`]: the sender asked to
    ///   discard the data.
    /// - [`Error::Refused`]: the requested engine cannot receive this file.
    /// - [`Error::Cancelled`], [`Error::Usage`].
    pub fn over(&self, socket: impl Into<OwnedFd>) -> Result<ReceiveReport> {
        self.over_all(vec![socket.into()])
    }

    /// Receives over several sockets. The first one must be the sender's first.
    ///
    /// # Errors
    ///
    /// Same as [`Receive::over`].
    pub fn over_all(&self, sockets: Vec<OwnedFd>) -> Result<ReceiveReport> {
        let target = self.target()?;
        let mut sockets = sockets.into_iter().map(|socket| Socket::new(socket, "the sender"));
        let Some(first) = sockets.next().transpose()? else {
            return Err(Error::Usage("no socket to receive over".into()));
        };
        if self.raw {
            return raw::receive(self, &target, &first);
        }
        let Greeting { hello, manifest } = conversation::read_greeting(self, &first)?;
        let Some(manifest) = manifest else {
            return Err(first
                .error("this is a further connection of a transfer whose first one is missing"));
        };
        let mut joins = |_end: Instant| -> Result<Option<(Socket, Hello)>> {
            let Some(socket) = sockets.next().transpose()? else { return Ok(None) };
            let hello = conversation::read_greeting(self, &socket)?.hello;
            Ok(Some((socket, hello)))
        };
        let wait_state = WaitState::default();
        conversation::receive(self, &target, &first, hello, &manifest, &mut joins, &wait_state)
    }

    fn target(&self) -> Result<Target> {
        if self.raw && self.verify {
            return Err(Error::Usage(
                "raw bytes cannot be verified: omit `raw` or `verify`".into(),
            ));
        }
        match self.discard {
            true => Ok(Target::Nothing),
            false => Target::of(&self.target),
        }
    }

    fn engines(&self) -> Vec<EngineKind> {
        match self.engine {
            Some(engine) => vec![engine],
            None => FROM_SOCKET.to_vec(),
        }
    }
}

impl std::fmt::Debug for Receive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receive")
            .field("target", &self.target)
            .field("engine", &self.engine)
            .field("verify", &self.verify)
            .field("raw", &self.raw)
            .field("discard", &self.discard)
            .finish_non_exhaustive()
    }
}
