//! A pipe that holds references to pages between two splices.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::pipe::{
    PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice,
};

use crate::end::Ends;
use crate::engines::calls::{refusal_or_failure, retry};
use crate::engines::{Refusal, Stop};
use crate::error::Side;
use crate::meter::Meter;

/// Minimum capacity. With less, `sendfile` needs fewer calls: its internal pipe holds 64 KiB. The
/// kernel limits new pipes to 8 KiB once all pipes of the user hold 64 MiB.
const CAPACITY_BYTES_MIN: usize = 64 << 10;

/// Pipe of an engine.
#[derive(Debug)]
pub(in crate::engines) struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    capacity_bytes: usize,
    held_bytes: usize,
}

impl Pipe {
    /// Creates a pipe of `wanted_bytes`, or of the default size if that is refused. Refuses if the
    /// default is below the minimum.
    pub(in crate::engines) fn new(wanted_bytes: usize) -> Result<Pipe, Refusal> {
        let why = |errno: Errno| Refusal::new(format!("cannot create a pipe: {errno}"));
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(why)?;
        // Fails above `/proc/sys/fs/pipe-max-size`. Then the default size applies.
        let capacity_bytes = match fcntl_setpipe_size(&writer, wanted_bytes) {
            Ok(bytes) => bytes,
            Err(_) => fcntl_getpipe_size(&writer).map_err(why)?,
        };
        if capacity_bytes < CAPACITY_BYTES_MIN && capacity_bytes < wanted_bytes {
            return Err(Refusal::new(format!(
                "pipes are limited to {capacity_bytes} bytes because this user reached /proc/sys/fs/pipe-user-pages-soft"
            )));
        }
        Ok(Pipe { reader, writer, capacity_bytes, held_bytes: 0 })
    }

    /// Returns its capacity in bytes.
    pub(in crate::engines) fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    /// Returns the read end.
    pub(in crate::engines) fn reader(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// Returns the write end.
    pub(in crate::engines) fn writer(&self) -> BorrowedFd<'_> {
        self.writer.as_fd()
    }

    /// Returns the bytes in the pipe.
    pub(in crate::engines) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Reads up to `bytes_max` from the source. Returns 0 at an end that must be confirmed.
    pub(in crate::engines) fn fill(
        &mut self,
        ends: &Ends<'_>,
        meter: &Meter,
        offset: u64,
        bytes_max: u64,
    ) -> Result<usize, Stop> {
        let source = &ends.source;
        let bytes_max = bytes_max.min(self.capacity_bytes as u64) as usize;
        let filled = retry(meter, &[(source.fd(), PollFlags::IN)], || {
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

    /// Writes some of the held bytes at `offset` of the target. Returns the count.
    pub(in crate::engines) fn drain(
        &mut self,
        ends: &Ends<'_>,
        meter: &Meter,
        offset: u64,
    ) -> Result<usize, Stop> {
        let target = &ends.target;
        let drained = retry(meter, &[(target.fd(), PollFlags::OUT)], || {
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

    /// Reads out the held bytes, for ends that refuse a splice.
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
