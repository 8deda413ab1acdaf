//! Advice about ranges of addresses, and orders that take the form of advice.

use std::ffi::c_void;

use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

/// What changes no contents of a range, whoever uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Harmless {
    /// Huge pages, and on files read-ahead by such.
    HugePages,
    /// Reads ahead.
    WillNeed,
    /// Reads far ahead, and forgets behind.
    Sequential,
    /// Reads nothing ahead.
    Random,
    /// Has all pages there. `EFAULT` where a file has none.
    PopulateRead,
    /// Has all pages there and private.
    PopulateWrite,
    /// Children don't have the range.
    DontFork,
    /// They do again.
    DoFork,
}

/// Gives it. The range must be whole pages; where nothing is mapped it is an error and nothing else.
pub(crate) fn advise(address: usize, bytes: usize, advice: Harmless) -> Result<(), Errno> {
    if bytes == 0 {
        return Ok(());
    }
    let advice = match advice {
        Harmless::HugePages => Advice::LinuxHugepage,
        Harmless::WillNeed => Advice::WillNeed,
        Harmless::Sequential => Advice::Sequential,
        Harmless::Random => Advice::Random,
        Harmless::PopulateRead => Advice::LinuxPopulateRead,
        Harmless::PopulateWrite => Advice::LinuxPopulateWrite,
        Harmless::DontFork => Advice::LinuxDontFork,
        Harmless::DoFork => Advice::LinuxDoFork,
    };
    loop {
        // SAFETY: none of these changes what a program can read in the range.
        match unsafe { madvise(address as *mut c_void, bytes, advice) } {
            Err(Errno::INTR | Errno::AGAIN) => {}
            other => return other,
        }
    }
}

/// Forgets the contents of private memory: it reads as zeros.
///
/// # Safety
///
/// The range is memory of the caller's in which nothing counts.
pub(crate) unsafe fn forget(address: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { madvise(address as *mut c_void, bytes, Advice::LinuxDontNeed) }
}
