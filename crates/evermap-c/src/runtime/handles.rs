//! Table of open objects. C gets handles, which are checked at every use.
//!
//! A handle consists of a slot's index and the number of earlier uses of the slot, so a handle is
//! never reused and a stale one is detected. Handles look like non-canonical pointers (bits 47 to
//! 63 differ), so a program that dereferences one faults.
//!
//! A slot's word is the handle while the object is available, the handle with [`EXCLUSIVE`] while
//! one thread uses the object exclusively, and another value otherwise. A thread that uses an
//! object stores the handle in its reader slot and then checks the word. A thread that wants
//! exclusive use changes the word and then checks the reader slots: at least one of the two sees
//! the other (see [`crate::runtime::reader_slots`]).
//!
//! In a forked child, the word of a session is the handle with [`INHERITED`]. Only [`look`] accepts
//! that. Both bits are set if another thread of the parent had exclusive use of the session, for
//! example to commit it. The object can then be read, but is never dropped.

use std::cell::UnsafeCell;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use evermap_core::Heap;

use crate::abi::failure::{Failure, Result};
use crate::abi::status;
use crate::abi::types::em_object;
use crate::runtime::fork;
use crate::runtime::object::Object;
use crate::runtime::reader_slots::{self, SlotGuard};

/// Maximum number of open objects.
const SLOTS: usize = 1 << 14;
/// Maximum number of checks while waiting for an object's users.
const USER_CHECKS_MAX: usize = 100;
/// Bit 0 of a slot's word: one thread has exclusive use of the object. Never set in a handle.
const EXCLUSIVE: u64 = 1;
/// Bit 1 of a slot's word, in a forked child: the object is its parent's session. Never set in a
/// handle.
const INHERITED: u64 = 2;
const INDEX_SHIFT: u32 = 4;
const ROUND_SHIFT: u32 = 18;
const ROUNDS: u64 = 1 << 42;
/// Tag bits: an object handle is never a valid address.
const MARK: u64 = 0x4 << 60;

const _: () =
    assert!(SLOTS == 1 << (ROUND_SHIFT - INDEX_SHIFT) && ROUNDS << ROUND_SHIFT == MARK >> 2);

struct Slot {
    word: AtomicU64,
    object: UnsafeCell<Option<Box<Object>>>,
}

// SAFETY: threads that registered a use and found the object available read `object`. Only the
// thread with exclusive use, or the one that took the slot from the free list, writes it.
unsafe impl Sync for Slot {}

static TABLE: [Slot; SLOTS] =
    [const { Slot { word: AtomicU64::new(0), object: UnsafeCell::new(None) } }; SLOTS];

/// Available slots: returned slots with their next round, and the number of slots ever used.
static FREE: Mutex<(Vec<(usize, u64)>, usize)> = Mutex::new((Vec::new(), 0));

/// Number of slots ever used.
static USED: AtomicUsize = AtomicUsize::new(0);

fn handle_of(index: usize, round: u64) -> u64 {
    MARK | round << ROUND_SHIFT | (index as u64) << INDEX_SHIFT
}

fn slot_of(handle: u64) -> &'static Slot {
    &TABLE[(handle >> INDEX_SHIFT) as usize % SLOTS]
}

/// Stores an object and returns its handle.
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
    // SAFETY: the slot belongs to this thread until its word is set.
    unsafe { *TABLE[index].object.get() = Some(Box::new(object)) };
    let handle = handle_of(index, round);
    TABLE[index].word.store(handle, Ordering::Release);
    Ok(handle)
}

/// Called in a forked child before any other function of this crate: marks the parent's sessions as
/// readable only. Closes a snapshot that another thread of the parent was refreshing.
pub fn inherit() {
    for slot in &TABLE[..USED.load(Ordering::Relaxed)] {
        let word = slot.word.load(Ordering::Relaxed);
        if word == 0 {
            continue;
        }
        // SAFETY: no other thread runs. A thread with exclusive use may have changed the contents
        // of a session, but not that it is one; it takes an object out of the slot before it ends
        // it.
        let object = unsafe { &*slot.object.get() };
        if object.as_ref().is_some_and(|object| object.is_writing()) {
            slot.word.store(word | INHERITED, Ordering::Relaxed);
        } else if word & EXCLUSIVE != 0 {
            slot.word.store(0, Ordering::Relaxed);
        }
    }
}

/// Returns the object of a handle, for a call that a forked child may make as well.
///
/// # Errors
/// `CLOSED`, `BUSY`; `FORKED` in a child of a bare `clone`.
pub fn look(handle: *const em_object) -> Result<Shared> {
    if !fork::is_child() {
        return share(handle);
    }
    fork::inherited()?;
    let handle = handle as u64;
    let guard = SlotGuard::in_child(handle);
    let slot = slot_of(handle);
    if word_in_child(slot, handle).is_none() {
        drop(guard);
        return Err(closed(handle));
    }
    // SAFETY: the use is registered and the object is available, so no thread writes the slot.
    match unsafe { &*slot.object.get() } {
        Some(object) => Ok(Shared { object: &raw const **object, _guard: guard }),
        None => Err(closed(handle)),
    }
}

/// Returns the word of an object that a forked child can read.
fn word_in_child(slot: &Slot, handle: u64) -> Option<u64> {
    let word = slot.word.load(Ordering::Acquire);
    let is_handle = handle != 0 && handle & (EXCLUSIVE | INHERITED) == 0;
    let can_be_had =
        word == handle || word & INHERITED != 0 && word & !(EXCLUSIVE | INHERITED) == handle;
    (is_handle && can_be_had).then_some(word)
}

/// Takes the object of a handle out, in a forked child. The parent keeps its own copy. Returns
/// `None` if another thread of the parent was changing the object: it stays, because dropping an
/// incomplete object could fail.
///
/// # Errors
/// `CLOSED`, `BUSY`; `FORKED` in a child of a bare `clone`.
pub fn take_in_child(handle: *const em_object) -> Result<Option<Box<Object>>> {
    fork::inherited()?;
    let handle = handle as u64;
    let slot = slot_of(handle);
    let word = word_in_child(slot, handle).ok_or_else(|| closed(handle))?;
    let order = (Ordering::SeqCst, Ordering::Relaxed);
    if slot.word.compare_exchange(word, handle | EXCLUSIVE, order.0, order.1).is_err() {
        return Err(closed(handle));
    }
    if let Err(busy) = wait_for_users(handle) {
        slot.word.store(word, Ordering::Release);
        return Err(busy);
    }
    if word & EXCLUSIVE != 0 {
        slot.word.store(0, Ordering::Release);
        return Ok(None);
    }
    // SAFETY: the word gives this thread exclusive use, and no reader slot holds the handle.
    let object = unsafe { &mut *slot.object.get() }.take();
    slot.word.store(0, Ordering::Release);
    object.ok_or_else(|| closed(handle)).map(Some)
}

/// Waits for the threads that registered a use before the object was withdrawn.
fn wait_for_users(handle: u64) -> Result<()> {
    reader_slots::barrier();
    // An address lookup in another thread ends at once, and its caller need not know of it.
    for _ in 0..USER_CHECKS_MAX {
        if !reader_slots::in_use(handle) {
            return Ok(());
        }
        std::thread::yield_now();
    }
    Err(busy())
}

/// Explains why a handle cannot be used.
#[cold]
fn refuse(handle: u64) -> Failure {
    if let Err(forked) = fork::check() {
        return forked;
    }
    match handle != 0 && slot_of(handle).word.load(Ordering::Acquire) == handle | EXCLUSIVE {
        true => busy(),
        false => closed(handle),
    }
}

fn busy() -> Failure {
    let message = "another thread uses the object; commit, rollback, close and similar calls \
                   need it exclusively";
    Failure::new(status::BUSY, message)
}

#[cold]
pub fn closed(handle: u64) -> Failure {
    let message = match handle {
        0 => "the handle is NULL; open the object or the store first".to_string(),
        _ => format!("{handle:#x} is not an open handle; it was closed, or never was one"),
    };
    Failure::new(status::CLOSED, message)
}

/// An object in shared use.
pub struct Shared {
    object: *const Object,
    _guard: SlotGuard,
}

impl std::ops::Deref for Shared {
    type Target = Object;

    #[inline]
    fn deref(&self) -> &Object {
        // SAFETY: while the use is registered, no thread gets exclusive use.
        unsafe { &*self.object }
    }
}

/// Returns the object of a handle, for shared use.
///
/// # Errors
/// `CLOSED`, `BUSY`, `FORKED`.
#[inline]
pub fn share(handle: *const em_object) -> Result<Shared> {
    share_number(handle as u64)
}

#[inline]
pub fn share_number(handle: u64) -> Result<Shared> {
    let guard = SlotGuard::on(handle)?;
    let slot = slot_of(handle);
    if slot.word.load(Ordering::Acquire) != handle || handle == 0 {
        drop(guard);
        return Err(refuse(handle));
    }
    // SAFETY: the use is registered and the object is available, so no thread writes the slot.
    match unsafe { &*slot.object.get() } {
        Some(object) => Ok(Shared { object: &raw const **object, _guard: guard }),
        None => Err(closed(handle)),
    }
}

/// Calls `act` with the heap of a handle, if nothing is in the way: the thread has a reader slot,
/// and the object is available and open for stores without protection. Makes no call itself, so
/// that a function that begins with it needs no stack frame for the frequent case.
#[inline(always)]
pub fn on_heap_quickly<T>(
    handle: *const em_object,
    act: impl FnOnce(&Heap) -> Option<T>,
) -> Option<T> {
    let handle = handle as u64;
    let _guard = SlotGuard::quickly(handle)?;
    let slot = slot_of(handle);
    if slot.word.load(Ordering::Acquire) != handle || handle == 0 {
        return None;
    }
    // SAFETY: the use is registered and the object is available, so no thread writes the slot.
    act(unsafe { &*slot.object.get() }.as_ref()?.unprotected_heap()?)
}

/// An object in exclusive use by one thread.
pub struct Exclusive {
    handle: u64,
    slot: &'static Slot,
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        // Does nothing if the object was closed.
        let exclusive = self.handle | EXCLUSIVE;
        let order = (Ordering::Release, Ordering::Relaxed);
        let _ = self.slot.word.compare_exchange(exclusive, self.handle, order.0, order.1);
    }
}

/// Returns the object of a handle, for exclusive use by this thread.
///
/// # Errors
/// `BUSY` while another thread uses it, `CLOSED`, `FORKED`.
pub fn take(handle: *const em_object) -> Result<Exclusive> {
    fork::check()?;
    let handle = handle as u64;
    let slot = slot_of(handle);
    let order = (Ordering::SeqCst, Ordering::Relaxed);
    if handle & EXCLUSIVE != 0
        || handle == 0
        || slot.word.compare_exchange(handle, handle | EXCLUSIVE, order.0, order.1).is_err()
    {
        return Err(refuse(handle));
    }
    let exclusive = Exclusive { handle, slot };
    wait_for_users(handle)?;
    Ok(exclusive)
}

impl Exclusive {
    pub fn number(&self) -> u64 {
        self.handle
    }

    pub fn object(&mut self) -> Result<&mut Object> {
        // SAFETY: the word gives this thread exclusive use, and no reader slot holds the handle.
        let object = unsafe { &mut *self.slot.object.get() };
        object.as_deref_mut().ok_or_else(|| closed(self.handle))
    }

    /// Takes the object out and invalidates the handle.
    pub fn close(self) -> Result<Box<Object>> {
        // SAFETY: the word gives this thread exclusive use, and no reader slot holds the handle.
        let object = unsafe { &mut *self.slot.object.get() }.take();
        // Zero is not a handle. The slot's next handle is stored at its next use.
        self.slot.word.store(0, Ordering::Release);
        let index = (self.handle >> INDEX_SHIFT) as usize % SLOTS;
        let round = (self.handle & !MARK) >> ROUND_SHIFT;
        // A slot whose rounds are used up stays closed.
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
    fn exclusive_use_requires_that_no_other_thread_uses_the_object() {
        let directory = tempfile::tempdir().unwrap();
        let store = evermap_core::Store::create_new(directory.path().join("store")).unwrap();
        store.create_raw("object").unwrap();
        reader_slots::prepare();
        let session = store.write_raw("object").unwrap();
        let handle = insert(Object::writing(store, session)).unwrap();
        let take_it = move || take(handle as *const em_object).map(drop);
        let share_it = move || share_number(handle).map(drop);

        let shared = share_number(handle).unwrap();
        assert_eq!(status_in_another_thread(take_it), status::BUSY);
        assert_eq!(status_in_another_thread(share_it), status::OK);
        drop(shared);
        assert_eq!(status_in_another_thread(take_it), status::OK);

        let exclusive = take(handle as *const em_object).unwrap();
        assert_eq!(status_in_another_thread(take_it), status::BUSY);
        assert_eq!(status_in_another_thread(share_it), status::BUSY);
        drop(exclusive);
        assert_eq!(status_in_another_thread(share_it), status::OK);
        take(handle as *const em_object).unwrap().close().unwrap().close().unwrap();
        assert_eq!(status_in_another_thread(take_it), status::CLOSED);
        assert_eq!(status_in_another_thread(share_it), status::CLOSED);
    }
}
