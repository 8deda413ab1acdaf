//! Engine `read-write`: `read` into a buffer and `write` from it. Copies each byte twice and works
//! for every kind of end.
//!
//! It is the fallback for all others, and the best for small files: one read and one write.

use rustix::event::PollFlags;
use rustix::io::{Errno, pread, pwrite, read, write};

use super::calls::{ended, retry};
use super::{Engine, EngineKind, Refusal, Stop, Tuning};
use crate::end::Ends;
use crate::error::Side;
use crate::meter::Meter;
use crate::span::Work;

/// The engine `read-write`.
#[derive(Debug)]
pub struct ReadWrite {
    chunk_bytes: usize,
    buffer: Vec<u8>,
    /// Bytes `buffer[held.0..held.1]`, taken from a stream and not arrived.
    held: (usize, usize),
}

impl ReadWrite {
    /// Creates the engine. The buffer of `tuning.chunk_bytes` is allocated at the first step.
    pub fn new(tuning: &Tuning) -> ReadWrite {
        ReadWrite { chunk_bytes: tuning.chunk_bytes.max(1), buffer: Vec::new(), held: (0, 0) }
    }

    /// Creates an engine that only writes `bytes` to the target.
    pub(super) fn holding(bytes: Vec<u8>) -> ReadWrite {
        ReadWrite { chunk_bytes: bytes.len(), held: (0, bytes.len()), buffer: bytes }
    }

    /// Reads up to `bytes_max` at `offset` into the buffer. Returns 0 at the end of the source.
    fn fill(
        &mut self,
        ends: &Ends<'_>,
        meter: &Meter,
        offset: u64,
        bytes_max: usize,
    ) -> Result<usize, Stop> {
        let source = &ends.source;
        let buffer = &mut self.buffer[..bytes_max];
        let read = retry(meter, &[(source.fd(), PollFlags::IN)], || {
            meter.filling(|| match source.reads_at_offsets() {
                true => pread(source.fd(), &mut *buffer, offset),
                false => read(source.fd(), &mut *buffer),
            })
        })?;
        read.map_err(|errno| Stop::Failed { side: Side::Source, operation: "read", errno })
    }

    /// Writes the held bytes at `work`'s first offset.
    fn write_held(&mut self, ends: &Ends<'_>, work: &mut Work, meter: &Meter) -> Result<(), Stop> {
        let target = &ends.target;
        while self.held.0 < self.held.1 {
            let Some(span) = work.first() else { break };
            let bytes = &self.buffer[self.held.0..self.held.1];
            let written = retry(meter, &[(target.fd(), PollFlags::OUT)], || {
                meter.draining(|| match target.writes_at_offsets() {
                    true => pwrite(target.fd(), bytes, span.begin),
                    false => write(target.fd(), bytes),
                })
            })?;
            match written {
                // Stop, or a target that accepts nothing without an error would be retried forever.
                Ok(0) => {
                    return Err(Stop::Failed {
                        side: Side::Target,
                        operation: "write",
                        errno: Errno::IO,
                    });
                }
                Ok(written) => {
                    self.held.0 += written;
                    work.arrived(written as u64);
                    meter.arrived(written as u64);
                }
                Err(errno) => {
                    return Err(Stop::Failed { side: Side::Target, operation: "write", errno });
                }
            }
        }
        Ok(())
    }
}

impl Engine for ReadWrite {
    fn kind(&self) -> EngineKind {
        EngineKind::ReadWrite
    }

    fn probe(&mut self, _ends: &Ends<'_>) -> Result<(), Refusal> {
        Ok(())
    }

    fn step(
        &mut self,
        ends: &Ends<'_>,
        work: &mut Work,
        meter: &Meter,
        bytes_max: u64,
    ) -> Result<(), Stop> {
        if self.buffer.is_empty() {
            self.buffer = vec![0; self.chunk_bytes];
        }
        // Write the rest of a failed step.
        self.drain(ends, work, meter)?;
        let mut left = bytes_max;
        while left > 0 {
            let Some(span) = work.first() else { break };
            let wanted = span.bytes().min(left).min(self.chunk_bytes as u64) as usize;
            match self.fill(ends, meter, span.begin, wanted)? {
                0 => return ended(ends, work, "read", span.begin, meter),
                read => {
                    self.held = (0, read);
                    self.write_held(ends, work, meter)?;
                    left -= read as u64;
                }
            }
        }
        Ok(())
    }

    fn drain(&mut self, ends: &Ends<'_>, work: &mut Work, meter: &Meter) -> Result<(), Stop> {
        match ends.source.reads_at_offsets() {
            true => self.held = (0, 0),
            false => self.write_held(ends, work, meter)?,
        }
        Ok(())
    }
}
