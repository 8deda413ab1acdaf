//! Places for transfers, and who has them: a peer that stalls must not keep others out.
//!
//! There are [`TRANSFERS_MAX`] places, of which one peer may have [`PEER_MAX`]. When no place is free for a newcomer, the
//! transfer that has waited longest for its sender loses its place, if it has waited a twelfth of the idle timeout.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::net::socket::{Peer, Socket};
use crate::net::wire::{Hello, TransferId};

/// Transfers at a time.
pub(super) const TRANSFERS_MAX: usize = 16;

/// Transfers at a time of one peer: half of all, so that no peer can take all.
pub(super) const PEER_MAX: usize = TRANSFERS_MAX / 2;

/// A transfer that has waited for this part of the idle timeout may lose its place to a newcomer: 5 of 60 seconds.
const STALLED_SHARE: u32 = 12;

/// Where the hub sends further connections of a transfer.
type Joining = Sender<(Socket, Hello)>;

/// Tells whether a transfer waits for its sender, and whether it has lost its place.
#[derive(Debug, Default)]
pub(super) struct Standing {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Since when it waits for its sender; `None` while this end is at work.
    waiting_since: Option<Instant>,
    /// How long it had waited when its place was given to somebody else.
    displaced_after: Option<Duration>,
}

impl Standing {
    /// The sender has said or sent something, and more is awaited.
    pub(super) fn awaits_more(&self) {
        self.state().waiting_since = Some(Instant::now());
    }

    /// This end is at work: the sender is not to blame for the time it takes.
    pub(super) fn is_at_work(&self) {
        self.state().waiting_since = None;
    }

    /// The error of a transfer that has lost its place.
    pub(super) fn displaced(&self, socket: &Socket) -> Option<Error> {
        let waited = self.state().displaced_after?;
        Some(socket.error(format!(
            "nothing came for {waited:.0?}, and another sender needed the place; nothing was kept: send again"
        )))
    }

    fn waited(&self) -> Option<Duration> {
        self.state().waiting_since.map(|since| since.elapsed())
    }

    fn displace(&self, waited: Duration) {
        self.state().displaced_after = Some(waited);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who has a place.
pub(super) struct Places {
    taken: HashMap<TransferId, Place>,
    /// A transfer that has waited so long may lose its place.
    stalled: Duration,
}

struct Place {
    peer: Peer,
    /// The transfer's first connection.
    socket: Socket,
    standing: Arc<Standing>,
    joining: Joining,
}

/// A place as its transfer has it.
pub(super) struct Taken {
    pub standing: Arc<Standing>,
    /// Further connections of the transfer come out here.
    pub joined: Receiver<(Socket, Hello)>,
}

impl Places {
    pub(super) fn new(idle_timeout: Duration) -> Places {
        Places { taken: HashMap::new(), stalled: idle_timeout / STALLED_SHARE }
    }

    /// Takes a place for the transfer that begins on `socket`; `None` when there is none for it.
    pub(super) fn take(&mut self, id: TransferId, socket: &Socket) -> Option<Taken> {
        if self.taken.contains_key(&id) {
            return None;
        }
        let peer = socket.peer();
        let of_peer = self.taken.values().filter(|place| place.peer == peer).count();
        if of_peer >= PEER_MAX {
            self.displace(|place| place.peer == peer)?;
        } else if self.taken.len() >= TRANSFERS_MAX {
            self.displace(|_| true)?;
        }
        let (joining, joined) = channel();
        let standing = Arc::new(Standing::default());
        standing.awaits_more();
        let place = Place { peer, socket: socket.clone(), standing: standing.clone(), joining };
        self.taken.insert(id, place);
        Some(Taken { standing, joined })
    }

    /// Frees the place of a transfer that has the one that `taken` is.
    pub(super) fn free(&mut self, id: TransferId, taken: &Taken) {
        if self.taken.get(&id).is_some_and(|place| Arc::ptr_eq(&place.standing, &taken.standing)) {
            self.taken.remove(&id);
        }
    }

    /// Where further connections of a transfer go.
    pub(super) fn joining(&self, id: &TransferId) -> Option<Joining> {
        self.taken.get(id).map(|place| place.joining.clone())
    }

    /// Takes the place of whichever of these has stalled for longest.
    fn displace(&mut self, among: impl Fn(&Place) -> bool) -> Option<()> {
        let stalled =
            self.taken.iter().filter(|(_, place)| among(place)).filter_map(|(id, place)| {
                place
                    .standing
                    .waited()
                    .filter(|waited| *waited >= self.stalled)
                    .map(|waited| (waited, *id))
            });
        let (waited, id) = stalled.max_by_key(|(waited, _)| *waited)?;
        let place = self.taken.remove(&id)?;
        place.standing.displace(waited);
        place.socket.end_receiving();
        Some(())
    }
}
