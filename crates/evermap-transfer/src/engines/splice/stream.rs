//! Splicing to or from a stream. Bytes arrive in order with any number of pipes.
//!
//! One pipe is filled and drained in turn. With two, a thread fills one while this thread drains
//! the other. The fixed order limits the second pipe to reading ahead.

use std::sync::mpsc::sync_channel;

use super::pipe::Pipe;
use crate::end::Ends;
use crate::engines::calls::ended;
use crate::engines::{Refusal, Stop};
use crate::meter::Meter;
use crate::span::Work;

/// Fills and drains one pipe until `bytes_max` bytes arrived or the source ended.
pub(super) fn run(
    pipe: &mut Pipe,
    ends: &Ends<'_>,
    work: &mut Work,
    meter: &Meter,
    bytes_max: u64,
) -> Result<(), Stop> {
    // Write the rest of a failed step.
    drain(pipe, ends, work, meter)?;
    let mut left = bytes_max;
    while left > 0 {
        let Some(span) = work.first() else { break };
        let filled = pipe.fill(ends, meter, span.begin, span.bytes().min(left))?;
        if filled == 0 {
            return ended(ends, work, "splice", span.begin, meter);
        }
        drain(pipe, ends, work, meter)?;
        left -= filled as u64;
    }
    Ok(())
}

/// Writes all held bytes to the target.
fn drain(pipe: &mut Pipe, ends: &Ends<'_>, work: &mut Work, meter: &Meter) -> Result<(), Stop> {
    while pipe.held_bytes() > 0 {
        let Some(span) = work.first() else { break };
        let drained = pipe.drain(ends, meter, span.begin)? as u64;
        work.arrived(drained);
        meter.arrived(drained);
    }
    Ok(())
}

/// A pipe from the filling thread, with its source offset and the result of the fill.
type Filled = (Pipe, u64, Result<usize, Stop>);

/// Like [`run`], with several pipes that a second thread fills ahead. The source must have offsets,
/// so that bytes left in a pipe after an error can be read again.
pub(super) fn run_ahead(
    pipes: &mut Vec<Pipe>,
    ends: &Ends<'_>,
    work: &mut Work,
    meter: &Meter,
    bytes_max: u64,
) -> Result<(), Stop> {
    let plan = work.take(bytes_max);
    let (to_fill, empties) = sync_channel::<Pipe>(pipes.len());
    let (to_drain, filled) = sync_channel::<Filled>(pipes.len());
    for pipe in pipes.drain(..) {
        // Never blocks: the channel's capacity is the number of pipes.
        let _ = to_fill.send(pipe);
    }
    // The channels are moved in, so an early return closes them and ends the filling thread.
    std::thread::scope(move |scope| {
        let filling = std::thread::Builder::new().spawn_scoped(scope, move || {
            for span in plan {
                let mut at = span.begin;
                while at < span.end {
                    let Ok(mut pipe) = empties.recv() else { return };
                    let outcome = pipe.fill(ends, meter, at, span.end - at);
                    let bytes = *outcome.as_ref().unwrap_or(&0);
                    if to_drain.send((pipe, at, outcome)).is_err() || bytes == 0 {
                        return;
                    }
                    at += bytes as u64;
                }
            }
        });
        if filling.is_err() {
            return Err(Stop::Refused(Refusal::new("the filling thread cannot be started")));
        }
        for (mut pipe, at, outcome) in filled {
            match outcome {
                Ok(0) => return ended(ends, work, "splice", at, meter),
                Ok(_) => drain(&mut pipe, ends, work, meter)?,
                Err(stop) => return Err(stop),
            }
            let _ = to_fill.send(pipe);
        }
        Ok(())
    })
}
