//! Mappings inside the arenas of a store.
//!
//! Invariant: the address ranges of live [`Mapping`]s are disjoint and lie inside reservations of
//! their [`AddressSpace`]; the rest of a reservation is inaccessible memory that costs nothing.
//! `MAP_FIXED` is used only over ranges that the space owns, so it never replaces other mappings.
//! The exception is a *lent* space: a part of a guest's linear memory, whose owner keeps it mapped
//! and gets it back as ordinary memory.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::mm::{self, Advice, MapFlags, MprotectFlags, ProtFlags};

use super::Key;
use super::reservation::{ARENAS_CHANGED, Reservation, lock, pointer, taken};
use crate::at_fork;
use crate::error::{Error, Result};
use crate::storage::File;

/// Content of the parts of an address space that have no mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vacancy {
    /// Inaccessible memory.
    Hole,
    /// Zeros that may be written, like any memory.
    Zeros,
}

/// Arenas of an open store.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    owner: String,
    vacancy: Vacancy,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    reservations: Vec<Reservation>,
    /// Ranges of live mappings.
    mapped: Vec<Claimed>,
}

#[derive(Clone, Copy, Debug)]
struct Claimed {
    base: u64,
    end: u64,
    /// The range is not mapped any more; the claim is about to end.
    cleared: bool,
}

impl AddressSpace {
    /// Creates a space without arenas. `owner` is the store's name in messages.
    pub(crate) fn new(owner: &str) -> Arc<AddressSpace> {
        let (owner, vacancy) = (owner.to_string(), Vacancy::Hole);
        Arc::new(AddressSpace { owner, vacancy, state: Mutex::default() })
    }

    /// Creates a space from addresses that their owner keeps mapped and lends.
    ///
    /// # Safety
    /// The range is mapped, private and anonymous, and stays its owner's for as long as the space
    /// and its mappings live. It may be mapped over: no Rust reference into it exists.
    pub(crate) unsafe fn lent(
        owner: &str,
        base: u64,
        length: u64,
        vacancy: Vacancy,
    ) -> Arc<AddressSpace> {
        let reservations = vec![Reservation::lent(base, length)];
        let state = Mutex::new(State { reservations, mapped: Vec::new() });
        Arc::new(AddressSpace { owner: owner.to_string(), vacancy, state })
    }

    /// Reserves an arena as one inaccessible mapping. Reserving a range that the space already has
    /// is not an error.
    pub(crate) fn reserve(&self, base: u64, length: u64) -> Result<()> {
        let mut state = lock(&self.state);
        if state.reservations.iter().any(|r| r.base == base && r.length >= length) {
            return Ok(());
        }
        state.reservations.push(Reservation::new(&self.owner, base, length)?);
        Ok(())
    }

    /// Returns the arenas as (first, end).
    pub(crate) fn arenas(&self) -> Vec<(u64, u64)> {
        let state = lock(&self.state);
        state.reservations.iter().map(|r| (r.base, r.base + r.length)).collect()
    }

    /// Claims `base..base + length` for one owner. Nothing is mapped there yet.
    pub(crate) fn claim(self: &Arc<Self>, base: u64, length: u64) -> Result<Mapping> {
        // A later mapping replaces a hole that the table of mappings does not list.
        ARENAS_CHANGED.fetch_add(1, Ordering::AcqRel);
        let mut state = lock(&self.state);
        let Some(end) = base.checked_add(length) else {
            return Err(taken(&self.owner, base, 0));
        };
        let inside = state.reservations.iter().any(|r| base >= r.base && end <= r.base + r.length);
        if !inside {
            return Err(Error::AddressTaken {
                what: self.owner.clone(),
                base,
                end,
                by: "no arena of the store".to_string(),
                remedy: "the object belongs to another store; import it there",
            });
        }
        if state.mapped.iter().any(|c| c.base < end && c.end > base) {
            return Err(Error::AddressTaken {
                what: self.owner.clone(),
                base,
                end,
                by: "another object that this process has open".to_string(),
                remedy: "close that object first",
            });
        }
        state.mapped.push(Claimed { base, end, cleared: false });
        let (key, inherited) = (OnceLock::new(), AtomicBool::new(true));
        Ok(Mapping { space: Arc::clone(self), base, length, key, inherited })
    }

    /// Clears many mappings with as few system calls as possible: unclaimed memory between two of
    /// them is cleared with them. The mappings may only be dropped afterwards. Clearing ten
    /// mappings one by one took four times as long.
    pub(crate) fn clear_all<'a>(&self, mappings: impl Iterator<Item = &'a Mapping>) {
        // In a child the state may be locked for ever, so each mapping is cleared when it is
        // dropped.
        if at_fork::is_child() {
            return;
        }
        let mut state = lock(&self.state);
        let ours = mappings.filter(|m| std::ptr::eq(Arc::as_ptr(&m.space), self));
        let mut bases: Vec<u64> = ours.map(|m| m.base).collect();
        bases.sort_unstable();
        state.mapped.sort_unstable_by_key(|claimed| claimed.base);
        let goes = |claimed: &Claimed| bases.binary_search(&claimed.base).is_ok();
        for run in state.mapped.chunk_by_mut(|one, next| goes(one) == goes(next)) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let (base, end) = (first.base, last.end);
            // Mappings that could not be cleared try again when they are dropped.
            if goes(first) && self.vacate(pointer(base), end - base).is_ok() {
                run.iter_mut().for_each(|claimed| claimed.cleared = true);
            }
        }
    }

    /// Puts the space's vacancy content over a range that its claims own, or that is unclaimed.
    fn vacate(&self, at: *mut c_void, length: u64) -> Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let rights = match self.vacancy {
            Vacancy::Hole => ProtFlags::empty(),
            Vacancy::Zeros => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: the range lies in the space, whose owner allows mapping over it; no other claim
        // covers it.
        unsafe { mm::mmap_anonymous(at, length as usize, rights, flags) }
            .map(|_| ())
            .map_err(|e| Error::Unsupported { why: format!("mmap failed: {e}") })
    }

    /// Returns true if a claim's range was cleared together with others.
    fn is_cleared(&self, base: u64) -> bool {
        lock(&self.state).mapped.iter().any(|claimed| claimed.base == base && claimed.cleared)
    }
}

/// Visibility of stores into a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Read-only.
    ReadOnly,
    /// Stores stay in this process until they are committed.
    PrivateWritable,
    /// Stores stay in this process and are never committed.
    PrivateCopy,
    /// Stores go to the file's page cache at once: for bytes that no commit refers to yet.
    SharedWritable,
}

/// Claimed range of addresses: one region of one object. Unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    space: Arc<AddressSpace>,
    base: u64,
    length: u64,
    /// Key of memory that is mapped writable from now on. Dropped after the range was cleared.
    key: OnceLock<Arc<Key>>,
    /// Children have the memory. A mapping for commits is left out of children unless `inherit` was
    /// called: their clean pages would show the parent's later commits.
    inherited: AtomicBool,
}

impl Mapping {
    /// First address.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Bytes of addresses.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    fn checked(&self, address: u64, length: u64) -> *mut c_void {
        assert!(
            address >= self.base
                && length <= self.length
                && address - self.base <= self.length - length,
            "a mapping is used only inside its own range"
        );
        pointer(address)
    }

    /// Maps `length` bytes of `file` from `file_offset` at `address`, and replaces what the mapping
    /// has there. Touches no page.
    pub(crate) fn map(
        &self,
        file: &dyn File,
        address: u64,
        length: u64,
        file_offset: u64,
        sharing: Sharing,
    ) -> Result<()> {
        if length == 0 {
            return Ok(());
        }
        let at = self.checked(address, length);
        let (protection, flags) = match sharing {
            Sharing::ReadOnly => (ProtFlags::READ, MapFlags::PRIVATE),
            Sharing::PrivateWritable | Sharing::PrivateCopy => {
                (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE)
            }
            Sharing::SharedWritable => (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED),
        };
        let flags = flags | MapFlags::FIXED;
        // SAFETY: the range belongs to this claim (asserted above). Only the owner of the claim
        // creates references into it, and it calls this while none exist.
        let mapped = unsafe {
            mm::mmap(at, length as usize, protection, flags, file.descriptor(), file_offset)
        };
        mapped.map_err(|e| Error::from_io(e.into(), "map", file.path()))?;
        if matches!(sharing, Sharing::PrivateWritable | Sharing::SharedWritable) {
            self.leave_out_of_children(address, length);
            if let Some(key) = self.key.get() {
                // SAFETY: the claim owns the range, which was mapped just above; its owner knows of
                // the key.
                unsafe { key.guard(address, length, true) }?;
            }
        }
        Ok(())
    }

    /// Leaves a range out of children that are created from now on.
    pub(crate) fn leave_out_of_children(&self, address: u64, length: u64) {
        self.inherited.store(false, Ordering::Relaxed);
        self.advise(address, length, Advice::LinuxDontFork);
    }

    /// Lets children that are created from now on inherit a range.
    pub(crate) fn inherit(&self, address: u64, length: u64) -> Result<()> {
        let at = self.checked(address, length);
        // SAFETY: the claim owns the range, and the advice changes nothing in this process.
        unsafe { mm::madvise(at, length as usize, Advice::LinuxDoFork) }
            .map_err(|e| Error::Unsupported { why: format!("madvise failed: {e}") })?;
        self.inherited.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Makes pages of a private mapping this process's own, without changing a byte. Other threads
    /// may store to them during the call.
    pub(crate) fn make_own(&self, address: u64, length: u64) -> Result<()> {
        let at = self.checked(address, length);
        // SAFETY: populating pages changes no contents.
        if unsafe { mm::madvise(at, length as usize, Advice::LinuxPopulateWrite) }.is_ok() {
            return Ok(());
        }
        // The kernel is older than 5.14, or memory is exhausted, which would raise a signal at the
        // next store.
        Err(Error::Unsupported { why: "pages could not be made private".to_string() })
    }

    /// Maps private writable zeros in place of a range.
    pub(crate) fn map_zeros(&self, address: u64, length: u64) -> Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the range belongs to this claim, as `checked` asserts, and its owner has no
        // references into it.
        unsafe { mm::mmap_anonymous(self.checked(address, length), length as usize, rights, flags) }
            .map(|_| ())
            .map_err(|e| Error::Unsupported { why: format!("mmap failed: {e}") })
    }

    /// Puts the first `length` bytes under a key, and memory that is mapped writable later. The
    /// bytes must be mapped, and writable if `writable` says so. An owner calls this once.
    pub(crate) fn set_protection_key(
        &self,
        key: &Arc<Key>,
        length: u64,
        writable: bool,
    ) -> Result<()> {
        self.checked(self.base, length);
        if self.key.set(Arc::clone(key)).is_err() {
            return Err(Error::Unsupported { why: "the memory has a key already".to_string() });
        }
        if length == 0 {
            return Ok(());
        }
        // SAFETY: the claim owns the range, as asserted, and it is mapped, as the caller says.
        unsafe { key.guard(self.base, length, writable) }
    }

    /// Advises the kernel that access will be random: without read-around, the page cache keeps
    /// small folios (a 4 KiB write into a 2 MiB folio costs ext4 40 us instead of 2).
    pub(crate) fn advise_random(&self, address: u64, length: u64) {
        self.advise(address, length, Advice::Random);
    }

    /// Advises the kernel to use huge pages for a range that is filled from its beginning. A file's
    /// page cache then gets folios of that size, each by one fault.
    pub(crate) fn advise_huge(&self, address: u64, length: u64) {
        self.advise(address, length, Advice::LinuxHugepage);
        self.advise(address, length, Advice::Sequential);
    }

    /// Populates pages for writing, in one call.
    pub(crate) fn populate(&self, address: u64, length: u64) {
        self.advise(address, length, Advice::LinuxPopulateWrite);
    }

    /// Drops this process's private copies: the next access shows the file's pages again.
    pub(crate) fn drop_private(&self, address: u64, length: u64) -> Result<()> {
        let at = self.checked(address, length);
        // SAFETY: the claim owns the range. Its owner gives up the private pages, and the file
        // shows through, whose bytes the owner has made equal or wants back.
        unsafe { mm::madvise(at, length as usize, Advice::LinuxDontNeed) }
            .map_err(|e| Error::Unsupported { why: format!("madvise failed: {e}") })
    }

    /// Makes a range read-only.
    pub(crate) fn protect_read_only(&self, address: u64, length: u64) -> Result<()> {
        self.protect(address, length, MprotectFlags::READ)
    }

    /// Makes a range that was mapped writable writable again.
    pub(crate) fn protect_writable(&self, address: u64, length: u64) -> Result<()> {
        self.protect(address, length, MprotectFlags::READ | MprotectFlags::WRITE)
    }

    fn protect(&self, address: u64, length: u64, rights: MprotectFlags) -> Result<()> {
        let at = self.checked(address, length);
        // SAFETY: the claim owns the range, and its owner decides how the mapping may be used.
        unsafe { mm::mprotect(at, length as usize, rights) }
            .map_err(|e| Error::Unsupported { why: format!("mprotect failed: {e}") })
    }

    /// Restores the space's vacancy content over a range.
    pub(crate) fn clear(&self, address: u64, length: u64) -> Result<()> {
        if length == 0 {
            return Ok(());
        }
        self.space.vacate(self.checked(address, length), length)
    }

    fn advise(&self, address: u64, length: u64, advice: Advice) {
        let at = self.checked(address, length);
        // SAFETY: the claim owns the range, and the advice changes no contents. A kernel that does
        // not support it returns an error, which is harmless.
        let _ = unsafe { mm::madvise(at, length as usize, advice) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if at_fork::is_child() {
            // The space may be locked by a thread that does not exist here. Memory that the child
            // did not inherit is not cleared either: the child may have mapped other memory there.
            std::mem::forget(self.key.take());
            if self.inherited.load(Ordering::Relaxed) {
                let _ = self.space.vacate(pointer(self.base), self.length);
            }
            return;
        }
        // If the kernel refuses (it ran out of map entries), the old pages stay mapped but unused:
        // this process never claims the range again.
        if self.space.is_cleared(self.base) || self.clear(self.base, self.length).is_ok() {
            let base = self.base;
            lock(&self.space.state).mapped.retain(|claimed| claimed.base != base);
        } else {
            // The pages keep the key, so it must not be given to another object.
            std::mem::forget(self.key.take());
        }
    }
}

/// Like [`Mapping::drop_private`], for many runs at once.
pub(crate) fn drop_private_runs(runs: &[(&Mapping, u64, u64)]) -> Result<()> {
    // SAFETY: the owners of the mappings give up the private pages of these runs, as for
    // `drop_private`.
    let done = unsafe { advise_runs(runs, libc::MADV_DONTNEED) };
    // Dropping a page twice is harmless.
    runs[done..]
        .iter()
        .try_for_each(|(mapping, address, length)| mapping.drop_private(*address, *length))
}

/// Like [`Mapping::populate`], for many runs at once. Does nothing if the kernel does not support
/// it.
pub(crate) fn populate_runs(runs: &[(&Mapping, u64, u64)]) {
    // SAFETY: populating pages changes no contents.
    unsafe { advise_runs(runs, libc::MADV_POPULATE_WRITE) };
}

/// Applies one advice to many runs: one system call for a thousand runs, and one TLB flush,
/// if the kernel supports it (Linux 6.13). Returns the number of runs that are certainly done.
///
/// # Safety
/// Each run lies in its mapping, which is asserted, and its owner allows the effect of the advice.
unsafe fn advise_runs(runs: &[(&Mapping, u64, u64)], advice: libc::c_int) -> usize {
    /// `PIDFD_SELF_THREAD_GROUP`: this process, without opening a descriptor (Linux 6.15).
    const THIS_PROCESS: libc::c_int = -10_001;
    // A single run is left to the simpler call.
    if runs.len() < 2 {
        return 0;
    }
    let mut all = 0;
    for now in runs.chunks(libc::UIO_MAXIOV as usize) {
        let ranges: Vec<libc::iovec> = now
            .iter()
            .map(|(mapping, address, length)| libc::iovec {
                iov_base: mapping.checked(*address, *length),
                iov_len: *length as usize,
            })
            .collect();
        // SAFETY: the caller allows the advice for each run; the vector is valid for the call.
        let done = unsafe {
            libc::syscall(
                libc::SYS_process_madvise,
                THIS_PROCESS,
                ranges.as_ptr(),
                ranges.len(),
                advice,
                0,
            )
        };
        let whole: u64 = now.iter().map(|(_, _, length)| length).sum();
        if done as u64 != whole {
            break;
        }
        all += now.len();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x5f00_0000_0000;

    #[test]
    fn a_second_reservation_of_an_arena_names_the_first_owner() {
        let first = AddressSpace::new("store one");
        first.reserve(BASE, 1 << 30).unwrap();
        first.reserve(BASE, 1 << 30).unwrap();
        let second = AddressSpace::new("store two");
        match second.reserve(BASE, 1 << 30).unwrap_err() {
            Error::AddressTaken { by, what, .. } => {
                assert_eq!((by.as_str(), what.as_str()), ("store one", "store two"));
            }
            other => panic!("{other}"),
        }
        drop(first);
        second.reserve(BASE, 1 << 30).unwrap();
    }

    #[test]
    fn claims_do_not_overlap_and_stay_inside_the_arena() {
        let space = AddressSpace::new("store");
        space.reserve(BASE + (2 << 30), 1 << 30).unwrap();
        let base = BASE + (2 << 30);
        let claim = space.claim(base, 8192).unwrap();
        assert!(matches!(space.claim(base + 4096, 4096), Err(Error::AddressTaken { .. })));
        assert!(matches!(space.claim(base + (1 << 30), 4096), Err(Error::AddressTaken { .. })));
        drop(claim);
        space.claim(base + 4096, 4096).unwrap();
    }
}
