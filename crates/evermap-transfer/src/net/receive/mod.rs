//! Receiving files.

mod conversation;
mod data;
mod listening;
mod names;
mod places;
mod raw;
mod room;
mod taker;
mod target;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::address::Address;
use super::carrier::FROM_A_SOCKET;
use super::report::ReceiveReport;
use super::socket::Socket;
use super::watch::OnProgress;
use super::wire::Hello;
use super::{HANDSHAKE, IDLE};
use crate::engines::EngineKind;
use crate::error::{Error, Result};
use crate::policy::Durability;
use conversation::Greeting;
pub use listening::Listening;
use places::Standing;
use target::Target;

/// Called with why somebody who connected was sent away.
type OnRefused = dyn Fn(&Error) + Send + Sync;

/// Receives files.
///
/// A file has its name when all of it is there, and when the sender has said that its source did not change meanwhile. What
/// had the name before is replaced in one step. A transfer that fails leaves nothing.
///
/// ```
/// use evermap_transfer::net::{Receive, Send};
///
/// let place = tempfile::tempdir()?;
/// let (file, copy) = (place.path().join("file"), place.path().join("copy"));
/// std::fs::write(&file, "what is sent")?;
///
/// let receiver = Receive::new(&copy).listen(&"127.0.0.1:0".parse()?)?;
/// let address = receiver.address().clone();
/// let sent = std::thread::spawn(move || Send::new(&file).to(&address));
///
/// let report = receiver.once()?;
/// assert_eq!(report.path, Some(copy.clone()));
/// assert_eq!(std::fs::read(copy)?, b"what is sent");
/// # sent.join().unwrap()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is received before `listen`, `on` or `over`"]
#[derive(Clone)]
pub struct Receive {
    target: PathBuf,
    engine: Option<EngineKind>,
    verify: bool,
    raw: bool,
    discard: bool,
    durability: Durability,
    room_bytes_max: Option<u64>,
    dot_files: bool,
    handshake: Duration,
    idle: Duration,
    wait: Option<Duration>,
    cancelled: Arc<AtomicBool>,
    on_progress: Option<Arc<OnProgress>>,
    on_refused: Option<Arc<OnRefused>>,
}

impl Receive {
    /// Into a file of this name, or into a directory, where it gets the sender's name for it.
    pub fn new(target: impl Into<PathBuf>) -> Receive {
        Receive {
            target: target.into(),
            engine: None,
            verify: false,
            raw: false,
            discard: false,
            durability: Durability::None,
            room_bytes_max: None,
            dot_files: false,
            handshake: HANDSHAKE,
            idle: IDLE,
            wait: None,
            cancelled: Arc::default(),
            on_progress: None,
            on_refused: None,
        }
    }

    /// Moves the bytes in this way and in no other. Else `splice`, then `read-write`.
    pub fn engine(mut self, engine: EngineKind) -> Receive {
        self.engine = Some(engine);
        self
    }

    /// Reads back what was stored, also if the sender doesn't ask for it, and lets the sender compare.
    pub fn verify(mut self, verify: bool) -> Receive {
        self.verify = verify;
        self
    }

    /// Takes all bytes of one connection for the contents of the file: from programs that are not Evermap. A sender
    /// that is killed looks like one that has come to its end.
    pub fn raw(mut self, raw: bool) -> Receive {
        self.raw = raw;
        self
    }

    /// Throws away what comes, as cheaply as the kernel can, to measure senders and networks. The target is not looked at.
    pub fn discard(mut self, discard: bool) -> Receive {
        self.discard = discard;
        self
    }

    /// What holds when the sender is told that its file is published, and this end returns: with `data` the contents are on the disk
    /// before the file has its name, with `full` the name is there as well. What is no file is not flushed.
    pub fn durability(mut self, durability: Durability) -> Receive {
        self.durability = durability;
        self
    }

    /// Bytes that one transfer may bring. Default: half of the target's free space when the transfer begins, and on a file
    /// system in memory at most an eighth of the machine's memory. A sender that announces more is refused before its first
    /// byte ([`Error::TooLarge`]); raw bytes are cut off when more have come.
    pub fn room_bytes_max(mut self, bytes: u64) -> Receive {
        self.room_bytes_max = Some(bytes);
        self
    }

    /// Accepts senders' names that begin with a dot, such as `.bashrc`, into a directory. Default: no. Names with control
    /// characters, and those of this crate's unfinished files, are refused in any case.
    pub fn dot_files(mut self, accepted: bool) -> Receive {
        self.dot_files = accepted;
        self
    }

    /// How long a stranger may take to say hello, and a sender to make all of its connections: 10 seconds.
    pub fn handshake_timeout(mut self, time: Duration) -> Receive {
        self.handshake = time;
        self
    }

    /// How long nothing may move: 60 seconds. A sender that is at work gives a sign every second, so less than three would
    /// end transfers that are well.
    pub fn idle_timeout(mut self, time: Duration) -> Receive {
        self.idle = time;
        self
    }

    /// How long [`Listening::once`] waits for a sender; else for as long as it takes.
    pub fn wait_timeout(mut self, time: Duration) -> Receive {
        self.wait = Some(time);
        self
    }

    /// Ends the transfer, or the listening, a tenth of a second after it was set.
    pub fn cancelled_by(mut self, cancelled: Arc<AtomicBool>) -> Receive {
        self.cancelled = cancelled;
        self
    }

    /// Is called ten times a second with the bytes that have come, and all that there are (0 if that is not known).
    pub fn on_progress(mut self, progress: impl Fn(u64, u64) + Send + Sync + 'static) -> Receive {
        self.on_progress = Some(Arc::new(progress));
        self
    }

    /// Is called with the reason whenever somebody who connected to a listener was sent away before a transfer began.
    pub fn on_refused(mut self, refused: impl Fn(&Error) + Send + Sync + 'static) -> Receive {
        self.on_refused = Some(Arc::new(refused));
        self
    }

    /// Listens at `address`; nothing is accepted yet.
    ///
    /// # Errors
    ///
    /// [`Error::Peer`]: the address cannot be had. [`Error::Io`]: the target's directory is not there. [`Error::Usage`].
    pub fn listen(&self, address: &Address) -> Result<Listening> {
        Listening::new(self.clone(), self.target()?, address)
    }

    /// Listens at `address` and accepts one transfer: [`Receive::listen`] and [`Listening::once`].
    ///
    /// # Errors
    ///
    /// As both.
    pub fn on(&self, address: &Address) -> Result<ReceiveReport> {
        self.listen(address)?.once()
    }

    /// Receives over a connected stream socket, see [`Send::over`](super::Send::over).
    ///
    /// # Errors
    ///
    /// - [`Error::Peer`]: what comes is no transfer, or the connection broke.
    /// - [`Error::NoSpace`], [`Error::TooLarge`], [`Error::Io`]: the file cannot be made or written.
    /// - [`Error::SourceChanged`], [`Error::Differs`], [`Error::PeerRefused`]: the sender said that nothing is to be kept.
    /// - [`Error::Refused`]: the engine that was asked for cannot do it.
    /// - [`Error::Cancelled`], [`Error::Usage`].
    pub fn over(&self, socket: impl Into<OwnedFd>) -> Result<ReceiveReport> {
        self.over_all(vec![socket.into()])
    }

    /// The same over several, the first of which is the sender's first.
    ///
    /// # Errors
    ///
    /// As [`Receive::over`].
    pub fn over_all(&self, sockets: Vec<OwnedFd>) -> Result<ReceiveReport> {
        let target = self.target()?;
        let mut sockets = sockets.into_iter().map(|socket| Socket::new(socket, "the sender"));
        let Some(first) = sockets.next().transpose()? else {
            return Err(Error::Usage("no socket to receive over".into()));
        };
        if self.raw {
            return raw::receive(self, &target, &first);
        }
        let Greeting { hello, manifest } = conversation::greet(self, &first)?;
        let Some(manifest) = manifest else {
            return Err(first
                .error("it is a further connection of a transfer, and the first one is missing"));
        };
        let mut joins = |_end: Instant| -> Result<Option<(Socket, Hello)>> {
            let Some(socket) = sockets.next().transpose()? else { return Ok(None) };
            let hello = conversation::greet(self, &socket)?.hello;
            Ok(Some((socket, hello)))
        };
        let standing = Standing::default();
        conversation::receive(self, &target, &first, hello, &manifest, &mut joins, &standing)
    }

    fn target(&self) -> Result<Target> {
        if self.raw && self.verify {
            return Err(Error::Usage(
                "nobody compares raw bytes with what was sent: leave out `raw` or `verify`".into(),
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
            None => FROM_A_SOCKET.to_vec(),
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
