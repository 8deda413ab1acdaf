//! Loading of windows into place, for faults and for `ensure`.

use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::{MISSING, PRESENT, Shared, WINDOW_BYTES};
use crate::counters::{add, count};
use crate::error::{Error, Result};
use crate::job::Job;
use crate::methods::{ended_early, errno_of};
use crate::plan::ForkPolicy;
use crate::sys::advice::SafeAdvice;
use crate::sys::page_bytes;
use crate::sys::userfault::FillMode;

impl Shared {
    /// Loads a window if it is missing. `buffer` holds one window.
    pub(super) fn load_window(&self, window: usize, buffer: &mut [u8]) -> Result<()> {
        match self.states[window].load(Ordering::Acquire) {
            MISSING if !self.is_forked_child() => {}
            // In a forked child, the userfaultfd would change the parent's memory.
            MISSING => return Err(Error::ThreadsLost { path: self.job.source.path().into() }),
            state => return self.settled(window, state),
        }
        let outcome = self.read(window, buffer).and_then(|bytes| {
            self.place(window, buffer)
                .map_err(|errno| self.job.source.failed("copy into memory a part of", errno))?;
            Ok(bytes)
        });
        match outcome {
            Ok(bytes) => {
                let missing = self.states[window].compare_exchange(
                    MISSING,
                    PRESENT,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                );
                match missing {
                    Ok(_) => {
                        self.job.counters.first();
                        self.job.counters.loaded(bytes);
                        count(&self.job.counters.on_demand);
                        Ok(())
                    }
                    // Another thread loaded it, or failed to, first.
                    Err(state) => self.settled(window, state),
                }
            }
            Err(error) => self.fail(window, error),
        }
    }

    /// Reads a window's bytes, followed by zeros. Returns the number of file bytes.
    fn read(&self, window: usize, buffer: &mut [u8]) -> Result<u64> {
        let Job { source, part, counters, .. } = &self.job;
        let at = window * WINDOW_BYTES;
        let offset = part.begin + at as u64;
        let bytes = (part.memory_bytes() - at).min(WINDOW_BYTES);
        let mut done = 0;
        while done < bytes {
            let into = &mut buffer[done..bytes];
            match rustix::io::pread(source.cached(), into, offset + done as u64) {
                Ok(0) => return Err(ended_early(&self.job, offset, bytes)),
                Ok(read_bytes) => done += read_bytes,
                Err(Errno::INTR) => {}
                Err(errno) => {
                    return Err(Error::Unreadable {
                        path: source.path().into(),
                        offset_bytes: offset,
                        length_bytes: bytes as u64,
                        source: errno.into(),
                    });
                }
            }
        }
        buffer[bytes..].fill(0);
        add(&counters.cached_bytes, bytes as u64);
        source.check()?;
        Ok(bytes as u64)
    }

    fn place(&self, window: usize, buffer: &[u8]) -> Result<(), Errno> {
        let begin = self.region.address() as usize + window * WINDOW_BYTES;
        let mut done = 0;
        while done < WINDOW_BYTES {
            let from = buffer[done..].as_ptr() as usize;
            // SAFETY: the buffer belongs to the caller and holds a whole window.
            match unsafe {
                self.userfault.place(FillMode::Copy, begin + done, from, WINDOW_BYTES - done)
            } {
                (copied, Ok(())) if copied > 0 => done += copied,
                (copied, Err(Errno::AGAIN)) => done += copied,
                // Another thread loaded it at the same time.
                (copied, Err(Errno::EXIST)) => done += copied.max(page_bytes()),
                (_, Err(errno)) => return Err(errno),
                (_, Ok(())) => break,
            }
        }
        let _ = self.userfault.wake(begin, WINDOW_BYTES);
        Ok(())
    }

    /// Marks a window as failed, unless another thread has loaded it. An access to it raises
    /// SIGBUS from now on.
    pub(super) fn fail(&self, window: usize, error: Error) -> Result<()> {
        let number = u8::try_from(errno_of(&error).raw_os_error()).unwrap_or(u8::MAX);
        let failed = PRESENT.saturating_add(number);
        // Before poisoning: a window whose pages are poisoned must never become present.
        match self.states[window].compare_exchange(
            MISSING,
            failed,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => {
                self.poison(window);
                Err(error)
            }
            Err(state) => self.settled(window, state),
        }
    }

    fn poison(&self, window: usize) {
        let begin = self.region.address() as usize + window * WINDOW_BYTES;
        self.userfault.poison(begin, WINDOW_BYTES);
    }

    /// Returns the outcome for a window that is loaded or has failed.
    fn settled(&self, window: usize, state: u8) -> Result<()> {
        if state <= PRESENT {
            return Ok(());
        }
        // Again, because the thread that failed may have been killed before it poisoned.
        if !self.is_forked_child() {
            self.poison(window);
        }
        self.failure()
    }

    /// Returns the error of the first failed window.
    pub(super) fn failure(&self) -> Result<()> {
        let failed = self.states.iter().enumerate().find_map(|(window, state)| {
            let number =
                state.load(Ordering::Acquire).checked_sub(PRESENT).filter(|number| *number > 0)?;
            Some((window, Errno::from_raw_os_error(number.into())))
        });
        let Some((window, errno)) = failed else { return Ok(()) };
        self.job.source.check()?;
        let at = window * WINDOW_BYTES;
        Err(Error::Unreadable {
            path: self.job.source.path().into(),
            offset_bytes: self.job.part.begin + at as u64,
            length_bytes: (self.job.part.memory_bytes() - at).min(WINDOW_BYTES) as u64,
            source: errno.into(),
        })
    }

    /// Loads all untouched windows. The image is ordinary memory afterwards, and its use is no
    /// longer recorded.
    pub(super) fn load_all(&self) -> Result<()> {
        let mut buffer = vec![0; WINDOW_BYTES];
        for window in 0..self.states.len() {
            self.load_window(window, &mut buffer)?;
        }
        self.written_bytes.store(self.noted_bytes(), Ordering::Release);
        let (address, bytes) = (self.region.address() as usize, self.region.bytes());
        let _ = self.userfault.unregister(address, bytes);
        if self.fork == ForkPolicy::Finish {
            let _ = self.region.advise(0, bytes, SafeAdvice::DoFork);
        }
        let _ = self.usage.set(self.begun.since());
        self.job.counters.complete();
        self.is_over.store(true, Ordering::Release);
        Ok(())
    }
}
