//! Slots for concurrent transfers. A stalled peer must not block others.
//!
//! There are [`TRANSFERS_MAX`] slots, of which one peer may use [`PEER_MAX`]. If no slot is free
//! for a new transfer, the transfer (of the same peer, if that has used up its own slots) that has
//! waited longest for its sender is evicted, provided it has waited a twelfth of the idle timeout.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::net::socket::{Peer, Socket};
use crate::net::wire::{Hello, TransferId};

/// Maximum number of concurrent transfers.
pub(super) const TRANSFERS_MAX: usize = 16;

/// Maximum number of concurrent transfers per peer: half of all, so that no peer can use all.
pub(super) const PEER_MAX: usize = TRANSFERS_MAX / 2;

/// Fraction of the idle timeout after which a waiting transfer may be evicted: 5 of 60 seconds.
const STALLED_SHARE: u32 = 12;

/// Channel for further connections of a transfer.
type Joining = Sender<(Socket, Hello)>;

/// State of a transfer: whether it waits for its sender, and whether it was evicted.
#[derive(Debug, Default)]
pub(super) struct WaitState {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Start of the wait for the sender; `None` while this end is busy.
    waiting_since: Option<Instant>,
    /// Time it had waited when it was evicted.
    evicted_after: Option<Duration>,
}

impl WaitState {
    /// Records progress by the sender: the wait starts again.
    pub(super) fn set_waiting(&self) {
        self.state().waiting_since = Some(Instant::now());
    }

    /// Records that this end is busy, so that the sender is not blamed for the time.
    pub(super) fn set_busy(&self) {
        self.state().waiting_since = None;
    }

    /// Returns the error of an evicted transfer.
    pub(super) fn eviction_error(&self, socket: &Socket) -> Option<Error> {
        let waited = self.state().evicted_after?;
        Some(socket.error(format!(
            "evicted for another sender after {waited:.0?} without data; nothing was kept: send again"
        )))
    }

    fn waited(&self) -> Option<Duration> {
        self.state().waiting_since.map(|since| since.elapsed())
    }

    fn evict(&self, waited: Duration) {
        self.state().evicted_after = Some(waited);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slots in use.
pub(super) struct Slots {
    taken: HashMap<TransferId, Slot>,
    /// Waiting time after which a transfer may be evicted.
    stalled: Duration,
}

struct Slot {
    peer: Peer,
    /// First connection of the transfer.
    socket: Socket,
    wait_state: Arc<WaitState>,
    joining: Joining,
}

/// A slot, from the side of its transfer.
pub(super) struct TakenSlot {
    pub wait_state: Arc<WaitState>,
    /// Receives further connections of the transfer.
    pub joined: Receiver<(Socket, Hello)>,
}

impl Slots {
    pub(super) fn new(idle_timeout: Duration) -> Slots {
        Slots { taken: HashMap::new(), stalled: idle_timeout / STALLED_SHARE }
    }

    /// Takes a slot for the transfer that begins on `socket`. Returns `None` if none is available.
    pub(super) fn take(&mut self, id: TransferId, socket: &Socket) -> Option<TakenSlot> {
        if self.taken.contains_key(&id) {
            return None;
        }
        let peer = socket.peer();
        let of_peer = self.taken.values().filter(|slot| slot.peer == peer).count();
        if of_peer >= PEER_MAX {
            self.evict(|slot| slot.peer == peer)?;
        } else if self.taken.len() >= TRANSFERS_MAX {
            self.evict(|_| true)?;
        }
        let (joining, joined) = channel();
        let wait_state = Arc::new(WaitState::default());
        wait_state.set_waiting();
        let slot = Slot { peer, socket: socket.clone(), wait_state: wait_state.clone(), joining };
        self.taken.insert(id, slot);
        Some(TakenSlot { wait_state, joined })
    }

    /// Frees the slot `taken`, unless it now belongs to another transfer.
    pub(super) fn free(&mut self, id: TransferId, taken: &TakenSlot) {
        if self.taken.get(&id).is_some_and(|slot| Arc::ptr_eq(&slot.wait_state, &taken.wait_state))
        {
            self.taken.remove(&id);
        }
    }

    /// Returns the channel for further connections of a transfer.
    pub(super) fn joining(&self, id: &TransferId) -> Option<Joining> {
        self.taken.get(id).map(|slot| slot.joining.clone())
    }

    /// Evicts the transfer among these that has stalled longest.
    fn evict(&mut self, among: impl Fn(&Slot) -> bool) -> Option<()> {
        let stalled = self.taken.iter().filter(|(_, slot)| among(slot)).filter_map(|(id, slot)| {
            slot.wait_state
                .waited()
                .filter(|waited| *waited >= self.stalled)
                .map(|waited| (waited, *id))
        });
        let (waited, id) = stalled.max_by_key(|(waited, _)| *waited)?;
        let slot = self.taken.remove(&id)?;
        slot.wait_state.evict(waited);
        slot.socket.end_receiving();
        Some(())
    }
}
