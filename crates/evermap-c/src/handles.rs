//! The table of open objects: numbers for C, checked at every use.
//!
//! A handle is a slot's index and how often the slot was used before, so that a number is never
//! given twice and one that is no longer good is told from one that is. Handles look like pointers
//! that no processor takes (bits 47 to 63 differ), so that a program that looks into one faults.
//!
//! A slot's word is the handle while the object can be had, the handle with [`ALONE`] while one
//! thread has the object for itself, and something else otherwise. Who uses an object notes the
//! handle in its seat and then looks at the word; who wants it alone changes the word and then
//! looks at the seats: one of the two sees the other (see [`crate::seats`]).
//!
//! In a forked child the word of a session is the handle with [`INHERITED`]: [`look`] takes that,
//! and nothing else does. Both bits are set if another thread of the parent had the session for itself, to
//! commit for example. Then it can be read, and is never dropped.

use std::cell::UnsafeCell;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::failure::{Failure, Result};
use crate::object::Object;
use crate::seats::{self, Sitting};
use crate::types::em_object;
use crate::{fork, status};

/// Most objects that are open at a time.
const SLOTS: usize = 1 << 14;
/// How often to look again for an object's users to be done.
const PATIENCE: usize = 100;
/// Bit 0 of a slot's word: one thread has the object for itself. Never set in a handle.
const ALONE: u64 = 1;
/// Bit 1 of a slot's word, in a forked child: the object is its parent's session. Never set in a
/// handle.
const INHERITED: u64 = 2;
const INDEX_SHIFT: u32 = 4;
const ROUND_SHIFT: u32 = 18;
const ROUNDS: u64 = 1 << 42;
/// Makes a handle of an object no address that can be used.
const MARK: u64 = 0x4 << 60;

const _: () =
    assert!(SLOTS == 1 << (ROUND_SHIFT - INDEX_SHIFT) && ROUNDS << ROUND_SHIFT == MARK >> 2);

struct Slot {
    word: AtomicU64,
    object: UnsafeCell<Option<Box<Object>>>,
}

// SAFETY: `object` is read by threads that noted a use and saw the word say that it can be had,
// and written by the one thread that has it alone, or that took the slot from the free ones.
unsafe impl Sync for Slot {}

static TABLE: [Slot; SLOTS] =
    [const { Slot { word: AtomicU64::new(0), object: UnsafeCell::new(None) } }; SLOTS];

/// Slots that can be used: those given back with the round that comes next, and how many of the
/// table were ever used.
static FREE: Mutex<(Vec<(usize, u64)>, usize)> = Mutex::new((Vec::new(), 0));

/// Slots that were ever used.
static USED: AtomicUsize = AtomicUsize::new(0);

fn handle_of(index: usize, round: u64) -> u64 {
    MARK | round << ROUND_SHIFT | (index as u64) << INDEX_SHIFT
}

fn slot_of(handle: u64) -> &'static Slot {
    &TABLE[(handle >> INDEX_SHIFT) as usize % SLOTS]
}

/// Gives an object a handle.
///
/// # Errors
/// `TOO_MANY_OPEN`.
pub fn insert(object: Object) -> Result<u64> {
    let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    let (index, round) = match free.0.pop() {
        Some(given_back) => given_back,
        None if free.1 < SLOTS => {
            free.1 += 1;
            (free.1 - 1, 0)
        }
        None => {
            let message = format!("{SLOTS} objects are open; close some");
            return Err(Failure::new(status::TOO_MANY_OPEN, message));
        }
    };
    drop(free);
    USED.fetch_max(index + 1, Ordering::Relaxed);
    // SAFETY: the slot is this thread's until its word says that it can be had.
    unsafe { *TABLE[index].object.get() = Some(Box::new(object)) };
    let handle = handle_of(index, round);
    TABLE[index].word.store(handle, Ordering::Release);
    Ok(handle)
}

/// In a forked child, before anything else runs: its parent's sessions can only be looked at. A
/// snapshot that another thread of the parent was refreshing is closed.
pub fn inherit() {
    for slot in &TABLE[..USED.load(Ordering::Relaxed)] {
        let word = slot.word.load(Ordering::Relaxed);
        if word == 0 {
            continue;
        }
        // SAFETY: no other thread runs. One that had the object alone changed what is in a session, but
        // not that it is one; it takes an object out of the slot before it ends it.
        let object = unsafe { &*slot.object.get() };
        if object.as_ref().is_some_and(|object| object.is_writing()) {
            slot.word.store(word | INHERITED, Ordering::Relaxed);
        } else if word & ALONE != 0 {
            slot.word.store(0, Ordering::Relaxed);
        }
    }
}

/// The object of a handle, for a call that a forked child may make as well.
///
/// # Errors
/// `CLOSED`, `BUSY`; `FORKED` in a child of a bare `clone`.
pub fn look(handle: *const em_object) -> Result<Shared> {
    if !fork::is_child() {
        return share(handle);
    }
    fork::inherited()?;
    let handle = handle as u64;
    let sitting = Sitting::in_child(handle);
    let slot = slot_of(handle);
    if word_in_child(slot, handle).is_none() {
        drop(sitting);
        return Err(closed(handle));
    }
    // SAFETY: as in `share_number`.
    match unsafe { &*slot.object.get() } {
        Some(object) => Ok(Shared { object: &raw const **object, _sitting: sitting }),
        None => Err(closed(handle)),
    }
}

/// The word of an object that a forked child can look at.
fn word_in_child(slot: &Slot, handle: u64) -> Option<u64> {
    let word = slot.word.load(Ordering::Acquire);
    let is_handle = handle != 0 && handle & (ALONE | INHERITED) == 0;
    let can_be_had =
        word == handle || word & INHERITED != 0 && word & !(ALONE | INHERITED) == handle;
    (is_handle && can_be_had).then_some(word)
}

/// Takes the object of a handle out, in a forked child. The parent keeps its own. Returns `None` if another
/// thread of the parent was changing the object: it stays, because a drop could find it half changed.
///
/// # Errors
/// `CLOSED`, `BUSY`; `FORKED` in a child of a bare `clone`.
pub fn give_up(handle: *const em_object) -> Result<Option<Box<Object>>> {
    fork::inherited()?;
    let handle = handle as u64;
    let slot = slot_of(handle);
    let word = word_in_child(slot, handle).ok_or_else(|| closed(handle))?;
    let order = (Ordering::SeqCst, Ordering::Relaxed);
    if slot.word.compare_exchange(word, handle | ALONE, order.0, order.1).is_err() {
        return Err(closed(handle));
    }
    if let Err(busy) = wait_for_users(handle) {
        slot.word.store(word, Ordering::Release);
        return Err(busy);
    }
    if word & ALONE != 0 {
        slot.word.store(0, Ordering::Release);
        return Ok(None);
    }
    // SAFETY: the word says that this thread has the object alone, and no seat had it.
    let object = unsafe { &mut *slot.object.get() }.take();
    slot.word.store(0, Ordering::Release);
    object.ok_or_else(|| closed(handle)).map(Some)
}

/// Waits for those who noted a use before the object was withdrawn.
fn wait_for_users(handle: u64) -> Result<()> {
    seats::barrier();
    // Who looks whether the object has an address is done in a moment, and was not to know.
    for _ in 0..PATIENCE {
        if !seats::in_use(handle) {
            return Ok(());
        }
        std::thread::yield_now();
    }
    Err(busy())
}

/// Why a handle cannot be used.
#[cold]
fn refuse(handle: u64) -> Failure {
    if let Err(forked) = fork::check() {
        return forked;
    }
    match handle != 0 && slot_of(handle).word.load(Ordering::Acquire) == handle | ALONE {
        true => busy(),
        false => closed(handle),
    }
}

fn busy() -> Failure {
    let message = "another thread uses the object; commit, rollback, close and the like must be \
                   alone with it";
    Failure::new(status::BUSY, message)
}

#[cold]
pub fn closed(handle: u64) -> Failure {
    let message = match handle {
        0 => "the handle is NULL; open the object or the store first".to_string(),
        _ => format!("{handle:#x} is no open handle; it was closed, or never was one"),
    };
    Failure::new(status::CLOSED, message)
}

/// An object in use beside others.
pub struct Shared {
    object: *const Object,
    _sitting: Sitting,
}

impl std::ops::Deref for Shared {
    type Target = Object;

    #[inline]
    fn deref(&self) -> &Object {
        // SAFETY: while the use is noted nobody gets the object alone.
        unsafe { &*self.object }
    }
}

/// The object of a handle, for use beside others.
///
/// # Errors
/// `CLOSED`, `BUSY`, `FORKED`.
#[inline]
pub fn share(handle: *const em_object) -> Result<Shared> {
    share_number(handle as u64)
}

#[inline]
pub fn share_number(handle: u64) -> Result<Shared> {
    let sitting = Sitting::on(handle)?;
    let slot = slot_of(handle);
    if slot.word.load(Ordering::Acquire) != handle || handle == 0 {
        drop(sitting);
        return Err(refuse(handle));
    }
    // SAFETY: the use is noted and the object can be had, so nobody writes the slot.
    match unsafe { &*slot.object.get() } {
        Some(object) => Ok(Shared { object: &raw const **object, _sitting: sitting }),
        None => Err(closed(handle)),
    }
}

/// An object that one thread has for itself.
pub struct Alone {
    handle: u64,
    slot: &'static Slot,
}

impl Drop for Alone {
    fn drop(&mut self) {
        // Unless it was closed.
        let alone = self.handle | ALONE;
        let order = (Ordering::Release, Ordering::Relaxed);
        let _ = self.slot.word.compare_exchange(alone, self.handle, order.0, order.1);
    }
}

/// The object of a handle, for this thread alone.
///
/// # Errors
/// `BUSY` while another thread uses it in any way, `CLOSED`, `FORKED`.
pub fn take(handle: *const em_object) -> Result<Alone> {
    fork::check()?;
    let handle = handle as u64;
    let slot = slot_of(handle);
    let order = (Ordering::SeqCst, Ordering::Relaxed);
    if handle & ALONE != 0
        || handle == 0
        || slot.word.compare_exchange(handle, handle | ALONE, order.0, order.1).is_err()
    {
        return Err(refuse(handle));
    }
    let alone = Alone { handle, slot };
    wait_for_users(handle)?;
    Ok(alone)
}

impl Alone {
    pub fn number(&self) -> u64 {
        self.handle
    }

    pub fn object(&mut self) -> Result<&mut Object> {
        // SAFETY: the word says that this thread has the object alone, and no seat had it.
        let object = unsafe { &mut *self.slot.object.get() };
        object.as_deref_mut().ok_or_else(|| closed(self.handle))
    }

    /// Takes the object out; the handle is good no longer.
    pub fn close(self) -> Result<Box<Object>> {
        // SAFETY: as in `object`.
        let object = unsafe { &mut *self.slot.object.get() }.take();
        // A word that is no handle; the slot's next one is stored when it is used again.
        self.slot.word.store(0, Ordering::Release);
        let index = (self.handle >> INDEX_SHIFT) as usize % SLOTS;
        let round = (self.handle & !MARK) >> ROUND_SHIFT;
        // A slot that was used so often that its numbers are used up stays closed.
        if round + 1 < ROUNDS {
            FREE.lock().unwrap_or_else(PoisonError::into_inner).0.push((index, round + 1));
        }
        object.ok_or_else(|| closed(self.handle))
    }
}

#[cfg(test)]
mod tests {
    use std::thread::spawn;

    use super::*;

    fn status_in_another_thread(call: impl FnOnce() -> Result<()> + Send + 'static) -> u32 {
        spawn(|| call().map_or_else(|failure| failure.status, |()| status::OK)).join().unwrap()
    }

    #[test]
    fn who_wants_an_object_alone_gets_it_when_no_other_thread_uses_it() {
        let directory = tempfile::tempdir().unwrap();
        let store = evermap_core::Store::create_new(directory.path().join("store")).unwrap();
        store.create_raw("object").unwrap();
        seats::prepare();
        let session = store.write_raw("object").unwrap();
        let handle = insert(Object::writing(store, session)).unwrap();
        let take_it = move || take(handle as *const em_object).map(drop);
        let share_it = move || share_number(handle).map(drop);

        let shared = share_number(handle).unwrap();
        assert_eq!(status_in_another_thread(take_it), status::BUSY);
        assert_eq!(status_in_another_thread(share_it), status::OK);
        drop(shared);
        assert_eq!(status_in_another_thread(take_it), status::OK);

        let alone = take(handle as *const em_object).unwrap();
        assert_eq!(status_in_another_thread(take_it), status::BUSY);
        assert_eq!(status_in_another_thread(share_it), status::BUSY);
        drop(alone);
        assert_eq!(status_in_another_thread(share_it), status::OK);
        take(handle as *const em_object).unwrap().close().unwrap().close().unwrap();
        assert_eq!(status_in_another_thread(take_it), status::CLOSED);
        assert_eq!(status_in_another_thread(share_it), status::CLOSED);
    }
}
