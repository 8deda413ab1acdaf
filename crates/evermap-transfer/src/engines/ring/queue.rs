//! io_uring: submits operations and collects their completions.
//!
//! This file holds the `unsafe` code of the io_uring engines. The kernel accesses only memory owned
//! by the ring and descriptors borrowed by an [`InFlight`]. An `InFlight` ends when no operation is
//! in flight, whether by success, error or panic. The memory of operations that cannot be waited
//! for is never freed.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread::ThreadId;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use rustix::io::Errno;

use crate::engines::Refusal;
use crate::meter::Meter;
use crate::sys::Memory;

/// Timeout of a wait, after which cancellation is checked.
const WAIT_TIMEOUT: Timespec = Timespec::new().nsec(200_000_000);
/// Tag of operations that cancel others.
const CANCEL_TAG: u64 = u64::MAX;
/// Number of failed waits after which waiting is given up.
const FAILED_WAITS_MAX: usize = 16;

/// An io_uring with the memory that its operations use.
pub(super) struct Ring {
    uring: IoUring,
    memory: ManuallyDrop<Memory>,
    /// True if the memory is registered, so that the kernel does not pin it for each operation.
    is_registered: bool,
    /// Tags of the operations in flight.
    in_flight: Vec<u64>,
    /// Creator of the ring. The kernel accepts submissions only from this thread.
    thread: ThreadId,
}

/// A completed operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    /// Tag of the operation.
    pub(super) tag: u64,
    /// Bytes moved.
    pub(super) result: Result<usize, Errno>,
}

impl Ring {
    /// Creates a ring for `operations` in flight. Refuses if io_uring is forbidden or too old.
    pub(super) fn new(operations: usize, memory: Memory) -> Result<Ring, Refusal> {
        let why =
            |error: std::io::Error| Refusal::new(format!("cannot create an io_uring: {error}"));
        let entries = u32::try_from(operations.next_power_of_two() * 2).unwrap_or(u32::MAX);
        // Since Linux 6.1. Completions are then processed in the wait, without interrupting this
        // thread.
        let built = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries);
        let uring = match built {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries),
            other => other,
        }
        .map_err(why)?;
        if !uring.params().is_feature_ext_arg() {
            return Err(Refusal::new("io_uring before Linux 5.11 cannot wait with a timeout"));
        }
        let mut ring = Ring {
            uring,
            memory: ManuallyDrop::new(memory),
            is_registered: false,
            in_flight: Vec::new(),
            thread: std::thread::current().id(),
        };
        ring.register();
        Ok(ring)
    }

    /// Returns true if this thread may use the ring.
    pub(super) fn is_usable(&self) -> bool {
        self.thread == std::thread::current().id() && self.in_flight.is_empty()
    }

    /// Returns the number of memory slots.
    pub(super) fn slots(&self) -> usize {
        self.memory.slots()
    }

    /// Registers the memory, which pins it. This may fail, because pinned memory counts against
    /// `ulimit -l`. Then each operation pins its own part, which costs slightly more.
    fn register(&mut self) {
        let buffers: Vec<libc::iovec> = (0..self.memory.slots())
            .map(|slot| libc::iovec {
                iov_base: self.memory.address(slot, 0).cast(),
                iov_len: self.memory.slot_bytes(),
            })
            .collect();
        // SAFETY: the slots are mapped memory owned by this ring, which frees it only after its
        // operations have completed.
        self.is_registered = unsafe { self.uring.submitter().register_buffers(&buffers) }.is_ok();
    }

    /// Returns a guard for operations on descriptors that live for `'f`.
    pub(super) fn operations<'f>(&'f mut self) -> InFlight<'f> {
        InFlight { ring: self, descriptors: PhantomData }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.in_flight.is_empty() {
            // SAFETY: dropped only here; no operation in flight uses the memory.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

/// Guard for operations in flight. Dropping it waits for all of them.
#[derive(Debug)]
pub(super) struct InFlight<'f> {
    ring: &'f mut Ring,
    /// The descriptors of operations stay open until these complete.
    descriptors: PhantomData<BorrowedFd<'f>>,
}

impl<'f> InFlight<'f> {
    /// Returns the number of operations in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.ring.in_flight.len()
    }

    /// Queues a read from `offset` of `file` into `part` of slot `slot`.
    pub(super) fn read(
        &mut self,
        tag: u64,
        file: BorrowedFd<'f>,
        slot: usize,
        part: Range<usize>,
        offset: u64,
    ) -> Result<(), Errno> {
        let (address, bytes) = self.address(slot, &part);
        let file = Fd(file.as_raw_fd());
        let entry = match self.ring.is_registered {
            true => {
                opcode::ReadFixed::new(file, address, bytes, slot as u16).offset(offset).build()
            }
            false => opcode::Read::new(file, address, bytes).offset(offset).build(),
        };
        // SAFETY: the part is within the ring's memory (asserted by `address`). Memory and
        // descriptor outlive the operation, and no code of this process accesses the memory.
        unsafe { self.push(entry.user_data(tag)) }
    }

    /// Queues a write of `part` of slot `slot` to `offset` of `file`.
    pub(super) fn write(
        &mut self,
        tag: u64,
        file: BorrowedFd<'f>,
        slot: usize,
        part: Range<usize>,
        offset: u64,
    ) -> Result<(), Errno> {
        let (address, bytes) = self.address(slot, &part);
        let file = Fd(file.as_raw_fd());
        let entry = match self.ring.is_registered {
            true => {
                opcode::WriteFixed::new(file, address, bytes, slot as u16).offset(offset).build()
            }
            false => opcode::Write::new(file, address, bytes).offset(offset).build(),
        };
        // SAFETY: the part is within the ring's memory (asserted by `address`). Memory and
        // descriptor outlive the operation, and no code of this process accesses the memory.
        unsafe { self.push(entry.user_data(tag)) }
    }

    /// Queues a splice between two descriptors, with offsets where they have them. If `is_linked`,
    /// the next queued operation starts after this one, and is cancelled unless this one moves all
    /// of `bytes`.
    pub(super) fn splice(
        &mut self,
        tag: u64,
        from: (BorrowedFd<'f>, Option<u64>),
        to: (BorrowedFd<'f>, Option<u64>),
        bytes: usize,
        is_linked: bool,
    ) -> Result<(), Errno> {
        let at =
            |offset: Option<u64>| offset.map_or(Ok(-1), i64::try_from).map_err(|_| Errno::OVERFLOW);
        let bytes = u32::try_from(bytes).map_err(|_| Errno::OVERFLOW)?;
        let (from_fd, to_fd) = (Fd(from.0.as_raw_fd()), Fd(to.0.as_raw_fd()));
        let entry = opcode::Splice::new(from_fd, at(from.1)?, to_fd, at(to.1)?, bytes)
            .build()
            .user_data(tag);
        if is_linked {
            // A chain submitted in two calls would be two chains.
            self.reserve_entries(2)?;
        }
        let flags = if is_linked { Flags::IO_LINK } else { Flags::empty() };
        // SAFETY: it uses no memory, and the descriptors outlive the operation.
        unsafe { self.push(entry.flags(flags)) }
    }

    /// Asks the kernel to cancel the operations in flight. They must still be waited for, and may
    /// have moved bytes.
    pub(super) fn cancel(&mut self) -> Result<(), Errno> {
        for tag in self.ring.in_flight.clone() {
            let entry = opcode::AsyncCancel::new(tag).build().user_data(CANCEL_TAG);
            // SAFETY: it uses neither memory nor descriptors.
            unsafe { self.push(entry) }?;
        }
        Ok(())
    }

    /// Submits the queued operations, waits for a completion, and returns all completed operations.
    /// Returns an empty list after a signal or the timeout.
    pub(super) fn wait(&mut self, meter: &Meter) -> Result<Vec<Done>, Errno> {
        meter.called();
        let outcome = self.enter(1);
        let mut all_done = Vec::new();
        for completion in self.ring.uring.completion() {
            let tag = completion.user_data();
            if let Some(at) = self.ring.in_flight.iter().position(|other| *other == tag) {
                self.ring.in_flight.swap_remove(at);
            }
            let result = match completion.result() {
                error if error < 0 => Err(Errno::from_raw_os_error(-error)),
                moved => Ok(moved as usize),
            };
            all_done.push(Done { tag, result });
        }
        all_done.retain(|done| done.tag != CANCEL_TAG);
        match all_done.is_empty() {
            true => outcome.map(|()| all_done),
            false => Ok(all_done),
        }
    }

    /// Returns the address and length of a part of a slot.
    fn address(&self, slot: usize, part: &Range<usize>) -> (*mut u8, u32) {
        assert!(
            part.start <= part.end && part.end <= self.ring.memory.slot_bytes(),
            "part exceeds its slot"
        );
        (self.ring.memory.address(slot, part.start), (part.end - part.start) as u32)
    }

    /// Makes space for `entries` in the queue, submitting it if necessary.
    fn reserve_entries(&mut self, entries: usize) -> Result<(), Errno> {
        let queue = self.ring.uring.submission();
        if queue.capacity() - queue.len() >= entries {
            return Ok(());
        }
        drop(queue);
        self.enter(0)?;
        let queue = self.ring.uring.submission();
        if queue.capacity() - queue.len() >= entries { Ok(()) } else { Err(Errno::BUSY) }
    }

    /// Queues an operation.
    ///
    /// # Safety
    ///
    /// The memory and descriptors named by the entry must live until the operation completes.
    unsafe fn push(&mut self, entry: Entry) -> Result<(), Errno> {
        self.reserve_entries(1)?;
        // SAFETY: the caller guarantees that the memory and descriptors of `entry` outlive the
        // operation.
        unsafe { self.ring.uring.submission().push(&entry) }.map_err(|_| Errno::BUSY)?;
        self.ring.in_flight.push(entry.get_user_data());
        Ok(())
    }

    /// Submits the queued operations and waits for `wanted` completions or the timeout.
    fn enter(&mut self, wanted: usize) -> Result<(), Errno> {
        let arguments = SubmitArgs::new().timespec(&WAIT_TIMEOUT);
        match self.ring.uring.submitter().submit_with_args(wanted, &arguments) {
            Ok(_) => Ok(()),
            Err(error) => match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
                // Not errors: a timeout, a signal, or completions to take first.
                Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY => Ok(()),
                errno => Err(errno),
            },
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let meter = Meter::default();
        // A peer that does not read would block this forever.
        let mut failed_waits = usize::from(self.in_flight() > 0 && self.cancel().is_err());
        while self.in_flight() > 0 && failed_waits < FAILED_WAITS_MAX {
            failed_waits += usize::from(self.wait(&meter).is_err());
        }
        // Operations left here could not be waited for: `Ring::drop` keeps their memory.
    }
}
