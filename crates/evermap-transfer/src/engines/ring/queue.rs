//! A ring: operations are put into a queue that the kernel reads, and what became of them comes back in another.
//!
//! The unsafe part of the engines that use one. What the kernel reads and writes here is memory that the ring owns, and
//! descriptors that a [`Flight`] borrows; a flight ends when nothing is on its way any more, however it is left: by
//! success, error or panic. Memory whose operations cannot be waited for is never freed.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread::ThreadId;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use rustix::io::Errno;

use crate::engines::WhyNot;
use crate::meter::Meter;
use crate::sys::Memory;

/// How long completions are waited for before somebody may have cancelled.
const PATIENCE: Timespec = Timespec::new().nsec(200_000_000);
/// Names operations that only cancel others.
const CANCELLING: u64 = u64::MAX;
/// A wait that fails this often has no end.
const FAILED_WAITS_MAX: usize = 16;

/// A ring, and the memory that its operations use.
pub(super) struct Ring {
    uring: IoUring,
    memory: ManuallyDrop<Memory>,
    /// Whether the kernel has pinned the memory once, and need not for each operation.
    is_registered: bool,
    /// What the operations are called that are on their way.
    in_flight: Vec<u64>,
    /// Who made it: the kernel lets nobody else put operations in.
    thread: ThreadId,
}

/// One operation that is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    /// What it was called.
    pub(super) tag: u64,
    /// The bytes that it moved.
    pub(super) result: Result<usize, Errno>,
}

impl Ring {
    /// One for `operations` at a time. Refused where io_uring is forbidden or too old.
    pub(super) fn new(operations: usize, memory: Memory) -> Result<Ring, WhyNot> {
        let why = |error: std::io::Error| WhyNot::new(format!("no io_uring is to be had: {error}"));
        let entries = u32::try_from(operations.next_power_of_two() * 2).unwrap_or(u32::MAX);
        // Linux 6.1 has these: completions are then worked off where they are waited for, with no interrupt of this
        // thread.
        let built = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries);
        let uring = match built {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries),
            other => other,
        }
        .map_err(why)?;
        if !uring.params().is_feature_ext_arg() {
            return Err(WhyNot::new(
                "io_uring of Linux before 5.11 does not wait with a time limit",
            ));
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

    /// Whether this thread may use it.
    pub(super) fn is_usable(&self) -> bool {
        self.thread == std::thread::current().id() && self.in_flight.is_empty()
    }

    /// How many slots its memory has.
    pub(super) fn slots(&self) -> usize {
        self.memory.slots()
    }

    /// Has the kernel pin the memory. It may not: pinned memory counts against `ulimit -l`. Then each operation
    /// pins what it uses, which costs a little more.
    fn register(&mut self) {
        let buffers: Vec<libc::iovec> = (0..self.memory.slots())
            .map(|slot| libc::iovec {
                iov_base: self.memory.address(slot, 0).cast(),
                iov_len: self.memory.slot_bytes(),
            })
            .collect();
        // SAFETY: the slots are mapped memory that this ring owns, and frees after its operations are over.
        self.is_registered = unsafe { self.uring.submitter().register_buffers(&buffers) }.is_ok();
    }

    /// Operations on descriptors that live as long as `'f`.
    pub(super) fn flight<'f>(&'f mut self) -> Flight<'f> {
        Flight { ring: self, descriptors: PhantomData }
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
            // SAFETY: dropped once, here; nothing is on its way that would use the memory.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

/// Operations on their way. Dropping it waits for all of them.
#[derive(Debug)]
pub(super) struct Flight<'f> {
    ring: &'f mut Ring,
    /// What operations name stays open until they are over.
    descriptors: PhantomData<BorrowedFd<'f>>,
}

impl<'f> Flight<'f> {
    /// How many operations are on their way.
    pub(super) fn in_flight(&self) -> usize {
        self.ring.in_flight.len()
    }

    /// Reads from `offset` of `file` into a part of slot `slot`.
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
        // SAFETY: the part is within the ring's memory (`address` asserts it), which outlives the operation, as the
        // descriptor does; no code of this process looks into that memory.
        unsafe { self.push(entry.user_data(tag)) }
    }

    /// Writes a part of slot `slot` to `offset` of `file`.
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
        // SAFETY: as in `read`.
        unsafe { self.push(entry.user_data(tag)) }
    }

    /// Splices from one descriptor to another, at offsets where they have such. With `is_linked`, the operation that is put
    /// in next begins when this one is over, if it moved all of `bytes`, and is cancelled if not.
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
            // A chain that is handed over in two parts is two chains.
            self.make_room(2)?;
        }
        let flags = if is_linked { Flags::IO_LINK } else { Flags::empty() };
        // SAFETY: it names no memory, and the descriptors outlive the operation.
        unsafe { self.push(entry.flags(flags)) }
    }

    /// Asks the kernel to give up what is on its way. That is still to be waited for, and may have moved something.
    pub(super) fn cancel(&mut self) -> Result<(), Errno> {
        for tag in self.ring.in_flight.clone() {
            let entry = opcode::AsyncCancel::new(tag).build().user_data(CANCELLING);
            // SAFETY: it names neither memory nor descriptors.
            unsafe { self.push(entry) }?;
        }
        Ok(())
    }

    /// Hands over what was put in, and waits until any operation is over: then says which are. Says none when a
    /// signal came or some time went by.
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
        all_done.retain(|done| done.tag != CANCELLING);
        match all_done.is_empty() {
            true => outcome.map(|()| all_done),
            false => Ok(all_done),
        }
    }

    /// Where a part of a slot is, and how long.
    fn address(&self, slot: usize, part: &Range<usize>) -> (*mut u8, u32) {
        assert!(
            part.start <= part.end && part.end <= self.ring.memory.slot_bytes(),
            "a part is within its slot"
        );
        (self.ring.memory.address(slot, part.start), (part.end - part.start) as u32)
    }

    /// Makes sure that `entries` more can be put in without handing over any.
    fn make_room(&mut self, entries: usize) -> Result<(), Errno> {
        let queue = self.ring.uring.submission();
        if queue.capacity() - queue.len() >= entries {
            return Ok(());
        }
        drop(queue);
        self.enter(0)?;
        let queue = self.ring.uring.submission();
        if queue.capacity() - queue.len() >= entries { Ok(()) } else { Err(Errno::BUSY) }
    }

    /// Puts an operation in.
    ///
    /// # Safety
    ///
    /// What the entry names must live until the operation is over.
    unsafe fn push(&mut self, entry: Entry) -> Result<(), Errno> {
        self.make_room(1)?;
        // SAFETY: the caller's promise.
        unsafe { self.ring.uring.submission().push(&entry) }.map_err(|_| Errno::BUSY)?;
        self.ring.in_flight.push(entry.get_user_data());
        Ok(())
    }

    /// Hands over what was put in, and waits for `wanted` completions, for a while.
    fn enter(&mut self, wanted: usize) -> Result<(), Errno> {
        let arguments = SubmitArgs::new().timespec(&PATIENCE);
        match self.ring.uring.submitter().submit_with_args(wanted, &arguments) {
            Ok(_) => Ok(()),
            Err(error) => match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
                // Nothing is wrong: time, a signal, completions that are to be taken first.
                Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY => Ok(()),
                errno => Err(errno),
            },
        }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let meter = Meter::default();
        // A peer that takes nothing would be waited for, for ever.
        let mut failed_waits = usize::from(self.in_flight() > 0 && self.cancel().is_err());
        while self.in_flight() > 0 && failed_waits < FAILED_WAITS_MAX {
            failed_waits += usize::from(self.wait(&meter).is_err());
        }
        // What is left could not be waited for: the ring keeps its memory, see its `drop`.
    }
}
