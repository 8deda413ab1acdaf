//! Splicing where one end is a stream: bytes arrive in order, whatever the number of pipes.
//!
//! One pipe is filled and drained in turn. With two, a thread fills one while this one drains the other: the second pipe
//! reads ahead, and that is all it can do, as the order is fixed.

use std::sync::mpsc::sync_channel;

use super::pipe::Pipe;
use crate::end::Ends;
use crate::engines::Stop;
use crate::engines::calls::ended;
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
    // Left over from a step that failed.
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

/// Brings all that the pipe holds to the target.
fn drain(pipe: &mut Pipe, ends: &Ends<'_>, work: &mut Work, meter: &Meter) -> Result<(), Stop> {
    while pipe.held_bytes() > 0 {
        let Some(span) = work.first() else { break };
        let drained = pipe.drain(ends, meter, span.begin)? as u64;
        work.arrived(drained);
        meter.arrived(drained);
    }
    Ok(())
}

/// What the filling thread sends along with a pipe: what came of filling it, from which offset.
type Filled = (Pipe, u64, Result<usize, Stop>);

/// The same with several pipes, filled ahead by a thread of its own. The source must have offsets: what lies in a pipe when
/// the target fails can be read again.
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
        // The channel has room for all of them.
        let _ = to_fill.send(pipe);
    }
    // Moved in, the channel's end is gone when this side returns early, and the filling thread ends as well.
    std::thread::scope(move |scope| {
        scope.spawn(move || {
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
