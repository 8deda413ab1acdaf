//! A ring: reads are put into a queue that the kernel takes them from, and what became of them comes back in another, with word of
//! descriptors that have become ready.
//!
//! The kernel writes to memory that the ring does not own. Whoever puts a read in keeps its memory until the ring has
//! *settled*: memory of reads that cannot be waited for is never given back.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};
use rustix::io::Errno;

/// Set in the names of watches.
const WATCH: u64 = 1 << 63;
/// How long reads are waited for that are under way when nobody wants them any more, in steps of 200 ms.
const SETTLING_STEPS_MAX: usize = 150;
const SETTLING_STEP: Duration = Duration::from_millis(200);

/// A ring of this thread's: the kernel lets nobody else use it.
pub(crate) struct Ring {
    uring: IoUring,
    reads: usize,
}

/// What a ring has to say.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    /// A read is over: bytes that came, 0 at the end of the file.
    Read { tag: u32, result: Result<usize, Errno> },
    /// A watched descriptor can be read from.
    Ready { tag: u32 },
}

impl Ring {
    /// One for `reads` at a time. Says why there is none.
    pub(crate) fn new(reads: usize) -> Result<Ring, String> {
        let entries = u32::try_from((reads + 4).next_power_of_two()).unwrap_or(u32::MAX);
        // Linux 6.1 has these: completions are worked off where they are waited for, with no interrupt of this thread.
        let built = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries);
        let uring = match built {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries),
            other => other,
        }
        .map_err(|error| format!("no io_uring is to be had: {error}"))?;
        if !uring.params().is_feature_ext_arg() {
            return Err("io_uring of Linux before 5.11 does not wait with a time limit".into());
        }
        Ok(Ring { uring, reads: 0 })
    }

    /// How many reads are under way.
    pub(crate) fn reads(&self) -> usize {
        self.reads
    }

    /// Reads `bytes` at `offset` of `file` to `address`.
    ///
    /// # Safety
    ///
    /// The memory is the caller's, nobody else uses it until this read was told of, and it stays mapped until then, or for ever if the ring
    /// does not settle. So does the descriptor.
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
        // SAFETY: the caller's promise.
        unsafe { self.push(&entry) }?;
        self.reads += 1;
        Ok(())
    }

    /// From now on says when `file` can be read from, each time.
    pub(crate) fn watch(&mut self, tag: u32, file: BorrowedFd<'_>) -> Result<(), Errno> {
        let entry = opcode::PollAdd::new(Fd(file.as_raw_fd()), libc::POLLIN as u32)
            .multi(true)
            .build()
            .user_data(WATCH | u64::from(tag));
        // SAFETY: it names no memory; a descriptor that is closed is not looked at any more.
        unsafe { self.push(&entry) }
    }

    /// Hands over what was put in and waits until there is something to say, or `patience` is over. Watches that came to an end
    /// are named in `lapsed`: watch again.
    pub(crate) fn wait(
        &mut self,
        patience: Duration,
        lapsed: &mut Vec<u32>,
    ) -> Result<Vec<Event>, Errno> {
        let limit = Timespec::from(patience);
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

    /// Hands over what was put in, and waits for nothing.
    pub(crate) fn submit(&mut self) -> Result<(), Errno> {
        self.enter(0, &Timespec::new())
    }

    /// Waits for the reads that are under way, and forgets what they brought. Whether all came back: if not, the kernel may still
    /// write to their memory.
    pub(crate) fn settle(&mut self) -> bool {
        for _ in 0..SETTLING_STEPS_MAX {
            if self.reads == 0 {
                return true;
            }
            if self.wait(SETTLING_STEP, &mut Vec::new()).is_err() {
                return false;
            }
        }
        self.reads == 0
    }

    /// # Safety
    ///
    /// What the entry names lives until the operation is over.
    unsafe fn push(&mut self, entry: &Entry) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        if unsafe { self.uring.submission().push(entry) }.is_ok() {
            return Ok(());
        }
        self.submit()?;
        // SAFETY: the caller's promise.
        unsafe { self.uring.submission().push(entry) }.map_err(|_| Errno::BUSY)
    }

    fn enter(&mut self, wanted: usize, limit: &Timespec) -> Result<(), Errno> {
        let arguments = SubmitArgs::new().timespec(limit);
        match self.uring.submitter().submit_with_args(wanted, &arguments) {
            Ok(_) => Ok(()),
            Err(error) => match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
                // Nothing is wrong: time, a signal, completions that are to be taken first.
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
