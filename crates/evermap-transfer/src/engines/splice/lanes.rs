//! Lanes: pipes that work in parallel between two ends with offsets, each on its own spans.
//!
//! Lanes are independent, because the file's spans are divided between them. The kernel serialises
//! where necessary: two drains into one inode take turns at its lock, so two pipes gain only where
//! filling waits.

use super::pipe::Pipe;
use crate::end::Ends;
use crate::engines::calls::has_ended;
use crate::engines::{Refusal, Stop};
use crate::meter::Meter;
use crate::span::{Span, Work};

/// Division of a file between lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// One part per lane: halves for two lanes.
    Parts,
    /// Alternating chunks of the pipe's size.
    Interleaved,
}

/// Sizes of parts are multiples of this. Otherwise two lanes would contend for one page-cache
/// folio.
const PART_BYTES: u64 = 1 << 20;

/// Divides the spans between the lanes.
pub(super) fn divide(
    spans: &[Span],
    lanes: usize,
    pattern: Pattern,
    chunk_bytes: u64,
) -> Vec<Vec<Span>> {
    let mut shares = vec![Vec::new(); lanes];
    let total: u64 = spans.iter().map(Span::bytes).sum();
    let part_bytes = match pattern {
        Pattern::Parts => total.div_ceil(lanes as u64).next_multiple_of(PART_BYTES),
        Pattern::Interleaved => chunk_bytes.max(1),
    };
    let mut taken: u64 = 0;
    for span in spans {
        let mut at = span.begin;
        while at < span.end {
            let part = taken / part_bytes;
            let until = at + (span.end - at).min((part + 1) * part_bytes - taken);
            shares[(part % lanes as u64) as usize].push(Span::new(at, until));
            taken += until - at;
            at = until;
        }
    }
    shares
}

/// Moves each lane's share in its own thread, and removes the arrived bytes from `work`.
pub(super) fn run(
    pipes: &mut [Pipe],
    shares: &[Vec<Span>],
    ends: &Ends<'_>,
    work: &mut Work,
    meter: &Meter,
) -> Result<(), Stop> {
    let outcomes: Vec<(Vec<Span>, Result<(), Stop>)> = std::thread::scope(|scope| {
        let mut lanes = pipes.iter_mut().zip(shares).filter(|(_, share)| !share.is_empty());
        let first = lanes.next();
        let others: Vec<_> = lanes
            .map(|(pipe, share)| {
                let thread = std::thread::Builder::new();
                thread.spawn_scoped(scope, move || lane(pipe, share, ends, meter))
            })
            .collect();
        let first = first.map(|(pipe, share)| lane(pipe, share, ends, meter));
        let refused = |why| (Vec::new(), Err(Stop::Refused(Refusal::new(why))));
        let joined = others.into_iter().map(|thread| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|_| refused("a lane's thread panicked")),
            Err(_) => refused("a lane's thread cannot be started"),
        });
        first.into_iter().chain(joined).collect()
    });
    let mut result = Ok(());
    for (arrived, outcome) in outcomes {
        arrived.into_iter().for_each(|part| work.arrived_at(part));
        // A failure replaces a refusal; otherwise the first error is kept.
        if matches!(
            (&result, &outcome),
            (Ok(()), Err(_)) | (Err(Stop::Refused(_)), Err(Stop::Failed { .. }))
        ) {
            result = outcome;
        }
    }
    result
}

/// Runs one lane. Returns the spans that arrived and the outcome.
fn lane(
    pipe: &mut Pipe,
    share: &[Span],
    ends: &Ends<'_>,
    meter: &Meter,
) -> (Vec<Span>, Result<(), Stop>) {
    let mut arrived = Vec::with_capacity(share.len());
    for span in share {
        let mut at = span.begin;
        let outcome = span_through(pipe, *span, &mut at, ends, meter);
        arrived.push(Span::new(span.begin, at));
        if outcome.is_err() {
            return (arrived, outcome);
        }
    }
    (arrived, Ok(()))
}

/// Moves `span`. Advances `at` to the end of the bytes that arrived.
fn span_through(
    pipe: &mut Pipe,
    span: Span,
    at: &mut u64,
    ends: &Ends<'_>,
    meter: &Meter,
) -> Result<(), Stop> {
    while *at < span.end {
        if pipe.fill(ends, meter, *at, span.end - *at)? == 0 {
            return Err(match has_ended(ends, *at, meter)? {
                true => Stop::SourceEnded { at_bytes: *at },
                false => Stop::Refused(Refusal::new(format!(
                    "splice moved nothing at byte {at}, before the end of the source"
                ))),
            });
        }
        while pipe.held_bytes() > 0 {
            let drained = pipe.drain(ends, meter, *at)? as u64;
            *at += drained;
            meter.arrived(drained);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_byte_is_in_exactly_one_share(
            lengths in prop::collection::vec((1u64..5_000_000, 1u64..3_000_000), 1..5),
            lanes in 1usize..6,
            interleaved: bool,
        ) {
            let mut begin = 0;
            let spans: Vec<Span> = lengths.iter().map(|(gap, length)| {
                let span = Span::new(begin + gap, begin + gap + length);
                begin = span.end;
                span
            }).collect();
            let pattern = if interleaved { Pattern::Interleaved } else { Pattern::Parts };
            let shares = divide(&spans, lanes, pattern, 1 << 20);
            prop_assert_eq!(shares.len(), lanes);
            let mut work = Work::new(spans.clone());
            for part in shares.iter().flatten() {
                let before = work.bytes();
                work.arrived_at(*part);
                prop_assert_eq!(work.bytes().map(|left| left + part.bytes()), before);
            }
            prop_assert!(work.is_done());
        }
    }

    #[test]
    fn two_lanes_get_one_half_each() {
        let shares = divide(&[Span::new(0, 8 << 20)], 2, Pattern::Parts, 1 << 20);
        assert_eq!(shares, [vec![Span::new(0, 4 << 20)], vec![Span::new(4 << 20, 8 << 20)]]);
    }
}
