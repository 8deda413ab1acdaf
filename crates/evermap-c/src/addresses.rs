//! Which open object has an address: a sorted list that is replaced as a whole when objects come,
//! go or grow, so that looking costs no lock.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::failure::Result;
use crate::handles;
use crate::seats::{self, Sitting};

/// What a seat holds while its thread looks at the list; no handle is this.
const LOOKING: u64 = 2;

/// A range of addresses, from `base` up to `end`, and the handle of the object that has it.
#[derive(Clone, Copy)]
struct Range {
    base: u64,
    end: u64,
    handle: u64,
}

/// Sorted by `base`. Ranges of different objects are disjoint; handles that read one object have
/// the same ones.
type List = Vec<Range>;

static LIST: AtomicPtr<List> = AtomicPtr::new(ptr::null_mut());

/// The handles of open objects, true for writers; held while the list is made anew.
static OPEN: Mutex<Vec<(u64, bool)>> = Mutex::new(Vec::new());

fn lock() -> MutexGuard<'static, Vec<(u64, bool)>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handle of the object that has `address`, or 0.
///
/// # Errors
/// `FORKED`.
pub fn find(address: u64) -> Result<u64> {
    match look(address)? {
        0 => Ok(look_again(address)),
        handle => Ok(handle),
    }
}

#[inline]
fn look(address: u64) -> Result<u64> {
    let _sitting = Sitting::on(LOOKING)?;
    // SAFETY: a list that was replaced is freed only when no seat is looking.
    let Some(list) = (unsafe { LIST.load(Ordering::Acquire).as_ref() }) else { return Ok(0) };
    let behind = list.partition_point(|range| range.base <= address);
    let before = behind.checked_sub(1).map(|i| &list[i]);
    Ok(before.filter(|range| address < range.end).map_or(0, |range| range.handle))
}

/// Objects that are being written grow without telling: those are asked.
#[cold]
fn look_again(address: u64) -> u64 {
    let open = lock();
    let grown = open.iter().filter(|(_, writing)| *writing).map(|(handle, _)| *handle).find(|&h| {
        // One that is being committed cannot grow just now.
        let object = handles::share_number(h);
        let has = |&(base, bytes): &(u64, u64)| address.wrapping_sub(base) < bytes;
        object.is_ok_and(|object| object.regions().iter().any(has))
    });
    if let Some(handle) = grown {
        let regions = handles::share_number(handle).map_or(Vec::new(), |object| object.regions());
        replace(&open, handle, &regions);
    }
    grown.unwrap_or(0)
}

/// An object was opened.
pub fn add(handle: u64, writing: bool, regions: &[(u64, u64)]) {
    let mut open = lock();
    open.push((handle, writing));
    replace(&open, handle, regions);
}

/// An object has other ranges than before.
pub fn change(handle: u64, regions: &[(u64, u64)]) {
    replace(&lock(), handle, regions);
}

/// An object is about to be closed.
pub fn remove(handle: u64) {
    let mut open = lock();
    open.retain(|(other, _)| *other != handle);
    replace(&open, handle, &[]);
}

fn replace(_open: &MutexGuard<'_, Vec<(u64, bool)>>, handle: u64, regions: &[(u64, u64)]) {
    let old = LIST.load(Ordering::Acquire);
    // SAFETY: lists are replaced and freed under the lock, which is held.
    let mut list = unsafe { old.as_ref() }.cloned().unwrap_or_default();
    list.retain(|range| range.handle != handle);
    let range = |&(base, bytes): &(u64, u64)| Range { base, end: base + bytes, handle };
    list.extend(regions.iter().map(range));
    list.sort_unstable_by_key(|range| range.base);
    LIST.store(Box::into_raw(Box::new(list)), Ordering::SeqCst);
    seats::barrier();
    // Looking takes nanoseconds, unless the thread that does it was interrupted.
    while seats::in_use(LOOKING) {
        std::thread::yield_now();
    }
    if !old.is_null() {
        // SAFETY: it came from `Box::into_raw` here, and nobody looks at it any more: who began
        // to look after the barrier saw the new list.
        drop(unsafe { Box::from_raw(old) });
    }
}
