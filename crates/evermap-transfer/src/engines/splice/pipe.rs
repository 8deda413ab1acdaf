//! A pipe as a place where the kernel keeps references to pages between two splices.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::pipe::{
    PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice,
};

use crate::end::Ends;
use crate::engines::calls::{persist, refusal_or_failure};
use crate::engines::{Stop, WhyNot};
use crate::error::Side;
use crate::meter::Meter;

/// Less than this, and `sendfile`, whose pipe is the kernel's own and holds 64 KiB, makes fewer turns. The
/// kernel gives a user 8 KiB once all pipes of that user hold 64 MiB.
const CAPACITY_BYTES_MIN: usize = 64 << 10;

/// A pipe of our own.
#[derive(Debug)]
pub(in crate::engines) struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    capacity_bytes: usize,
    held_bytes: usize,
}

impl Pipe {
    /// One that holds `wanted_bytes`, or as much as this user may have.
    pub(in crate::engines) fn new(wanted_bytes: usize) -> Result<Pipe, WhyNot> {
        let why = |errno: Errno| WhyNot::new(format!("no pipe is to be had: {errno}"));
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(why)?;
        // Refused above `/proc/sys/fs/pipe-max-size`: what it has then is what counts.
        let capacity_bytes = match fcntl_setpipe_size(&writer, wanted_bytes) {
            Ok(bytes) => bytes,
            Err(_) => fcntl_getpipe_size(&writer).map_err(why)?,
        };
        if capacity_bytes < CAPACITY_BYTES_MIN && capacity_bytes < wanted_bytes {
            return Err(WhyNot::new(format!(
                "pipes hold {capacity_bytes} bytes, as this user has used up what /proc/sys/fs/pipe-user-pages-soft allows"
            )));
        }
        Ok(Pipe { reader, writer, capacity_bytes, held_bytes: 0 })
    }

    /// What it can hold.
    pub(in crate::engines) fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    /// Where it is read.
    pub(in crate::engines) fn reader(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// Where it is written.
    pub(in crate::engines) fn writer(&self) -> BorrowedFd<'_> {
        self.writer.as_fd()
    }

    /// What is in it.
    pub(in crate::engines) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Takes up to `bytes_max` from the source; 0 is an end that is to be confirmed.
    pub(in crate::engines) fn fill(
        &mut self,
        ends: &Ends<'_>,
        meter: &Meter,
        offset: u64,
        bytes_max: u64,
    ) -> Result<usize, Stop> {
        let source = &ends.source;
        let bytes_max = bytes_max.min(self.capacity_bytes as u64) as usize;
        let filled = persist(meter, &[(source.fd(), PollFlags::IN)], || {
            let mut at = offset;
            let at = source.reads_at_offsets().then_some(&mut at);
            meter.filling(|| {
                splice(source.fd(), at, &self.writer, None, bytes_max, SpliceFlags::empty())
            })
        })?;
        let filled =
            filled.map_err(|errno| refusal_or_failure("splice", Side::Source, "read", errno))?;
        self.held_bytes += filled;
        Ok(filled)
    }

    /// Brings some of what it holds to `offset` of the target; says how much.
    pub(in crate::engines) fn drain(
        &mut self,
        ends: &Ends<'_>,
        meter: &Meter,
        offset: u64,
    ) -> Result<usize, Stop> {
        let target = &ends.target;
        let drained = persist(meter, &[(target.fd(), PollFlags::OUT)], || {
            let mut at = offset;
            let at = target.writes_at_offsets().then_some(&mut at);
            meter.draining(|| {
                splice(&self.reader, None, target.fd(), at, self.held_bytes, SpliceFlags::empty())
            })
        })?;
        match drained {
            Ok(0) => Err(Stop::Failed { side: Side::Target, operation: "write", errno: Errno::IO }),
            Ok(drained) => {
                self.held_bytes -= drained;
                Ok(drained)
            }
            Err(errno) => Err(refusal_or_failure("splice", Side::Target, "write", errno)),
        }
    }

    /// What is in it, read out: for ends that no splice can bring it to.
    pub(in crate::engines) fn read_out(&mut self) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; self.held_bytes];
        let mut read_bytes = 0;
        while read_bytes < bytes.len() {
            match rustix::io::read(self.reader.as_fd(), &mut bytes[read_bytes..]) {
                Ok(0) => return Err(Errno::IO),
                Ok(read) => read_bytes += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        self.held_bytes = 0;
        Ok(bytes)
    }
}
