//! Accepts connections at an address and assigns them to transfers by their hello.
//!
//! Each unidentified connection and each transfer has its own thread, so a peer that is silent or
//! slow delays only itself. Their numbers are limited.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::conversation::{self, Greeting, send_failure};
use super::slots::{Slots, TakenSlot};
use super::target::Target;
use super::{Receive, raw};
use crate::error::{Error, Result};
use crate::net::address::Address;
use crate::net::connect::{Accepted, ListenSocket};
use crate::net::report::ReceiveReport;
use crate::net::socket::{Peer, Socket};
use crate::net::watch::start;
use crate::net::wire::{Hello, Manifest, Reason, TransferId};

/// Maximum number of connections without a hello. Beyond it, the oldest connection of the peer with
/// the most is dropped.
const UNIDENTIFIED_MAX: usize = 64;

/// Interval at which a wait checks for cancellation.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A listening receiver. It stops listening when dropped.
#[derive(Debug)]
pub struct Listener {
    receive: Receive,
    target: Target,
    listen_socket: ListenSocket,
}

impl Listener {
    pub(super) fn new(receive: Receive, target: Target, address: &Address) -> Result<Listener> {
        Ok(Listener { receive, target, listen_socket: ListenSocket::new(address)? })
    }

    /// Returns the address, with the actual port.
    pub fn address(&self) -> &Address {
        self.listen_socket.address()
    }

    /// Accepts one transfer and returns its outcome. Connections that do not announce a file
    /// correctly are refused and reported to [`on_refused`](Receive::on_refused).
    ///
    /// # Errors
    ///
    /// Same as [`Receive::over`]; [`Error::Peer`] if no sender connected within the timeout.
    pub fn once(self) -> Result<ReceiveReport> {
        self.one(&self.receive, &self.target, OtherSenders::Refused)
    }

    /// Like [`Listener::once`], but keeps listening. Connections that arrive after all connections
    /// of the transfer, or between two calls, wait for the next call. Uses the options and target
    /// of `receive` instead of the original ones.
    ///
    /// ```
    /// use evermap_transfer::net::{Receive, Send};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let path = |name: &str| directory.path().join(name);
    /// let (file, one, two) = (path("file"), path("one"), path("two"));
    /// std::fs::write(&file, "contents")?;
    ///
    /// let receiver = Receive::new(&one).listen(&"127.0.0.1:0".parse()?)?;
    /// let address = receiver.address().clone();
    /// let sent = std::thread::spawn(move || {
    ///     Send::new(&file).to(&address)?;
    ///     Send::new(&file).to(&address)
    /// });
    /// for target in [one, two] {
    ///     receiver.next(&Receive::new(&target))?;
    ///     assert_eq!(std::fs::read(target)?, b"contents");
    /// }
    /// # sent.join().unwrap()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Same as [`Listener::once`], and [`Error::Io`] if the target's directory does not exist.
    pub fn next(&self, receive: &Receive) -> Result<ReceiveReport> {
        self.one(receive, &receive.target()?, OtherSenders::Queued)
    }

    fn one(
        &self,
        receive: &Receive,
        target: &Target,
        others: OtherSenders,
    ) -> Result<ReceiveReport> {
        let outcome = Mutex::new(None);
        let ended = |result| *lock(&outcome) = Some(result);
        Hub::new(&self.listen_socket, receive, target, others, &ended)?.run(receive.wait)?;
        match outcome.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(result) => result,
            None => Err(Error::Cancelled { left: "no partial file remains".into() }),
        }
    }

    /// Accepts transfers, up to 16 at a time, until cancelled. Calls `ended` with the outcome of
    /// each.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use evermap_transfer::net::{Receive, Send};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let (file, inbox) = (directory.path().join("file"), directory.path().join("inbox"));
    /// std::fs::write(&file, "contents")?;
    /// std::fs::create_dir(&inbox)?;
    ///
    /// let stop = Arc::new(AtomicBool::new(false));
    /// let receiver = Receive::new(&inbox)
    ///     .cancelled_by(stop.clone())
    ///     .listen(&"127.0.0.1:0".parse()?)?;
    /// let address = receiver.address().clone();
    /// let server = std::thread::spawn(move || receiver.serve(|outcome| println!("{outcome:?}")));
    /// Send::new(&file).to(&address)?;
    /// Send::new(&file).to(&address)?;
    /// stop.store(true, Ordering::Relaxed);
    /// # server.join().unwrap()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the listener fails.
    pub fn serve(self, ended: impl Fn(Result<ReceiveReport>) + Sync) -> Result<()> {
        Hub::new(&self.listen_socket, &self.receive, &self.target, OtherSenders::Served, &ended)?
            .run(None)
    }
}

/// Callback for the outcome of a transfer.
type Ended<'a> = dyn Fn(Result<ReceiveReport>) + Sync + 'a;

/// Treatment of other senders during a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OtherSenders {
    /// Served at the same time.
    Served,
    /// Refused as busy.
    Refused,
    /// Not accepted once all connections of the transfer exist: the kernel queues them.
    Queued,
}

/// State shared by the threads of a listener.
struct Hub<'a> {
    listen_socket: &'a ListenSocket,
    receive: &'a Receive,
    target: &'a Target,
    others: OtherSenders,
    ended: &'a Ended<'a>,
    /// Connections without a hello, by order of arrival.
    unidentified: Mutex<BTreeMap<u64, Socket>>,
    accepted_total: AtomicU64,
    slots: Mutex<Slots>,
    /// Set when the only transfer has begun.
    is_taken: AtomicBool,
    /// Set when all its connections exist.
    is_joined: AtomicBool,
    /// Set when it has ended.
    is_over: AtomicBool,
    /// Ends the wait for connections.
    wake: OwnedFd,
}

impl<'a> Hub<'a> {
    fn new(
        listen_socket: &'a ListenSocket,
        receive: &'a Receive,
        target: &'a Target,
        others: OtherSenders,
        ended: &'a Ended<'a>,
    ) -> Result<Hub<'a>> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(Error::io("create an eventfd for", "the listener"))?;
        Ok(Hub {
            listen_socket,
            receive,
            target,
            others,
            ended,
            unidentified: Mutex::default(),
            accepted_total: AtomicU64::new(0),
            slots: Mutex::new(Slots::new(receive.idle)),
            is_taken: AtomicBool::new(false),
            is_joined: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            wake,
        })
    }

    fn run(&self, wait: Option<Duration>) -> Result<()> {
        let begin = Instant::now();
        let mut is_short = false;
        std::thread::scope(|scope| {
            let outcome = loop {
                if self.is_over.load(Ordering::Acquire) || self.is_cancelled() {
                    break Ok(());
                }
                match wait {
                    Some(time)
                        if begin.elapsed() >= time && !self.is_taken.load(Ordering::Acquire) =>
                    {
                        break Err(Error::Peer {
                            address: self.listen_socket.address().to_string(),
                            what: format!(
                                "no sender connected within {time:?}; send with `evermap send FILE` and this address"
                            ),
                        });
                    }
                    _ => {}
                }
                self.wait(self.accepts());
                // Checked again: a connection made during the wait may follow the transfer's last
                // one.
                if !self.accepts() {
                    continue;
                }
                match self.listen_socket.accept() {
                    Ok(Accepted::Connection(socket)) => {
                        is_short = false;
                        self.admit(scope, socket);
                    }
                    Ok(Accepted::Nothing) => {}
                    Ok(Accepted::Short(error)) => {
                        if !is_short {
                            tracing::warn!(%error, "cannot accept connections for now");
                            is_short = true;
                        }
                        // The connection stays in the queue, so polling it would not wait.
                        self.wait(false);
                    }
                    Err(error) => break Err(error),
                }
            };
            // Ends the threads of unidentified connections, so that the scope ends.
            lock(&self.unidentified).values().for_each(Socket::end_receiving);
            outcome
        })
    }

    /// Returns true if new connections should be accepted now.
    fn accepts(&self) -> bool {
        self.others != OtherSenders::Queued || !self.is_joined.load(Ordering::Acquire)
    }

    /// Returns true if it ends with its first transfer.
    fn is_for_one(&self) -> bool {
        self.others != OtherSenders::Served
    }

    fn is_cancelled(&self) -> bool {
        self.receive.cancelled.load(Ordering::Relaxed)
    }

    /// Waits for a connection (if `accepts`), the end of a transfer, or the poll interval.
    fn wait(&self, accepts: bool) {
        let events = if accepts { PollFlags::IN } else { PollFlags::empty() };
        let mut polled =
            [PollFd::new(self.listen_socket, events), PollFd::new(&self.wake, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(POLL_INTERVAL.subsec_nanos()) };
        // A failure only shortens the wait. If memory is short, sleep to avoid spinning.
        if poll(&mut polled, Some(&timeout)).is_err_and(|errno| errno != rustix::io::Errno::INTR) {
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Starts a thread for a new connection.
    fn admit<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, socket: Socket) {
        let number = self.accepted_total.fetch_add(1, Ordering::Relaxed);
        {
            let mut unidentified = lock(&self.unidentified);
            if unidentified.len() >= UNIDENTIFIED_MAX
                && let Some(silent) = oldest_of_the_busiest_peer(&unidentified)
                && let Some(silent) = unidentified.remove(&silent)
            {
                silent.end_receiving();
            }
            unidentified.insert(number, socket.clone());
        }
        let started = start(scope, move || self.identify(number, &socket));
        if let Err(error) = started {
            lock(&self.unidentified).remove(&number);
            self.refused(&error);
        }
    }

    /// Reads the first message and dispatches the connection.
    fn identify(&self, number: u64, socket: &Socket) {
        let receive = self.receive;
        let greeting = match receive.raw {
            true => None,
            false => Some(conversation::read_greeting(receive, socket)),
        };
        lock(&self.unidentified).remove(&number);
        match greeting {
            None => self.receive_raw(socket),
            Some(Err(error)) => self.refused(&error),
            Some(Ok(Greeting { hello, manifest: Some(manifest) })) => {
                self.begin(socket, hello, &manifest)
            }
            Some(Ok(Greeting { hello, manifest: None })) => self.join(socket, hello),
        }
    }

    fn receive_raw(&self, socket: &Socket) {
        match self.is_for_one() && self.is_taken.swap(true, Ordering::AcqRel) {
            true => self.refused(&socket.error("busy with another sender: send again later")),
            false => {
                self.is_joined.store(true, Ordering::Release);
                self.end(raw::receive(self.receive, self.target, socket));
            }
        }
    }

    /// Starts a transfer on its first connection, if a slot is free.
    fn begin(&self, socket: &Socket, hello: Hello, manifest: &Manifest) {
        let Some(taken) = self.take_slot(hello.id, socket) else {
            send_failure(socket, Reason::Busy, "the receiver is busy with another transfer");
            return self.refused(
                &socket.error("refused because another transfer is in progress: send again later"),
            );
        };
        let receive = self.receive;
        let mut missing = u32::from(hello.connections).saturating_sub(1);
        self.is_joined.store(missing == 0, Ordering::Release);
        let mut joins = |end| {
            let joined = self.next_joining(&taken.joined, end)?;
            missing = missing.saturating_sub(u32::from(joined.is_some()));
            self.is_joined.store(missing == 0, Ordering::Release);
            Ok(joined)
        };
        let (target, wait_state) = (self.target, &taken.wait_state);
        let outcome =
            conversation::receive(receive, target, socket, hello, manifest, &mut joins, wait_state);
        lock(&self.slots).free(hello.id, &taken);
        self.end(outcome);
    }

    /// Takes a slot for a transfer, if one is free.
    fn take_slot(&self, id: TransferId, socket: &Socket) -> Option<TakenSlot> {
        let mut slots = lock(&self.slots);
        if self.is_for_one() && self.is_taken.swap(true, Ordering::AcqRel) {
            return None;
        }
        slots.take(id, socket)
    }

    /// Passes a further connection to its transfer.
    fn join(&self, socket: &Socket, hello: Hello) {
        let transfer = lock(&self.slots).joining(&hello.id);
        let is_taken =
            transfer.is_some_and(|transfer| transfer.send((socket.clone(), hello)).is_ok());
        if !is_taken {
            send_failure(
                socket,
                Reason::Malformed,
                "the receiver knows no transfer of this connection",
            );
            self.refused(&socket.error(
                "the connection belongs to no current transfer: it came too late or is invalid",
            ));
        }
    }

    fn next_joining(
        &self,
        joining: &Receiver<(Socket, Hello)>,
        end: Instant,
    ) -> Result<Option<(Socket, Hello)>> {
        loop {
            if self.is_cancelled() {
                return Err(Error::Cancelled { left: "no partial file remains".into() });
            }
            let left = end.saturating_duration_since(Instant::now());
            match joining.recv_timeout(left.min(POLL_INTERVAL)) {
                Ok(joined) => return Ok(Some(joined)),
                Err(RecvTimeoutError::Timeout) if left > POLL_INTERVAL => {}
                Err(_) => return Ok(None),
            }
        }
    }

    /// Reports the outcome of a transfer.
    fn end(&self, outcome: Result<ReceiveReport>) {
        (self.ended)(outcome);
        if self.is_for_one() {
            self.is_over.store(true, Ordering::Release);
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    fn refused(&self, error: &Error) {
        tracing::debug!(%error, "connection refused");
        if let Some(refused) = &self.receive.on_refused {
            refused(error);
        }
    }
}

/// Returns the oldest connection of the peer with the most connections without a hello.
fn oldest_of_the_busiest_peer(unidentified: &BTreeMap<u64, Socket>) -> Option<u64> {
    let mut peers: HashMap<Peer, (usize, u64)> = HashMap::new();
    for (number, socket) in unidentified {
        peers.entry(socket.peer()).or_insert((0, *number)).0 += 1;
    }
    let busiest = peers.into_values().max_by_key(|(count, oldest)| (*count, Reverse(*oldest)));
    busiest.map(|(_, oldest)| oldest)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
