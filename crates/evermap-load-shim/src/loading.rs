//! The images of this process, and what becomes of them.
//!
//! As soon as an image is complete, its memory is given to the process for good, trimmed to what the program asked for: private memory like any other, which
//! the program unmaps, moves and protects without us. What stays here is which file it shows (`Table`), for the few calls that mean something
//! else for memory of a file. Before that it is a `Loading`, with threads and descriptors of its own, and every call that would change what is
//! mapped there has it finish first.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use evermap_load::{Image, Mapping};

use crate::inside::within;
use crate::lock::{Held, Lock};
use crate::real;
use crate::report::{self, Line};
use crate::table::{Origin, Part, Table};

/// How often it is looked whether a load is over: at first, and when it takes long.
const PERIOD_MIN: Duration = Duration::from_millis(1);
const PERIOD_MAX: Duration = Duration::from_millis(100);
/// How long somebody who needs an image sleeps while another thread completes it.
const PAUSE: Duration = Duration::from_micros(100);

/// An image that may not be complete.
pub(crate) struct Loading {
    /// What the program was given.
    pub(crate) part: Part,
    /// What it was mapped by.
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
/// Loads under way, and ranges of addresses in all. For a look without the lock.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
static RANGES: AtomicUsize = AtomicUsize::new(0);
/// Between these addresses all images have been.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// The state, for a look or a change.
pub(crate) fn state() -> Changing {
    Changing { held: STATE.lock() }
}

pub(crate) struct Changing {
    held: Held<'static, State>,
}

impl std::ops::Deref for Changing {
    type Target = State;

    fn deref(&self) -> &State {
        &self.held
    }
}

impl std::ops::DerefMut for Changing {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.held
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        UNDER_WAY.store(self.loading.len(), Ordering::Release);
        RANGES.store(self.loading.len() + self.table.len(), Ordering::Release);
    }
}

/// The lock alone, for forks.
pub(crate) fn lock() -> &'static Lock<State> {
    &STATE
}

/// Whether some addresses may be an image's. Costs three loads.
pub(crate) fn may_have(start: usize, bytes: usize) -> bool {
    RANGES.load(Ordering::Acquire) > 0
        && start < HIGHEST.load(Ordering::Acquire)
        && start.saturating_add(bytes) > LOWEST.load(Ordering::Acquire)
}

/// Whether images are being loaded.
pub(crate) fn are_any() -> bool {
    UNDER_WAY.load(Ordering::Acquire) > 0
}

fn note(part: &Part) {
    LOWEST.fetch_min(part.start, Ordering::AcqRel);
    HIGHEST.fetch_max(part.end, Ordering::AcqRel);
}

/// Adds a range that is complete.
pub(crate) fn add(part: Part) {
    note(&part);
    state().table.add(part);
}

/// Has an image load by itself, and a thread see to its end. Without that thread it is waited for.
pub(crate) fn begin(part: Part, fd: c_int, image: Image, line: Line) {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    note(&part);
    state().loading.push(Loading { part, fd, image: Some(image), line, number });
    let builder = std::thread::Builder::new().name("evermap-shim".into()).stack_size(128 << 10);
    let started = without_signals(|| builder.spawn(move || see_to(number)));
    if started.is_err() {
        finish(|loading| loading.number == number);
    }
}

/// Starts a thread that gets no signals: handlers are the program's, and know nothing of it.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: sets of signals are plain memory, filled before they are read; the mask is this thread's.
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

/// A load's thread: gives its memory away when all is there.
fn see_to(number: u64) {
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

/// Has some loads finish, and waits for that.
pub(crate) fn finish(is_meant: impl Fn(&Loading) -> bool) {
    loop {
        let mut state = state();
        let Some(loading) = state.loading.iter_mut().find(|loading| is_meant(loading)) else {
            return;
        };
        let taken = loading.image.take();
        let (part, number) = (loading.part.clone(), loading.number);
        let line = loading.line.clone();
        drop(state);
        match taken {
            // Another thread is at it.
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

/// The same for all that have something of a range of addresses.
pub(crate) fn finish_between(start: usize, end: usize) {
    if are_any() {
        finish(|loading| loading.part.start < end && start < loading.part.end);
    }
}

/// Ends the load of exactly this range, and unmaps it: the program has no use for it any more. Says whether there was one.
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
        report::tell(line.of_image(&image));
        drop(image);
    }
    true
}

/// Waits until an image is complete and gives its memory to the process: what the program was given of it, and no more.
pub(crate) fn complete(image: Image, part: &Part, line: Line) {
    let _ = image.wait();
    report::tell(line.of_image(&image));
    match image.into_mapping() {
        Ok(mapping) => trim(mapping, part),
        // Some of it cannot be read: looking at that raises a signal, as it does where a file is mapped. Without what is left of the
        // load it would be zeros.
        Err((image, _)) => std::mem::forget(image),
    }
}

fn trim(mapping: Mapping, part: &Part) {
    let (begin, end) = (mapping.address as usize, mapping.address as usize + mapping.bytes);
    let before = part.start.saturating_sub(begin);
    let after = end.saturating_sub(part.end);
    // SAFETY: what is before and behind the part was never given to anybody.
    unsafe {
        if before > 0 {
            real::munmap(begin as *mut _, before);
        }
        if after > 0 {
            real::munmap(part.end as *mut _, after);
        }
    }
}

/// The file of a part, if it is still what was loaded.
pub(crate) fn open(origin: &Arc<Origin>) -> Option<std::os::fd::OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(&origin.path, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    (crate::settings::version(&stat) == origin.version).then_some(file)
}

/// Whether closing a descriptor could be the end of a load: one of a kind that loads have, or of a file that is being loaded, and not the one that the program
/// mapped it by, which it closes as a rule.
pub(crate) fn may_be_of_a_load(fd: c_int) -> bool {
    let Ok(name) = std::fs::read_link(format!("/proc/self/fd/{fd}")) else { return false };
    let kinds = ["anon_inode:[userfaultfd]", "anon_inode:[io_uring]", "anon_inode:[eventfd]"];
    if kinds.iter().any(|kind| name.as_os_str() == *kind) {
        return true;
    }
    let is_loaded = |loading: &Loading| loading.part.origin.path == name && loading.fd != fd;
    state().loading.iter().any(is_loaded)
}
