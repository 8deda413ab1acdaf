//! Images of this process and their states.
//!
//! When an image is complete, its memory is released to the process and trimmed to the range that
//! the program requested. It is then ordinary private memory, which the program unmaps, moves and
//! protects without the shim. The shim keeps only the file that it shows (`Table`), for the few
//! calls that behave differently on a file mapping. Before that, the image is a `Loading` with
//! threads and descriptors, and every call that would change its mapping finishes it first.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use evermap_load::{Image, Mapping};

use crate::inside::within;
use crate::line::Line;
use crate::lock::{Held, Lock};
use crate::real;
use crate::table::{Origin, Part, Table};

/// Interval of checks for completion, at first and for long loads.
const PERIOD_MIN: Duration = Duration::from_millis(1);
const PERIOD_MAX: Duration = Duration::from_millis(100);
/// Sleep of a thread that needs an image while another thread completes it.
const PAUSE: Duration = Duration::from_micros(100);

/// Image that may be incomplete.
pub(crate) struct Loading {
    /// Memory passed to the program.
    pub(crate) part: Part,
    /// Descriptor passed to `mmap`.
    pub(crate) fd: c_int,
    /// `None` while a thread completes it.
    pub(crate) image: Option<Image>,
    pub(crate) line: Line,
    number: u64,
}

pub(crate) struct State {
    pub(crate) table: Table,
    pub(crate) loading: Vec<Loading>,
    pub(crate) reads: Vec<Line>,
}

static STATE: Lock<State> =
    Lock::new(State { table: Table::new(), loading: Vec::new(), reads: Vec::new() });
static NUMBER: AtomicU64 = AtomicU64::new(0);
/// Number of running loads, and number of all ranges, readable without the lock.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
static RANGES: AtomicUsize = AtomicUsize::new(0);
/// Bounds of all addresses that were ever images.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Locks the state for reading or changing it.
pub(crate) fn state() -> StateGuard {
    StateGuard { held: STATE.lock() }
}

pub(crate) struct StateGuard {
    held: Held<'static, State>,
}

impl std::ops::Deref for StateGuard {
    type Target = State;

    fn deref(&self) -> &State {
        &self.held
    }
}

impl std::ops::DerefMut for StateGuard {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.held
    }
}

impl Drop for StateGuard {
    fn drop(&mut self) {
        UNDER_WAY.store(self.loading.len(), Ordering::Release);
        RANGES.store(self.loading.len() + self.table.len(), Ordering::Release);
    }
}

/// Returns the lock itself, for forks.
pub(crate) fn lock() -> &'static Lock<State> {
    &STATE
}

/// Returns true if an image may overlap these addresses. Costs three loads.
pub(crate) fn may_have(start: usize, bytes: usize) -> bool {
    RANGES.load(Ordering::Acquire) > 0
        && start < HIGHEST.load(Ordering::Acquire)
        && start.saturating_add(bytes) > LOWEST.load(Ordering::Acquire)
}

/// Returns true if images are being loaded.
pub(crate) fn has_loads() -> bool {
    UNDER_WAY.load(Ordering::Acquire) > 0
}

fn note(part: &Part) {
    LOWEST.fetch_min(part.start, Ordering::AcqRel);
    HIGHEST.fetch_max(part.end, Ordering::AcqRel);
}

/// Adds a complete range.
pub(crate) fn add(part: Part) {
    note(&part);
    state().table.add(part);
}

/// Adds an image that is still loading, and starts a thread that completes it. If the thread cannot
/// be started, waits for the load.
pub(crate) fn begin(part: Part, fd: c_int, image: Image, line: Line) {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    note(&part);
    state().loading.push(Loading { part, fd, image: Some(image), line, number });
    let builder = std::thread::Builder::new().name("evermap-shim".into()).stack_size(128 << 10);
    let started = without_signals(|| builder.spawn(move || complete_when_loaded(number)));
    if started.is_err() {
        finish(|loading| loading.number == number);
    }
}

/// Starts a thread with all signals blocked, because the program's handlers do not expect it.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: signal sets are plain memory, filled before they are read, and the mask is this
    // thread's.
    unsafe {
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        let mut before = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut all);
        let is_set = libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) == 0;
        let started = start();
        if is_set {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        }
        started
    }
}

/// Thread of a load: releases its memory to the process when it is complete.
fn complete_when_loaded(number: u64) {
    let mut period = PERIOD_MIN;
    loop {
        std::thread::sleep(period);
        period = (period * 2).min(PERIOD_MAX);
        let is_over = within(|| {
            let is_complete = match state().loading.iter().find(|loading| loading.number == number)
            {
                None => return true,
                Some(Loading { image: Some(image), .. }) => {
                    let progress = image.progress();
                    progress.loaded_bytes >= progress.total_bytes
                }
                Some(_) => false,
            };
            if is_complete {
                finish(|loading| loading.number == number);
            }
            is_complete
        });
        if is_over != Some(false) {
            return;
        }
    }
}

/// Finishes the selected loads and waits for them.
pub(crate) fn finish(is_selected: impl Fn(&Loading) -> bool) {
    loop {
        let mut state = state();
        let Some(loading) = state.loading.iter_mut().find(|loading| is_selected(loading)) else {
            return;
        };
        let taken = loading.image.take();
        let (part, number) = (loading.part.clone(), loading.number);
        let line = loading.line.clone();
        drop(state);
        match taken {
            // Another thread completes it.
            None => std::thread::sleep(PAUSE),
            Some(image) => {
                complete(image, &part, line);
                let mut state = self::state();
                state.loading.retain(|loading| loading.number != number);
                state.table.add(part);
            }
        }
    }
}

/// Finishes all loads that overlap a range of addresses.
pub(crate) fn finish_between(start: usize, end: usize) {
    if has_loads() {
        finish(|loading| loading.part.start < end && start < loading.part.end);
    }
}

/// Cancels the load of exactly this range and unmaps it, because the program no longer needs it.
/// Returns false if there is no such load.
pub(crate) fn abandon(start: usize, end: usize) -> bool {
    let mut state = state();
    let is_it = |loading: &Loading| (loading.part.start, loading.part.end) == (start, end);
    let Some(at) =
        state.loading.iter().position(|loading| is_it(loading) && loading.image.is_some())
    else {
        return false;
    };
    let Loading { image, line, .. } = state.loading.remove(at);
    drop(state);
    if let Some(image) = image {
        line.of_image(&image).write();
        drop(image);
    }
    true
}

/// Waits until an image is complete, then releases its memory to the process, trimmed to the
/// requested range.
pub(crate) fn complete(image: Image, part: &Part, line: Line) {
    let _ = image.wait();
    line.of_image(&image).write();
    match image.into_mapping() {
        Ok(mapping) => trim(mapping, part),
        // Some bytes cannot be read. Accessing them raises a signal, as in a file mapping. Keep the
        // rest of the load, because without it they would read as zeros.
        Err((image, _)) => std::mem::forget(image),
    }
}

fn trim(mapping: Mapping, part: &Part) {
    let (begin, end) = (mapping.address as usize, mapping.address as usize + mapping.bytes);
    let before = part.start.saturating_sub(begin);
    let after = end.saturating_sub(part.end);
    // SAFETY: memory before and after the part was never passed to the program.
    unsafe {
        if before > 0 {
            real::munmap(begin as *mut _, before);
        }
        if after > 0 {
            real::munmap(part.end as *mut _, after);
        }
    }
}

/// Opens the file of a part, if it is still the loaded version.
pub(crate) fn open(origin: &Arc<Origin>) -> Option<std::os::fd::OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(&origin.path, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    (crate::settings::version(&stat) == origin.version).then_some(file)
}

/// Returns true if closing a descriptor could break a load: if it has a type that loads use, or
/// refers to a file being loaded. The descriptor that the program mapped is excluded, because
/// programs usually close it.
pub(crate) fn may_belong_to_load(fd: c_int) -> bool {
    let Ok(name) = std::fs::read_link(format!("/proc/self/fd/{fd}")) else { return false };
    let kinds = ["anon_inode:[userfaultfd]", "anon_inode:[io_uring]", "anon_inode:[eventfd]"];
    if kinds.iter().any(|kind| name.as_os_str() == *kind) {
        return true;
    }
    let is_loaded = |loading: &Loading| loading.part.origin.path == name && loading.fd != fd;
    state().loading.iter().any(is_loaded)
}
