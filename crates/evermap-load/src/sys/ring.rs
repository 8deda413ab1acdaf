//! An io_uring: a queue of reads and descriptor watches, and a queue of their completions.
//!
//! The kernel writes to memory that the ring does not own. The caller of a read must keep its
//! memory until [`Ring::drain`] has succeeded. Memory of reads that cannot be waited for is leaked.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};
use rustix::io::Errno;

/// Bit that marks the user data of watches.
const WATCH: u64 = 1 << 63;
/// Time to wait for outstanding reads at the end of a load: this many steps of 200 ms.
const DRAIN_STEPS_MAX: usize = 150;
const DRAIN_STEP: Duration = Duration::from_millis(200);

/// An io_uring of one thread. The kernel lets no other thread use it.
pub(crate) struct Ring {
    uring: IoUring,
    reads: usize,
}

/// Completion event.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    /// A read has completed, with the number of bytes read, 0 at the end of the file.
    Read { tag: u32, result: Result<usize, Errno> },
    /// A watched descriptor is readable.
    Ready { tag: u32 },
}

impl Ring {
    /// Creates a ring for `reads` concurrent reads. Returns the reason if that is impossible.
    pub(crate) fn new(reads: usize) -> Result<Ring, String> {
        let entries = u32::try_from((reads + 4).next_power_of_two()).unwrap_or(u32::MAX);
        // Linux 6.1 has these flags: completions are processed while waiting, without interrupting
        // this thread.
        let built = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries);
        let uring = match built {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries),
            other => other,
        }
        .map_err(|error| format!("io_uring is not available: {error}"))?;
        if !uring.params().is_feature_ext_arg() {
            return Err("io_uring before Linux 5.11 cannot wait with a timeout".into());
        }
        Ok(Ring { uring, reads: 0 })
    }

    /// Returns the number of outstanding reads.
    pub(crate) fn reads(&self) -> usize {
        self.reads
    }

    /// Starts a read of `bytes` at `offset` of `file` to `address`.
    ///
    /// # Safety
    ///
    /// The memory and the descriptor belong to the caller and stay valid until the read's
    /// completion event, or for ever if the ring cannot be drained. The memory has no other user
    /// until then.
    pub(crate) unsafe fn read(
        &mut self,
        tag: u32,
        file: BorrowedFd<'_>,
        address: *mut u8,
        bytes: usize,
        offset: u64,
    ) -> Result<(), Errno> {
        let bytes = u32::try_from(bytes).map_err(|_| Errno::OVERFLOW)?;
        let entry = opcode::Read::new(Fd(file.as_raw_fd()), address, bytes)
            .offset(offset)
            .build()
            .user_data(u64::from(tag));
        // SAFETY: the caller keeps the memory and the descriptor valid until the read completes.
        unsafe { self.push(&entry) }?;
        self.reads += 1;
        Ok(())
    }

    /// Watches `file` and reports each time it becomes readable.
    pub(crate) fn watch(&mut self, tag: u32, file: BorrowedFd<'_>) -> Result<(), Errno> {
        let entry = opcode::PollAdd::new(Fd(file.as_raw_fd()), libc::POLLIN as u32)
            .multi(true)
            .build()
            .user_data(WATCH | u64::from(tag));
        // SAFETY: the entry names no memory, and the kernel holds its own reference to the file.
        unsafe { self.push(&entry) }
    }

    /// Submits queued entries and waits for an event, at most `timeout`. Adds watches that have
    /// ended to `lapsed`; they must be started again.
    pub(crate) fn wait(
        &mut self,
        timeout: Duration,
        lapsed: &mut Vec<u32>,
    ) -> Result<Vec<Event>, Errno> {
        let limit = Timespec::from(timeout);
        let outcome = self.enter(1, &limit);
        let mut events = Vec::new();
        for completion in self.uring.completion() {
            let name = completion.user_data();
            let tag = name as u32;
            if name & WATCH != 0 {
                if !cqueue::more(completion.flags()) {
                    lapsed.push(tag);
                }
                events.push(Event::Ready { tag });
                continue;
            }
            self.reads = self.reads.saturating_sub(1);
            let result = match completion.result() {
                error if error < 0 => Err(Errno::from_raw_os_error(-error)),
                bytes => Ok(bytes as usize),
            };
            events.push(Event::Read { tag, result });
        }
        if events.is_empty() { outcome.map(|()| events) } else { Ok(events) }
    }

    /// Submits queued entries without waiting.
    pub(crate) fn submit(&mut self) -> Result<(), Errno> {
        self.enter(0, &Timespec::new())
    }

    /// Waits for outstanding reads and discards their results. Returns false if some did not
    /// complete, so the kernel may still write to their memory.
    pub(crate) fn drain(&mut self) -> bool {
        for _ in 0..DRAIN_STEPS_MAX {
            if self.reads == 0 {
                return true;
            }
            if self.wait(DRAIN_STEP, &mut Vec::new()).is_err() {
                return false;
            }
        }
        self.reads == 0
    }

    /// Queues an entry.
    ///
    /// # Safety
    ///
    /// Memory and descriptors named by the entry stay valid until the operation completes.
    unsafe fn push(&mut self, entry: &Entry) -> Result<(), Errno> {
        // SAFETY: the caller keeps what the entry names valid until the operation completes.
        if unsafe { self.uring.submission().push(entry) }.is_ok() {
            return Ok(());
        }
        self.submit()?;
        // SAFETY: the caller keeps what the entry names valid until the operation completes.
        unsafe { self.uring.submission().push(entry) }.map_err(|_| Errno::BUSY)
    }

    fn enter(&mut self, wanted: usize, limit: &Timespec) -> Result<(), Errno> {
        let arguments = SubmitArgs::new().timespec(limit);
        match self.uring.submitter().submit_with_args(wanted, &arguments) {
            Ok(_) => Ok(()),
            Err(error) => match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
                // Not failures: timeout, signal, or completions to process first.
                Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY => Ok(()),
                errno => Err(errno),
            },
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("reads", &self.reads).finish_non_exhaustive()
    }
}
