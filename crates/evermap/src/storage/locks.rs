//! Locks of one file: which open file description holds each one, and which processes inherit it.
//!
//! A lock lives as long as its open file description: as long as any process has a descriptor or a
//! mapping of it. Children inherit both. So there are three kinds:
//!
//! - **Ordinary** locks are released explicitly, for all processes that share the description. A
//!   forked child closes its descriptor. If children inherit a file's memory, its ordinary locks
//!   are held through a separate description, which is never mapped.
//! - **Exclusive to this process** (a writer's lock): held by a mapping that no child inherits and
//!   for which no descriptor is open. It ends when this process unmaps it or dies, however its
//!   children were created. On file systems where a mapping does not hold locks, a descriptor that
//!   forked children close holds it.
//! - **Left to children** (a snapshot's lock): never released explicitly. It ends when the last
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

/// No lock was taken yet.
const NONE: u8 = 0;
const ORDINARY: u8 = 1;
const LEFT_TO_CHILDREN: u8 = 2;

#[derive(Debug, Default)]
pub(super) struct Locks {
    /// State of the locks held through the file's own description.
    own: AtomicU8,
    extra: Mutex<ExtraDescriptions>,
}

/// Descriptions in addition to the file's own.
#[derive(Debug, Default)]
struct ExtraDescriptions {
    process: Option<ProcessLock>,
    /// Holds the ordinary locks of a file that also has a process lock.
    ordinary: Option<OwnedFd>,
}

/// A description that holds a lock and is not used otherwise.
#[derive(Debug)]
enum ProcessLock {
    /// Held by a mapped page that children do not inherit.
    Page(usize),
    /// Used where a mapping does not keep the open file; a forked child closes it.
    Descriptor(OwnedFd),
}

const PAGE: usize = crate::format::PAGE_BYTES as usize;

impl Locks {
    fn extra(&self) -> MutexGuard<'_, ExtraDescriptions> {
        self.extra.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries an ordinary lock. Returns false while another holder has it.
    pub(super) fn try_lock(
        &self,
        own: &OwnedFd,
        reopen: impl FnOnce() -> crate::error::Result<OwnedFd>,
        kind: LockKind,
        offset: u64,
        length: u64,
    ) -> io::Result<bool> {
        let mut extra = self.extra();
        if extra.process.is_some() && extra.ordinary.is_none() {
            // Without a separate description, a child that outlives this process can keep the lock.
            extra.ordinary = reopen().ok();
            if let Some(ordinary) = &extra.ordinary {
                at_fork::close_in_children(ordinary.as_raw_fd());
            }
        }
        if let Some(ordinary) = &extra.ordinary {
            return try_lock_on(ordinary, kind, offset, length);
        }
        drop(extra);
        let order = Ordering::Relaxed;
        if self.own.compare_exchange(NONE, ORDINARY, order, order).is_ok() {
            at_fork::close_in_children(own.as_raw_fd());
        }
        try_lock_on(own, kind, offset, length)
    }

    /// Locks one byte exclusively through `description`, which has no other use, for as long as
    /// this value and this process live.
    pub(super) fn try_lock_for_good(&self, description: OwnedFd, offset: u64) -> io::Result<bool> {
        if !try_lock_on(&description, LockKind::Exclusive, offset, 1)? {
            return Ok(false);
        }
        let held = match page_of(&description) {
            Some(page) => ProcessLock::Page(page),
            None => {
                at_fork::close_in_children(description.as_raw_fd());
                ProcessLock::Descriptor(description)
            }
        };
        self.extra().process = Some(held);
        Ok(true)
    }

    /// From now on, the file's own locks end with its last mapping and descriptor in any process.
    pub(super) fn leave_to_children(&self, own: &OwnedFd) {
        if self.own.swap(LEFT_TO_CHILDREN, Ordering::Relaxed) == ORDINARY {
            at_fork::keep_in_children(own.as_raw_fd());
        }
    }

    /// Releases an ordinary lock.
    pub(super) fn unlock(&self, own: &OwnedFd, offset: u64, length: u64) -> io::Result<()> {
        if at_fork::is_child() {
            return Ok(());
        }
        let extra = self.extra();
        let descriptor = extra.ordinary.as_ref().unwrap_or(own);
        lock_call(descriptor, libc::F_OFD_SETLK, libc::F_UNLCK, offset, length).map(|_| ())
    }

    /// Moves the locks to another descriptor of the same description. This value holds none
    /// afterwards.
    pub(super) fn moved_to(&self, from: &OwnedFd, to: &OwnedFd) -> Locks {
        let own = self.own.swap(NONE, Ordering::Relaxed);
        if own == ORDINARY {
            at_fork::keep_in_children(from.as_raw_fd());
            at_fork::close_in_children(to.as_raw_fd());
        }
        let extra = Mutex::new(std::mem::take(&mut *self.extra()));
        Locks { own: AtomicU8::new(own), extra }
    }

    /// Called before the file is closed. While another thread starts a process, that process has a
    /// copy of each descriptor until it executes its program, so ordinary locks are released
    /// explicitly.
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
        let extra = self.extra.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(ordinary) = extra.ordinary.take() {
            unlock(&ordinary);
        }
        match extra.process.take() {
            Some(ProcessLock::Descriptor(descriptor)) => unlock(&descriptor),
            // In a child this address is unmapped, or other memory is there.
            Some(ProcessLock::Page(page)) if !child => {
                // SAFETY: `page_of` mapped the page for this value alone.
                let _ = unsafe { mm::munmap(page as *mut c_void, PAGE) };
            }
            _ => {}
        }
    }
}

/// Maps one inaccessible page of a file, which keeps the open file while this process lives and
/// maps it. Returns `None` on file systems where a mapping does not, such as overlayfs, which maps
/// another file in its place.
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
    // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
    let page = unsafe {
        let nowhere = std::ptr::null_mut();
        mm::mmap(nowhere, PAGE, ProtFlags::empty(), MapFlags::PRIVATE, descriptor, 0).ok()?
    };
    // SAFETY: the page was mapped just above, and no other code knows its address.
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

/// Makes one open-file-description lock call. rustix wraps only the per-process locks.
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
