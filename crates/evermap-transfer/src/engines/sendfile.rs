//! Engine `sendfile`: the kernel's internal pipe from a file to any descriptor. One call can move 2
//! GiB.
//!
//! It writes at the target's position, so the position of a target file is set and advances.

use rustix::event::PollFlags;
use rustix::fs::{SeekFrom, seek, sendfile};

use super::calls::move_by_call;
use super::{Engine, EngineKind, Refusal, Stop};
use crate::end::Ends;
use crate::meter::Meter;
use crate::span::Work;

/// The engine `sendfile`.
#[derive(Debug)]
pub struct Sendfile;

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
        let (source, target) = (&ends.source, &ends.target);
        let waits_for = [(target.fd(), PollFlags::OUT)];
        move_by_call("sendfile", (ends, work, meter), bytes_max, &waits_for, |mut at, bytes| {
            if target.writes_at_offsets() {
                // Set it each time: after an interrupted call the position is unspecified.
                seek(target.fd(), SeekFrom::Start(at))?;
            }
            sendfile(target.fd(), source.fd(), Some(&mut at), bytes)
        })
    }
}
