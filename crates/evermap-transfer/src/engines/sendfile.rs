//! Engine `sendfile`: the kernel's internal pipe from a file to any descriptor. One call can move 2
//! GiB.
//!
//! It writes at the target's position, so the position of a target file is set and advances.

use rustix::event::PollFlags;
use rustix::fs::{SeekFrom, seek, sendfile};

use super::calls::{CANCELLABLE_BYTES_MAX, ended, refusal_or_failure_of_either, retry};
use super::{Engine, EngineKind, Refusal, Stop};
use crate::end::Ends;
use crate::meter::Meter;
use crate::span::{Span, Work};

/// The engine `sendfile`.
#[derive(Debug)]
pub struct Sendfile;

impl Sendfile {
    /// Makes one call at the start of `span`. Returns the bytes moved; 0 means an end to confirm.
    fn send(ends: &Ends<'_>, meter: &Meter, span: Span, bytes_max: u64) -> Result<usize, Stop> {
        let (source, target) = (&ends.source, &ends.target);
        let sent = retry(meter, &[(target.fd(), PollFlags::OUT)], || {
            if target.writes_at_offsets() {
                // Set it each time: after an interrupted call the position is unspecified.
                seek(target.fd(), SeekFrom::Start(span.begin))?;
            }
            let mut at = span.begin;
            meter.draining(|| sendfile(target.fd(), source.fd(), Some(&mut at), bytes_max as usize))
        })?;
        sent.map_err(|errno| refusal_or_failure_of_either("sendfile", ends, span.begin, errno))
    }
}

impl Engine for Sendfile {
    fn kind(&self) -> EngineKind {
        EngineKind::Sendfile
    }

    fn probe(&mut self, ends: &Ends<'_>) -> Result<(), Refusal> {
        if !ends.source.reads_at_offsets() {
            return Err(Refusal::new("sendfile reads only from files"));
        }
        if ends.target.appends() {
            return Err(Refusal::new("sendfile refuses a target opened for appending"));
        }
        Ok(())
    }

    fn step(
        &mut self,
        ends: &Ends<'_>,
        work: &mut Work,
        meter: &Meter,
        bytes_max: u64,
    ) -> Result<(), Stop> {
        let mut left = bytes_max;
        while left > 0 {
            let Some(span) = work.first() else { break };
            let sent =
                Self::send(ends, meter, span, span.bytes().min(left).min(CANCELLABLE_BYTES_MAX))?
                    as u64;
            if sent == 0 {
                return ended(ends, work, "sendfile", span.begin, meter);
            }
            work.arrived(sent);
            meter.arrived(sent);
            left -= sent;
        }
        Ok(())
    }

    fn drain(&mut self, _ends: &Ends<'_>, _work: &mut Work, _meter: &Meter) -> Result<(), Stop> {
        Ok(())
    }
}
