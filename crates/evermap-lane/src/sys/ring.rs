//! A ring for one read at a time, into memory of its own: what the kernel may still be writing to is never given back.
//!
//! The ring is made without `IORING_SETUP_DEFER_TASKRUN` and its kin: a completion then reaches the queue by an interrupt of the waiting thread, so that it can be
//! seen without a system call, which is what polling is for.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;

use super::memory::Memory;

/// How the device's completions are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completions {
    /// The device is asked (`IORING_SETUP_IOPOLL`): no interrupt. Direct I/O, and queues of the driver's for it.
    Asked,
    /// The device interrupts.
    Interrupt,
}

/// How a read's completion came to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// While it was looked for.
    Polled,
    /// After the thread had slept.
    Slept,
}

/// How long one sleep for a completion is: a ring whose device is asked has nobody who wakes.
const NAP: Duration = Duration::from_micros(50);
/// The longest one wait for an interrupt: it is repeated until the completion is there.
const WAIT: Duration = Duration::from_millis(200);

/// A ring, and the memory that it reads into. One thread's.
pub(crate) struct Ring {
    uring: ManuallyDrop<IoUring>,
    memory: ManuallyDrop<Memory>,
    completions: Completions,
    is_registered: bool,
    /// A read is under way, and could not be waited for.
    is_lost: bool,
}

impl Ring {
    /// Says what could not be had. Memory that cannot be registered (its limit is that of locked memory) is read into without.
    pub(crate) fn new(
        memory: Memory,
        completions: Completions,
    ) -> Result<Self, (Memory, io::Error)> {
        let mut builder = IoUring::builder();
        builder.dontfork();
        if completions == Completions::Asked {
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
            is_lost: false,
        };
        ring.register();
        Ok(ring)
    }

    fn register(&mut self) {
        let bytes = self.memory.bytes_mut();
        let vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: the memory lives for as long as the ring: both are dropped together, the ring first, or neither.
        let registered = unsafe { self.uring.submitter().register_buffers(&[vector]) };
        self.is_registered = registered.is_ok();
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.is_registered
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// To be filled in another way, while nothing is under way.
    pub(crate) fn memory_mut(&mut self) -> io::Result<&mut Memory> {
        if self.is_lost { Err(lost()) } else { Ok(&mut self.memory) }
    }

    /// Ends the ring and gives its memory back, unless the kernel may still write there.
    pub(crate) fn into_memory(mut self) -> Option<Memory> {
        if self.is_lost {
            return None;
        }
        // SAFETY: taken and dropped once: `Drop` finds a ring that is lost, and does nothing. Nothing is under way, and the ring ends before its memory is used.
        let memory = unsafe {
            ManuallyDrop::drop(&mut self.uring);
            ManuallyDrop::take(&mut self.memory)
        };
        self.is_lost = true;
        Some(memory)
    }

    /// Other memory from now on, as for longer reads.
    pub(crate) fn replace_memory(&mut self, memory: Memory) -> io::Result<()> {
        if self.is_lost {
            return Err(lost());
        }
        if self.is_registered {
            self.uring.submitter().unregister_buffers()?;
        }
        *self.memory = memory;
        self.register();
        Ok(())
    }

    /// Reads `length` bytes from `offset` on into the memory's beginning, looks for the completion for `spin`, then sleeps. Gives the bytes that came.
    pub(crate) fn read(
        &mut self,
        file: &File,
        offset: u64,
        length: usize,
        spin: Duration,
    ) -> io::Result<(usize, Seen)> {
        if self.is_lost {
            return Err(lost());
        }
        let length = length.min(self.memory.len());
        let entry = self.entry(file, offset, length)?;
        // SAFETY: the memory stays until the read is over: it is waited for below, or ring and memory are never given back.
        if unsafe { self.uring.submission().push(&entry) }.is_err() {
            return Err(Errno::BUSY.into());
        }
        self.is_lost = true;
        self.enter(0, None)?;
        let until = Instant::now() + spin;
        let (result, seen) = self.complete(until)?;
        self.is_lost = false;
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
                (true, Completions::Interrupt) => std::hint::spin_loop(),
                (true, Completions::Asked) => self.enter(0, None)?,
                (false, Completions::Interrupt) => {
                    seen = Seen::Slept;
                    self.enter(1, Some(WAIT))?;
                }
                (false, Completions::Asked) => {
                    seen = Seen::Slept;
                    std::thread::sleep(NAP);
                    self.enter(0, None)?;
                }
            }
        }
    }

    fn enter(&mut self, wanted: usize, wait: Option<Duration>) -> io::Result<()> {
        // Of a ring whose device is asked, both ask it, whether something is waited for or not.
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
                // Time, a signal, or completions that are to be taken first.
                Some(Errno::TIME | Errno::INTR | Errno::AGAIN | Errno::BUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.is_lost {
            // The kernel may still write there.
            return;
        }
        // SAFETY: dropped once, here, and not used afterwards; the ring, which knows the memory, before the memory.
        unsafe {
            ManuallyDrop::drop(&mut self.uring);
            ManuallyDrop::drop(&mut self.memory);
        }
    }
}

fn lost() -> io::Error {
    io::Error::other("a read was given to the ring and never came back")
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("completions", &self.completions).finish_non_exhaustive()
    }
}
