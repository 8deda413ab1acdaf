//! `io_uring` for one read at a time, into memory that the ring owns. Memory that the kernel may
//! still write to is never freed.
//!
//! The ring is made without `IORING_SETUP_DEFER_TASKRUN` and related flags. A completion then
//! reaches the queue by an interrupt of the waiting thread, so polling sees it without a system
//! call.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;

use super::memory::Memory;

/// Method of finding the device's completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompletionMode {
    /// The device is polled (`IORING_SETUP_IOPOLL`), without interrupts. Needs direct I/O and a
    /// driver with poll queues.
    DevicePolled,
    /// The device raises an interrupt.
    Interrupt,
}

/// State of the thread when it saw a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The thread was polling.
    Polled,
    /// The thread had slept.
    Slept,
}

/// Sleep between polls of the device; a ring with IOPOLL has no interrupt that wakes the thread.
const POLL_SLEEP: Duration = Duration::from_micros(50);
/// Longest single wait for an interrupt. It is repeated until the completion arrives.
const INTERRUPT_WAIT: Duration = Duration::from_millis(200);

/// Ring and the memory that it reads into. Used by one thread.
pub(crate) struct Ring {
    uring: ManuallyDrop<IoUring>,
    memory: ManuallyDrop<Memory>,
    completions: CompletionMode,
    is_registered: bool,
    /// A read is in flight and could not be waited for.
    has_lost_read: bool,
}

impl Ring {
    /// Makes a ring. Returns the memory with the error on failure. Memory that cannot be
    /// registered, because of the limit of locked memory, is used unregistered.
    pub(crate) fn new(
        memory: Memory,
        completions: CompletionMode,
    ) -> Result<Self, (Memory, io::Error)> {
        let mut builder = IoUring::builder();
        builder.dontfork();
        if completions == CompletionMode::DevicePolled {
            builder.setup_iopoll();
        }
        let uring = match builder.build(4) {
            Ok(uring) => uring,
            Err(error) => return Err((memory, error)),
        };
        let mut ring = Self {
            uring: ManuallyDrop::new(uring),
            memory: ManuallyDrop::new(memory),
            completions,
            is_registered: false,
            has_lost_read: false,
        };
        ring.register();
        Ok(ring)
    }

    fn register(&mut self) {
        let bytes = self.memory.bytes_mut();
        let vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: the memory outlives the ring: both are dropped together, the ring first, or
        // neither.
        let registered = unsafe { self.uring.submitter().register_buffers(&[vector]) };
        self.is_registered = registered.is_ok();
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.is_registered
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Memory for a read by another method. Fails while a read is in flight.
    pub(crate) fn memory_mut(&mut self) -> io::Result<&mut Memory> {
        if self.has_lost_read { Err(lost_read()) } else { Ok(&mut self.memory) }
    }

    /// Ends the ring and returns its memory, or `None` if the kernel may still write to it.
    pub(crate) fn into_memory(mut self) -> Option<Memory> {
        if self.has_lost_read {
            return None;
        }
        // SAFETY: both fields are taken once, because `has_lost_read` makes `Drop` skip them. No
        // read is in flight, and the ring is dropped before its memory is returned.
        let memory = unsafe {
            ManuallyDrop::drop(&mut self.uring);
            ManuallyDrop::take(&mut self.memory)
        };
        self.has_lost_read = true;
        Some(memory)
    }

    /// Replaces the memory, for longer reads.
    pub(crate) fn replace_memory(&mut self, memory: Memory) -> io::Result<()> {
        if self.has_lost_read {
            return Err(lost_read());
        }
        if self.is_registered {
            self.uring.submitter().unregister_buffers()?;
        }
        *self.memory = memory;
        self.register();
        Ok(())
    }

    /// Reads `length` bytes at `offset` to the beginning of the memory. Polls for the completion
    /// for
    /// `spin`, then sleeps. Returns the number of bytes read.
    pub(crate) fn read(
        &mut self,
        file: &File,
        offset: u64,
        length: usize,
        spin: Duration,
    ) -> io::Result<(usize, Seen)> {
        if self.has_lost_read {
            return Err(lost_read());
        }
        let length = length.min(self.memory.len());
        let entry = self.entry(file, offset, length)?;
        // SAFETY: the memory stays valid until the read completes: either the read is awaited
        // below, or
        // `has_lost_read` stays set and ring and memory are never freed.
        if unsafe { self.uring.submission().push(&entry) }.is_err() {
            return Err(Errno::BUSY.into());
        }
        self.has_lost_read = true;
        self.enter(0, None)?;
        let until = Instant::now() + spin;
        let (result, seen) = self.complete(until)?;
        self.has_lost_read = false;
        match usize::try_from(result) {
            Ok(bytes) => Ok((bytes, seen)),
            Err(_) => Err(io::Error::from_raw_os_error(-result)),
        }
    }

    fn entry(&mut self, file: &File, offset: u64, length: usize) -> io::Result<squeue::Entry> {
        let length = u32::try_from(length).map_err(|_| Errno::OVERFLOW)?;
        let (fd, address) = (Fd(file.as_raw_fd()), self.memory.bytes_mut().as_mut_ptr());
        Ok(match self.is_registered {
            true => opcode::ReadFixed::new(fd, address, length, 0).offset(offset).build(),
            false => opcode::Read::new(fd, address, length).offset(offset).build(),
        })
    }

    fn complete(&mut self, until: Instant) -> io::Result<(i32, Seen)> {
        let mut seen = Seen::Polled;
        loop {
            let completion: Option<cqueue::Entry> = self.uring.completion().next();
            if let Some(completion) = completion {
                return Ok((completion.result(), seen));
            }
            let is_time = Instant::now() < until;
            match (is_time, self.completions) {
                (true, CompletionMode::Interrupt) => std::hint::spin_loop(),
                (true, CompletionMode::DevicePolled) => self.enter(0, None)?,
                (false, CompletionMode::Interrupt) => {
                    seen = Seen::Slept;
                    self.enter(1, Some(INTERRUPT_WAIT))?;
                }
                (false, CompletionMode::DevicePolled) => {
                    seen = Seen::Slept;
                    std::thread::sleep(POLL_SLEEP);
                    self.enter(0, None)?;
                }
            }
        }
    }

    fn enter(&mut self, wanted: usize, wait: Option<Duration>) -> io::Result<()> {
        // With IOPOLL both calls poll the device, even if none is waited for.
        let outcome = match wait {
            None => self.uring.submit_and_wait(wanted),
            Some(wait) => {
                let limit = Timespec::from(wait);
                let arguments = SubmitArgs::new().timespec(&limit);
                self.uring.submitter().submit_with_args(wanted, &arguments)
            }
        };
        match outcome {
            Ok(_) => Ok(()),
            Err(error) => match Errno::from_io_error(&error) {
                // Timeout, a signal, or completions that must be consumed first.
                Some(Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.has_lost_read {
            // The kernel may still write to the memory, so leak it.
            return;
        }
        // SAFETY: dropped once and not used afterwards; the ring, which references the memory,
        // first.
        unsafe {
            ManuallyDrop::drop(&mut self.uring);
            ManuallyDrop::drop(&mut self.memory);
        }
    }
}

fn lost_read() -> io::Error {
    io::Error::other("a read that was submitted to the ring never completed")
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("completions", &self.completions).finish_non_exhaustive()
    }
}
