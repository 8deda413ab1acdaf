//! Listening: who connects is a stranger until a hello was read, and belongs to one transfer from then on.
//!
//! Each stranger and each transfer has a thread of its own, so that nobody waits for anybody else: one who says nothing, or
//! sends a byte a minute, only holds up itself. How many there may be at a time is limited.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::conversation::{self, Greeting, say_failed};
use super::places::{Places, Taken};
use super::target::Target;
use super::{Receive, raw};
use crate::error::{Error, Result};
use crate::net::address::Address;
use crate::net::connect::Listener;
use crate::net::report::ReceiveReport;
use crate::net::socket::{Peer, Socket};
use crate::net::watch::start;
use crate::net::wire::{Hello, Manifest, Reason, TransferId};

/// Connections without a hello at a time. At one more, the peer that has most of them loses its oldest.
const STRANGERS_MAX: usize = 64;

/// How long a wait lasts before somebody may have cancelled.
const TURN: Duration = Duration::from_millis(100);

/// A receiver that listens. Dropped, it no longer does.
#[derive(Debug)]
pub struct Listening {
    receive: Receive,
    target: Target,
    listener: Listener,
}

impl Listening {
    pub(super) fn new(receive: Receive, target: Target, address: &Address) -> Result<Listening> {
        Ok(Listening { receive, target, listener: Listener::new(address)? })
    }

    /// Where it listens: with the port that it got, if it was to be any.
    pub fn address(&self) -> &Address {
        self.listener.address()
    }

    /// Accepts one transfer. Who connects and speaks something else is sent away, and told to
    /// [`on_refused`](Receive::on_refused); the first one that announces a file properly has its transfer, and how that
    /// ends is how this ends.
    ///
    /// # Errors
    ///
    /// As [`Receive::over`]; [`Error::Peer`] when nobody came in time.
    pub fn once(self) -> Result<ReceiveReport> {
        self.one(&self.receive, &self.target, Others::AreSentAway)
    }

    /// Accepts one transfer as [`Listening::once`] does, and goes on listening: who connects once all
    /// connections of that transfer are there, or between two calls, waits for the next one. Where to, how,
    /// and for how long is what `receive` says, and no longer what it was made with.
    ///
    /// ```
    /// use evermap_transfer::net::{Receive, Send};
    ///
    /// let place = tempfile::tempdir()?;
    /// let (file, one, two) = (place.path().join("file"), place.path().join("one"), place.path().join("two"));
    /// std::fs::write(&file, "what is sent")?;
    ///
    /// let receiver = Receive::new(&one).listen(&"127.0.0.1:0".parse()?)?;
    /// let address = receiver.address().clone();
    /// let sent = std::thread::spawn(move || {
    ///     Send::new(&file).to(&address)?;
    ///     Send::new(&file).to(&address)
    /// });
    /// for target in [one, two] {
    ///     receiver.next(&Receive::new(&target))?;
    ///     assert_eq!(std::fs::read(target)?, b"what is sent");
    /// }
    /// # sent.join().unwrap()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Listening::once`], and [`Error::Io`] when there is no directory for the target.
    pub fn next(&self, receive: &Receive) -> Result<ReceiveReport> {
        self.one(receive, &receive.target()?, Others::Wait)
    }

    fn one(&self, receive: &Receive, target: &Target, others: Others) -> Result<ReceiveReport> {
        let outcome = Mutex::new(None);
        let ended = |result| *lock(&outcome) = Some(result);
        Hub::new(&self.listener, receive, target, others, &ended)?.run(receive.wait)?;
        match outcome.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(result) => result,
            None => Err(Error::Cancelled { left: "nothing is left behind".into() }),
        }
    }

    /// Accepts transfers, up to 16 at a time, until it is cancelled, and calls `ended` with the outcome of each.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use evermap_transfer::net::{Receive, Send};
    ///
    /// let place = tempfile::tempdir()?;
    /// let (file, inbox) = (place.path().join("file"), place.path().join("inbox"));
    /// std::fs::write(&file, "what is sent")?;
    /// std::fs::create_dir(&inbox)?;
    ///
    /// let enough = Arc::new(AtomicBool::new(false));
    /// let receiver = Receive::new(&inbox).cancelled_by(enough.clone()).listen(&"127.0.0.1:0".parse()?)?;
    /// let address = receiver.address().clone();
    /// let server = std::thread::spawn(move || receiver.serve(|outcome| println!("{outcome:?}")));
    /// Send::new(&file).to(&address)?;
    /// Send::new(&file).to(&address)?;
    /// enough.store(true, Ordering::Relaxed);
    /// # server.join().unwrap()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Io`]: nothing can be accepted any more.
    pub fn serve(self, ended: impl Fn(Result<ReceiveReport>) + Sync) -> Result<()> {
        Hub::new(&self.listener, &self.receive, &self.target, Others::AreServed, &ended)?.run(None)
    }
}

/// What is called when a transfer ended.
type Ended<'a> = dyn Fn(Result<ReceiveReport>) + Sync + 'a;

/// What becomes of senders who come while another one's transfer is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    /// They have theirs at the same time.
    AreServed,
    /// They are told that it is busy.
    AreSentAway,
    /// They are not accepted, once all connections of that transfer are there: the kernel lets them wait.
    Wait,
}

/// All that threads of one listener share.
struct Hub<'a> {
    listener: &'a Listener,
    receive: &'a Receive,
    target: &'a Target,
    others: Others,
    ended: &'a Ended<'a>,
    /// By the order in which they came.
    strangers: Mutex<BTreeMap<u64, Socket>>,
    strangers_so_far: AtomicU64,
    places: Mutex<Places>,
    /// The one transfer there is to be has begun.
    is_taken: AtomicBool,
    /// All its connections are there.
    is_joined: AtomicBool,
    /// It has ended.
    is_over: AtomicBool,
    /// Ends the wait for connections when there are to be no more.
    wake: OwnedFd,
}

impl<'a> Hub<'a> {
    fn new(
        listener: &'a Listener,
        receive: &'a Receive,
        target: &'a Target,
        others: Others,
        ended: &'a Ended<'a>,
    ) -> Result<Hub<'a>> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(Error::io("make a signal for", "a listener"))?;
        Ok(Hub {
            listener,
            receive,
            target,
            others,
            ended,
            strangers: Mutex::default(),
            strangers_so_far: AtomicU64::new(0),
            places: Mutex::new(Places::new(receive.idle)),
            is_taken: AtomicBool::new(false),
            is_joined: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            wake,
        })
    }

    fn run(&self, wait: Option<Duration>) -> Result<()> {
        let begin = Instant::now();
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
                            address: self.listener.address().to_string(),
                            what: format!(
                                "no sender came in {time:?}; send with `evermap send FILE` and this address"
                            ),
                        });
                    }
                    _ => {}
                }
                self.wait(self.accepts());
                // Looked again: who connected during the wait may have come after the transfer's last connection.
                if !self.accepts() {
                    continue;
                }
                match self.listener.accept() {
                    Ok(Some(socket)) => self.admit(scope, socket),
                    Ok(None) => {}
                    Err(error) => break Err(error),
                }
            };
            // Their threads end at once, and with them this scope.
            lock(&self.strangers).values().for_each(Socket::end_receiving);
            outcome
        })
    }

    /// Whether anybody who connects now is meant for this.
    fn accepts(&self) -> bool {
        self.others != Others::Wait || !self.is_joined.load(Ordering::Acquire)
    }

    /// Whether it ends with its first transfer.
    fn is_for_one(&self) -> bool {
        self.others != Others::AreServed
    }

    fn is_cancelled(&self) -> bool {
        self.receive.cancelled.load(Ordering::Relaxed)
    }

    /// Until somebody connects, if that is of interest, a transfer has ended, or it is time to look up.
    fn wait(&self, accepts: bool) {
        let comers = if accepts { PollFlags::IN } else { PollFlags::empty() };
        let mut polled =
            [PollFd::new(self.listener, comers), PollFd::new(&self.wake, PollFlags::IN)];
        let turn = Timespec { tv_sec: 0, tv_nsec: i64::from(TURN.subsec_nanos()) };
        // A failure is a wait that was short; should it be for lack of memory, the turn is kept.
        if poll(&mut polled, Some(&turn)).is_err_and(|errno| errno != rustix::io::Errno::INTR) {
            std::thread::sleep(TURN);
        }
    }

    /// Gives somebody who connected a thread.
    fn admit<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, socket: Socket) {
        let number = self.strangers_so_far.fetch_add(1, Ordering::Relaxed);
        {
            let mut strangers = lock(&self.strangers);
            if strangers.len() >= STRANGERS_MAX
                && let Some(silent) = oldest_of_the_busiest_peer(&strangers)
                && let Some(silent) = strangers.remove(&silent)
            {
                silent.end_receiving();
            }
            strangers.insert(number, socket.clone());
        }
        let met = start(scope, move || self.meet(number, &socket));
        if let Err(error) = met {
            lock(&self.strangers).remove(&number);
            self.refused(&error);
        }
    }

    /// Reads what a stranger begins with, and brings it to its transfer.
    fn meet(&self, number: u64, socket: &Socket) {
        let receive = self.receive;
        let greeting = match receive.raw {
            true => None,
            false => Some(conversation::greet(receive, socket)),
        };
        lock(&self.strangers).remove(&number);
        match greeting {
            None => self.take_raw(socket),
            Some(Err(error)) => self.refused(&error),
            Some(Ok(Greeting { hello, manifest: Some(manifest) })) => {
                self.begin(socket, hello, &manifest)
            }
            Some(Ok(Greeting { hello, manifest: None })) => self.join(socket, hello),
        }
    }

    fn take_raw(&self, socket: &Socket) {
        match self.is_for_one() && self.is_taken.swap(true, Ordering::AcqRel) {
            true => self.refused(
                &socket.error("another sender's bytes are being received: send again later"),
            ),
            false => {
                self.is_joined.store(true, Ordering::Release);
                self.end(raw::receive(self.receive, self.target, socket));
            }
        }
    }

    /// A transfer's first connection: the transfer, if there is room for it.
    fn begin(&self, socket: &Socket, hello: Hello, manifest: &Manifest) {
        let Some(taken) = self.take_place(hello.id, socket) else {
            say_failed(socket, Reason::Busy, "it is busy with another transfer");
            return self.refused(
                &socket.error("it was refused, as there is a transfer already: send again later"),
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
        let (target, standing) = (self.target, &taken.standing);
        let outcome =
            conversation::receive(receive, target, socket, hello, manifest, &mut joins, standing);
        lock(&self.places).free(hello.id, &taken);
        self.end(outcome);
    }

    /// A place for a transfer, if it may have one.
    fn take_place(&self, id: TransferId, socket: &Socket) -> Option<Taken> {
        let mut places = lock(&self.places);
        if self.is_for_one() && self.is_taken.swap(true, Ordering::AcqRel) {
            return None;
        }
        places.take(id, socket)
    }

    /// A further connection of a transfer.
    fn join(&self, socket: &Socket, hello: Hello) {
        let transfer = lock(&self.places).joining(&hello.id);
        let is_taken =
            transfer.is_some_and(|transfer| transfer.send((socket.clone(), hello)).is_ok());
        if !is_taken {
            say_failed(
                socket,
                Reason::Malformed,
                "it knows of no transfer that this connection belongs to",
            );
            self.refused(&socket.error(
                "it belongs to no transfer that there is: it came too late, or is no sender's",
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
                return Err(Error::Cancelled { left: "nothing is left behind".into() });
            }
            let left = end.saturating_duration_since(Instant::now());
            match joining.recv_timeout(left.min(TURN)) {
                Ok(joined) => return Ok(Some(joined)),
                Err(RecvTimeoutError::Timeout) if left > TURN => {}
                Err(_) => return Ok(None),
            }
        }
    }

    /// A transfer has ended.
    fn end(&self, outcome: Result<ReceiveReport>) {
        (self.ended)(outcome);
        if self.is_for_one() {
            self.is_over.store(true, Ordering::Release);
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    fn refused(&self, error: &Error) {
        tracing::debug!(%error, "somebody was sent away");
        if let Some(refused) = &self.receive.on_refused {
            refused(error);
        }
    }
}

/// Of those who have not said hello, the one that came first from the peer that has most.
fn oldest_of_the_busiest_peer(strangers: &BTreeMap<u64, Socket>) -> Option<u64> {
    let mut peers: HashMap<Peer, (usize, u64)> = HashMap::new();
    for (number, socket) in strangers {
        peers.entry(socket.peer()).or_insert((0, *number)).0 += 1;
    }
    let busiest = peers.into_values().max_by_key(|(count, oldest)| (*count, Reverse(*oldest)));
    busiest.map(|(_, oldest)| oldest)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
