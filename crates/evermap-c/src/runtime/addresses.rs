//! Maps addresses to open objects: a sorted list that is replaced as a whole when an object is
//! opened, closed or grows. A lookup takes no lock, unless the list does not have the address.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::failure::Result;
use crate::runtime::handles;
use crate::runtime::reader_slots::{self, SlotGuard};

/// Marker stored in a reader slot while its thread reads the list. Never equal to a handle.
const READING_MARKER: u64 = 2;

/// An address range, from `base` up to `end`, and the handle of the object that owns it.
#[derive(Clone, Copy)]
struct Range {
    base: u64,
    end: u64,
    handle: u64,
}

/// Sorted by `base`. Ranges of different objects are disjoint; handles that read the same object
/// have the same ranges.
type List = Vec<Range>;

static LIST: AtomicPtr<List> = AtomicPtr::new(ptr::null_mut());

/// Handles of open objects, true for writers. Locked while the list is replaced.
static OPEN: Mutex<Vec<(u64, bool)>> = Mutex::new(Vec::new());

fn lock() -> MutexGuard<'static, Vec<(u64, bool)>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the handle of the object that owns `address`, or 0.
///
/// # Errors
/// `FORKED`.
pub fn find(address: u64) -> Result<u64> {
    match look(address)? {
        0 => Ok(look_up_writers(address)),
        handle => Ok(handle),
    }
}

#[inline]
fn look(address: u64) -> Result<u64> {
    let _guard = SlotGuard::on(READING_MARKER)?;
    // SAFETY: a replaced list is freed only when no reader slot holds the marker.
    let Some(list) = (unsafe { LIST.load(Ordering::Acquire).as_ref() }) else { return Ok(0) };
    let behind = list.partition_point(|range| range.base <= address);
    let before = behind.checked_sub(1).map(|i| &list[i]);
    Ok(before.filter(|range| address < range.end).map_or(0, |range| range.handle))
}

/// Objects open for writing can grow without notice, so query them directly.
#[cold]
fn look_up_writers(address: u64) -> u64 {
    let open = lock();
    let grown = open.iter().filter(|(_, writing)| *writing).map(|(handle, _)| *handle).find(|&h| {
        // An object that is being committed cannot grow now.
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

/// Adds an object that was opened.
pub fn add(handle: u64, writing: bool, regions: &[(u64, u64)]) {
    let mut open = lock();
    open.push((handle, writing));
    replace(&open, handle, regions);
}

/// Updates the ranges of an object.
pub fn change(handle: u64, regions: &[(u64, u64)]) {
    replace(&lock(), handle, regions);
}

/// Removes an object that is about to be closed.
pub fn remove(handle: u64) {
    let mut open = lock();
    open.retain(|(other, _)| *other != handle);
    replace(&open, handle, &[]);
}

fn replace(_open: &MutexGuard<'_, Vec<(u64, bool)>>, handle: u64, regions: &[(u64, u64)]) {
    let old = LIST.load(Ordering::Acquire);
    // SAFETY: lists are replaced and freed only while this lock is held.
    let mut list = unsafe { old.as_ref() }.cloned().unwrap_or_default();
    list.retain(|range| range.handle != handle);
    let range = |&(base, bytes): &(u64, u64)| Range { base, end: base + bytes, handle };
    list.extend(regions.iter().map(range));
    list.sort_unstable_by_key(|range| range.base);
    LIST.store(Box::into_raw(Box::new(list)), Ordering::SeqCst);
    reader_slots::barrier();
    // A lookup takes nanoseconds, unless its thread was interrupted.
    while reader_slots::in_use(READING_MARKER) {
        std::thread::yield_now();
    }
    if !old.is_null() {
        // SAFETY: `Box::into_raw` returned the pointer here. No thread reads the list any more: a
        // thread that started to read after the barrier saw the new list.
        drop(unsafe { Box::from_raw(old) });
    }
}
