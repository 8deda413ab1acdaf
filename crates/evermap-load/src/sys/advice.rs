//! Advice about address ranges, and `madvise` commands.

use std::ffi::c_void;

use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

/// Advice that changes no contents of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SafeAdvice {
    /// Use huge pages, and read files ahead in such units.
    HugePages,
    /// Read ahead.
    WillNeed,
    /// Read far ahead, and release pages behind.
    Sequential,
    /// Do not read ahead.
    Random,
    /// Map all pages now. Fails with `EFAULT` beyond a file's end.
    PopulateRead,
    /// Map all pages now, as private pages.
    PopulateWrite,
    /// Exclude the range from children.
    DontFork,
    /// Include the range in children again.
    DoFork,
}

/// Gives advice for a range of whole pages. Returns an error if nothing is mapped there.
pub(crate) fn advise(address: usize, bytes: usize, advice: SafeAdvice) -> Result<(), Errno> {
    if bytes == 0 {
        return Ok(());
    }
    let advice = match advice {
        SafeAdvice::HugePages => Advice::LinuxHugepage,
        SafeAdvice::WillNeed => Advice::WillNeed,
        SafeAdvice::Sequential => Advice::Sequential,
        SafeAdvice::Random => Advice::Random,
        SafeAdvice::PopulateRead => Advice::LinuxPopulateRead,
        SafeAdvice::PopulateWrite => Advice::LinuxPopulateWrite,
        SafeAdvice::DontFork => Advice::LinuxDontFork,
        SafeAdvice::DoFork => Advice::LinuxDoFork,
    };
    loop {
        // SAFETY: none of these changes the contents of the range.
        match unsafe { madvise(address as *mut c_void, bytes, advice) } {
            Err(Errno::INTR | Errno::AGAIN) => {}
            other => return other,
        }
    }
}

/// Discards the contents of private memory, which then reads as zeros.
///
/// # Safety
///
/// The range is memory of the caller whose contents are not needed.
pub(crate) unsafe fn forget(address: usize, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the caller does not need the contents of the range.
    unsafe { madvise(address as *mut c_void, bytes, Advice::LinuxDontNeed) }
}
