//! Detects forked children of this process, and runs handlers around a fork.
//!
//! [`is_child`] reads a page that the kernel clears in every child that gets a copy of the memory.
//! So it also detects a child of a bare `clone`, which runs no handlers. [`Participant`]s are
//! called around `fork`. Descriptors registered with [`close_in_children`] hold locks of the
//! parent: the child replaces them, so a dead parent's locks are free while its child lives.
//!
//! Invariant: the handlers take no lock that user code can hold. Each wait has a limit; a fork that
//! cannot wait longer leaves memory out of the child, but never gives it wrong memory.

use std::cell::{Cell, UnsafeCell};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::mm::{self, Advice, MapFlags, ProtFlags};
use tracing::debug;

use crate::error::{Error, Result};

/// Maximum wait of a fork for a lock that another thread holds. Such locks are held for one or two
/// system calls.
pub(crate) const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);

/// Takes part in forks. All three methods are called in the thread that forks.
pub(crate) trait Participant: Send + Sync {
    /// Prepares what the child inherits.
    fn before(&self);
    /// Reverts changes made only for the child.
    fn in_parent(&self);
    /// Makes the inherited state the child's own. No other thread runs.
    fn in_child(&self);
}

/// One byte that is 1 in the process that called [`watch`] first, and 0 in its children.
static MARK: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
/// Process that called [`watch`] first, for kernels without such pages.
static PROCESS: AtomicU32 = AtomicU32::new(0);

static PARTICIPANTS: Mutex<Vec<(u64, Arc<dyn Participant>)>> = Mutex::new(Vec::new());
static DESCRIPTORS: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

type Participants = MutexGuard<'static, Vec<(u64, Arc<dyn Participant>)>>;
type Descriptors = MutexGuard<'static, Vec<RawFd>>;

/// Locks that the forking thread holds from before the fork until after it.
struct HeldAround(UnsafeCell<Option<(Participants, Descriptors)>>);

// SAFETY: only the thread that holds `PARTICIPANTS` accesses the value, see `before` and `after`.
unsafe impl Sync for HeldAround {}

static HELD: HeldAround = HeldAround(UnsafeCell::new(None));

thread_local! {
    /// True while this thread is between `before` and `after` and has its locks in [`HELD`].
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

/// This process is a child and has released its parent's locks.
static LOCKS_RELEASED: AtomicBool = AtomicBool::new(false);

/// Installs the fork handlers. Must be called before anything is locked or mapped.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        match wiped_page() {
            Some(page) => MARK.store(page, Ordering::Release),
            None => PROCESS.store(std::process::id(), Ordering::Relaxed),
        }
        // SAFETY: the handlers are functions of this library and do not unwind. If the call fails,
        // children have no session memory and keep locks until they end.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

/// Maps a page whose first byte is 1 here and 0 in every child.
fn wiped_page() -> Option<*mut u8> {
    const BYTES: usize = 4096;
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
    let page =
        unsafe { mm::mmap_anonymous(std::ptr::null_mut(), BYTES, rights, MapFlags::PRIVATE).ok()? };
    // SAFETY: the page was mapped just above, and no other code knows its address.
    unsafe {
        if mm::madvise(page, BYTES, Advice::LinuxWipeOnFork).is_err() {
            let _ = mm::munmap(page, BYTES);
            return None;
        }
        page.cast::<u8>().write_volatile(1);
    }
    Some(page.cast())
}

/// Returns true if this process is a child of the one that used the library first. Costs a load.
pub(crate) fn is_child() -> bool {
    let mark = MARK.load(Ordering::Acquire);
    if mark.is_null() {
        let first = PROCESS.load(Ordering::Relaxed);
        return first != 0 && first != std::process::id();
    }
    // SAFETY: the page stays mapped, and is written only before its address is stored.
    unsafe { mark.read_volatile() == 0 }
}

/// Returns an error in a child.
pub(crate) fn refuse_in_child(what: impl FnOnce() -> String) -> Result<()> {
    if !is_child() {
        return Ok(());
    }
    release_locks_late();
    Err(Error::Forked { what: what() })
}

/// Registration of a participant. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Participation(u64);

/// Registers a participant for all later forks.
pub(crate) fn register(participant: Arc<dyn Participant>) -> Participation {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    watch();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    if !is_child() {
        lock(&PARTICIPANTS).push((number, participant));
    }
    Participation(number)
}

impl Drop for Participation {
    fn drop(&mut self) {
        // In a child whose handlers did not run, another thread may have locked the list.
        let list = match is_child() {
            true => PARTICIPANTS.try_lock().ok(),
            false => Some(lock(&PARTICIPANTS)),
        };
        let Some(mut list) = list else { return };
        let at = list.iter().position(|(number, _)| *number == self.0);
        let gone = at.map(|at| list.swap_remove(at));
        drop(list);
        drop(gone);
    }
}

/// Registers a descriptor whose locks belong to the parent alone.
pub(crate) fn close_in_children(descriptor: RawFd) {
    if !is_child() {
        lock(&DESCRIPTORS).push(descriptor);
    }
}

/// Undoes [`close_in_children`]. Must be called before the descriptor is closed.
pub(crate) fn keep_in_children(descriptor: RawFd) {
    if !is_child() {
        let mut list = lock(&DESCRIPTORS);
        if let Some(at) = list.iter().position(|known| *known == descriptor) {
            list.swap_remove(at);
        }
    }
}

fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a mutex within [`LOCK_WAIT_MAX`].
pub(crate) fn lock_for_fork<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    hold_for_fork(|| match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    })
}

/// Like [`lock_for_fork`], for a lock that `try_hold` takes. `try_hold` returns `None` while
/// another thread holds the lock.
pub(crate) fn hold_for_fork<G>(mut try_hold: impl FnMut() -> Option<G>) -> Option<G> {
    let since = Instant::now();
    loop {
        match try_hold() {
            Some(held) => return Some(held),
            None if since.elapsed() > LOCK_WAIT_MAX => return None,
            None => std::thread::yield_now(),
        }
    }
}

extern "C" fn before() {
    // A child's own children inherit its memory and descriptors unchanged.
    if is_child() {
        return;
    }
    let Some(participants) = lock_for_fork(&PARTICIPANTS) else { return };
    for (_, participant) in &*participants {
        participant.before();
    }
    match lock_for_fork(&DESCRIPTORS) {
        Some(descriptors) if HOLDS.try_with(|holds| holds.set(true)).is_ok() => {
            // SAFETY: `PARTICIPANTS` is held, so no other thread accesses the value.
            unsafe { *HELD.0.get() = Some((participants, descriptors)) };
        }
        _ => participants.iter().for_each(|(_, participant)| participant.in_parent()),
    }
}

extern "C" fn in_parent() {
    after(|descriptors, participants| {
        drop(descriptors);
        participants.iter().for_each(|(_, participant)| participant.in_parent());
    });
}

extern "C" fn in_child() {
    after(|descriptors, participants| {
        LOCKS_RELEASED.store(true, Ordering::Relaxed);
        release_locks(&descriptors);
        participants.iter().for_each(|(_, participant)| participant.in_child());
    });
}

fn after(act: impl FnOnce(Descriptors, &Participants)) {
    if !HOLDS.try_with(|holds| holds.replace(false)).unwrap_or(false) {
        return;
    }
    // SAFETY: this thread stored its locks there and still holds them, so no other thread accesses
    // the value.
    let held = unsafe { (*HELD.0.get()).take() };
    if let Some((participants, descriptors)) = held {
        act(descriptors, &participants);
    }
}

/// Releases the parent's locks in a child whose handlers did not run.
fn release_locks_late() {
    if LOCKS_RELEASED.swap(true, Ordering::Relaxed) || !has_own_descriptors() {
        return;
    }
    if let Ok(descriptors) = DESCRIPTORS.try_lock() {
        release_locks(&descriptors);
    }
}

/// Returns false if the parent may share this process's descriptor table: closing a descriptor here
/// would close it there.
fn has_own_descriptors() -> bool {
    const KCMP_FILES: libc::c_int = 2;
    // SAFETY: the calls take numbers and touch no memory.
    unsafe {
        let (own, parent) = (libc::getpid(), libc::getppid());
        libc::syscall(libc::SYS_kcmp, own, parent, KCMP_FILES, 0, 0) > 0
    }
}

/// Replaces descriptors with one that holds no locks. Their numbers stay taken, because values that
/// will close them still exist.
fn release_locks(descriptors: &[RawFd]) {
    // SAFETY: the call takes two numbers.
    let neutral = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    // SAFETY: the kernel has just given us this descriptor.
    let neutral = (neutral >= 0).then(|| unsafe { OwnedFd::from_raw_fd(neutral) });
    for &descriptor in descriptors {
        // SAFETY: the descriptors belong to the library, and the child refuses all calls that would
        // use them. If no replacement is available (no memory), the descriptor is closed.
        unsafe {
            match &neutral {
                Some(neutral) => {
                    libc::dup3(neutral.as_raw_fd(), descriptor, libc::O_CLOEXEC);
                }
                None => {
                    libc::close(descriptor);
                }
            }
        }
    }
    if descriptors.is_empty() {
        return;
    }
    debug!(count = descriptors.len(), "a forked child let its parent's locks go");
}
