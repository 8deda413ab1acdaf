//! The locks of one file: which open file description holds which, and who inherits it.
//!
//! A lock lives as long as its description: as a descriptor of any process has it, or a mapping in
//! any process. Children inherit both. So there are three kinds:
//!
//! - **Ordinary** locks are given up by name, for all who share the description. A forked child lets
//!   its descriptor go. A file whose memory children inherit holds them through a description of
//!   their own, which is never mapped.
//! - **For good** (a writer's lock): held by a mapping that no child inherits and no descriptor has.
//!   It ends when this process unmaps it or dies, however its children were made.
//! - **Left to children** (what a snapshot holds): never given up by name. It ends when the last
//!   process has unmapped and closed the file.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use super::LockKind;
use crate::at_fork;

/// Nothing was locked yet.
const NONE: u8 = 0;
const ORDINARY: u8 = 1;
const LEFT_TO_CHILDREN: u8 = 2;

#[derive(Debug, Default)]
pub(super) struct Locks {
    /// What the file's own description holds.
    own: AtomicU8,
    beside: Mutex<Beside>,
}

/// Descriptions beside the file's own.
#[derive(Debug, Default)]
struct Beside {
    for_good: Option<ForGood>,
    /// Ordinary locks of a file that has one for good.
    apart: Option<OwnedFd>,
}

/// A description with a lock, and the file no other use of it.
#[derive(Debug)]
enum ForGood {
    /// Held by a page of addresses that children do not inherit.
    Page(usize),
    /// Where a mapping does not keep the open file: a forked child lets it go.
    Descriptor(OwnedFd),
}

const PAGE: usize = crate::format::PAGE_BYTES as usize;

impl Locks {
    fn beside(&self) -> MutexGuard<'_, Beside> {
        self.beside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries an ordinary lock; false while somebody else holds it.
    pub(super) fn try_lock(
        &self,
        own: &OwnedFd,
        reopen: impl FnOnce() -> crate::error::Result<OwnedFd>,
        kind: LockKind,
        offset: u64,
        length: u64,
    ) -> io::Result<bool> {
        let mut beside = self.beside();
        if beside.for_good.is_some() && beside.apart.is_none() {
            // Without one, a child that outlives this process can keep the lock.
            beside.apart = reopen().ok();
            if let Some(apart) = &beside.apart {
                at_fork::close_in_children(apart.as_raw_fd());
            }
        }
        if let Some(apart) = &beside.apart {
            return try_lock_on(apart, kind, offset, length);
        }
        drop(beside);
        let order = Ordering::Relaxed;
        if self.own.compare_exchange(NONE, ORDINARY, order, order).is_ok() {
            at_fork::close_in_children(own.as_raw_fd());
        }
        try_lock_on(own, kind, offset, length)
    }

    /// Locks one byte exclusively through `description`, which nothing else uses, for as long as
    /// this value and this process live.
    pub(super) fn try_lock_for_good(&self, description: OwnedFd, offset: u64) -> io::Result<bool> {
        if !try_lock_on(&description, LockKind::Exclusive, offset, 1)? {
            return Ok(false);
        }
        let held = match page_of(&description) {
            Some(page) => ForGood::Page(page),
            None => {
                at_fork::close_in_children(description.as_raw_fd());
                ForGood::Descriptor(description)
            }
        };
        self.beside().for_good = Some(held);
        Ok(true)
    }

    /// From now on the file's own locks end with its last mapping and descriptor, in any process.
    pub(super) fn leave_to_children(&self, own: &OwnedFd) {
        if self.own.swap(LEFT_TO_CHILDREN, Ordering::Relaxed) == ORDINARY {
            at_fork::keep_in_children(own.as_raw_fd());
        }
    }

    /// Gives an ordinary lock up.
    pub(super) fn unlock(&self, own: &OwnedFd, offset: u64, length: u64) -> io::Result<()> {
        if at_fork::is_child() {
            return Ok(());
        }
        let beside = self.beside();
        let descriptor = beside.apart.as_ref().unwrap_or(own);
        lock_call(descriptor, libc::F_OFD_SETLK, libc::F_UNLCK, offset, length).map(|_| ())
    }

    /// The same locks for another descriptor of the same description. What is left here holds none.
    pub(super) fn moved_to(&self, from: &OwnedFd, to: &OwnedFd) -> Locks {
        let own = self.own.swap(NONE, Ordering::Relaxed);
        if own == ORDINARY {
            at_fork::keep_in_children(from.as_raw_fd());
            at_fork::close_in_children(to.as_raw_fd());
        }
        let beside = Mutex::new(std::mem::take(&mut *self.beside()));
        Locks { own: AtomicU8::new(own), beside }
    }

    /// The file is about to be closed. A process that another thread is just starting has a copy of
    /// each descriptor until it executes its program: ordinary locks are given up by name.
    pub(super) fn end(&mut self, own: &OwnedFd) {
        let child = at_fork::is_child();
        let unlock = |descriptor: &OwnedFd| {
            if !child {
                let _ = lock_call(descriptor, libc::F_OFD_SETLK, libc::F_UNLCK, 0, 0);
                at_fork::keep_in_children(descriptor.as_raw_fd());
            }
        };
        if *self.own.get_mut() == ORDINARY {
            unlock(own);
        }
        let beside = self.beside.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(apart) = beside.apart.take() {
            unlock(&apart);
        }
        match beside.for_good.take() {
            Some(ForGood::Descriptor(descriptor)) => unlock(&descriptor),
            // In a child there is nothing at this address, or something else by now.
            Some(ForGood::Page(page)) if !child => {
                // SAFETY: the page was mapped by `page_of`, for this value alone.
                let _ = unsafe { mm::munmap(page as *mut c_void, PAGE) };
            }
            _ => {}
        }
    }
}

/// Maps one inaccessible page of a file, which holds the open file while this process lives and maps
/// it. `None` where mappings do not hold it, as on overlayfs, which maps another file in its place.
fn page_of(descriptor: &OwnedFd) -> Option<usize> {
    const EXT4: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    const BTRFS: u64 = 0x9123_683e;
    const TMPFS: u64 = 0x0102_1994;
    const F2FS: u64 = 0xf2f5_2010;
    let kind = fs::fstatfs(descriptor).ok()?.f_type as u64;
    if ![EXT4, XFS, BTRFS, TMPFS, F2FS].contains(&kind) {
        return None;
    }
    // SAFETY: a new mapping at a place of the kernel's choice replaces nothing.
    let page = unsafe {
        let nowhere = std::ptr::null_mut();
        mm::mmap(nowhere, PAGE, ProtFlags::empty(), MapFlags::PRIVATE, descriptor, 0).ok()?
    };
    // SAFETY: the page was mapped just above, and nobody else knows of it.
    unsafe {
        if mm::madvise(page, PAGE, Advice::LinuxDontFork).is_err() {
            let _ = mm::munmap(page, PAGE);
            return None;
        }
    }
    Some(page as usize)
}

fn try_lock_on(descriptor: &OwnedFd, kind: LockKind, offset: u64, length: u64) -> io::Result<bool> {
    let kind = match kind {
        LockKind::Shared => libc::F_RDLCK,
        LockKind::Exclusive => libc::F_WRLCK,
    };
    match lock_call(descriptor, libc::F_OFD_SETLK, kind, offset, length) {
        Ok(_) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// One open-file-description lock call. rustix wraps the per-process locks only.
pub(super) fn lock_call(
    descriptor: &OwnedFd,
    command: libc::c_int,
    kind: libc::c_int,
    offset: u64,
    length: u64,
) -> io::Result<libc::flock> {
    let mut lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: offset as libc::off_t,
        l_len: length as libc::off_t,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open and `lock` is a valid `flock` that the call reads and, for a
    // query, writes.
    let result = unsafe { libc::fcntl(descriptor.as_raw_fd(), command, &mut lock) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(lock) }
}
