//! Sends the bytes of a file over all connections in parallel.
//!
//! The extents are split into pieces. Each connection takes the next piece when it has sent its
//! last one, so a slower connection carries less.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::Send;
use super::conversation::last_words;
use super::source::Source;
use crate::end::{End, Ends};
use crate::engines::{EngineKind, Stop};
use crate::error::{Error, Result, Side};
use crate::meter::Meter;
use crate::net::carrier::Carrier;
use crate::net::parallel::{OfAll, OfOne, on_each};
use crate::net::report::Connection;
use crate::net::socket::{Patience, Socket};
use crate::net::watch::{Direction, Watched};
use crate::net::wire::Range;
use crate::segments::FullSegments;
use crate::span::{Span, Work};
use crate::sys::write_signals::WriteSignalsBlocked;

/// Piece sizes with several connections: large enough that headers and pipe turns are negligible,
/// small enough that all connections finish at about the same time.
const PIECE_BYTES_MIN: u64 = 1 << 20;
const PIECE_BYTES_MAX: u64 = 64 << 20;

/// Timeout for reading the receiver's reason after a failure.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Failure of one connection.
enum Broke {
    /// Error at this end.
    Here(Error),
    /// Connection error. The receiver may have sent a reason.
    Connection(Error),
}

/// Sends all of `extents` and the end marker on each connection.
pub(super) fn send(
    send: &Send,
    source: &Source,
    extents: &[Span],
    sockets: &[Socket],
    meter: &Meter,
) -> Result<OfAll> {
    let pieces = cut(extents, sockets.len());
    let next = AtomicUsize::new(0);
    let watched = Watched {
        sockets,
        words: sockets.first(),
        direction: Direction::Sending,
        meter,
        idle: send.idle,
        total_bytes: extents.iter().map(Span::bytes).sum(),
        most_bytes: u64::MAX,
        on_progress: send.on_progress.as_deref(),
        on_moved: None,
    };
    let (carried, seen) = watched.during(|| {
        on_each(sockets, Direction::Sending, |socket| {
            one_connection(send, source, &pieces, &next, socket, meter)
        })
    })?;
    let carried = match carried? {
        Ok(carried) => return Ok(carried),
        Err(broke) => broke,
    };
    let Some(first) = sockets.first() else { return Ok(OfAll::default()) };
    match (seen.and_then(|seen| seen.error(first)), carried) {
        (Some(error), _) | (None, Broke::Here(error)) => Err(error),
        (None, Broke::Connection(error)) => Err(last_words(first, LAST_WORDS).unwrap_or(error)),
    }
}

/// Sends pieces, each with its header, until none is left.
fn one_connection(
    send: &Send,
    source: &Source,
    pieces: &[Span],
    next: &AtomicUsize,
    socket: &Socket,
    meter: &Meter,
) -> Result<OfOne, Broke> {
    const DOING: &str = "while bytes were sent";
    let _no_signal = WriteSignalsBlocked::new();
    let file = source.another().map_err(Broke::Here)?;
    let open = || -> Result<Ends<'_>> {
        Ok(Ends {
            source: End::new(file.as_fd(), source.path())?,
            target: End::new(socket.as_fd(), &socket.path())?,
        })
    };
    let ends = open().map_err(Broke::Here)?;
    let patience = Patience::idle(send.idle, &send.cancelled);
    let _full = FullSegments::of(&ends);
    let mut carrier = Carrier::new(&send.engines());
    let (mut bytes, mut spans) = (0, 0);
    while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
        let header = Range::Bytes(*piece).encode();
        meter.called();
        socket.write_all(&header, true, patience, DOING).map_err(Broke::Connection)?;
        let mut work = Work::new([*piece]);
        carrier
            .carry(&ends, &mut work, meter)
            .map_err(|stop| broke(stop, &carrier, &ends, socket, DOING))?;
        bytes += piece.bytes();
        spans += 1;
    }
    meter.called();
    socket.write_all(&Range::End.encode(), false, patience, DOING).map_err(Broke::Connection)?;
    let connection =
        Connection { peer: socket.address().into(), engine: carrier.used(), bytes, spans };
    Ok((connection, carrier.not_used().to_vec()))
}

/// Converts an engine's stop into an error of this end or of the connection.
fn broke(stop: Stop, carrier: &Carrier, ends: &Ends<'_>, socket: &Socket, doing: &str) -> Broke {
    match stop {
        Stop::Failed { side: Side::Target, errno, .. } => {
            Broke::Connection(socket.broken(errno, doing))
        }
        stop => Broke::Here(error(stop, carrier, ends)),
    }
}

/// Converts an engine's stop into an error about the file.
pub(super) fn error(stop: Stop, carrier: &Carrier, ends: &Ends<'_>) -> Error {
    let engine = carrier.used().or(carrier.not_used().last().map(|not| not.engine));
    stop.into_error(engine.unwrap_or(EngineKind::ReadWrite), ends)
}

/// Splits the extents into pieces. A single connection sends extents unsplit.
fn cut(extents: &[Span], connections: usize) -> Vec<Span> {
    if connections < 2 {
        return extents.to_vec();
    }
    let total: u64 = extents.iter().map(Span::bytes).sum();
    let piece_bytes = (total / (connections as u64 * 4)).next_multiple_of(PIECE_BYTES_MIN);
    crate::net::digest::chunks(extents, piece_bytes.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_connections_get_several_pieces() {
        let extents = [Span::new(0, 16 << 20), Span::new(100 << 20, 101 << 20)];
        assert_eq!(cut(&extents, 1), extents);
        let pieces = cut(&extents, 2);
        assert!(pieces.len() >= 6, "{pieces:?}");
        assert_eq!(pieces.iter().map(Span::bytes).sum::<u64>(), 17 << 20);
        assert!(cut(&[Span::new(0, 1)], 4).len() == 1);
        assert!(cut(&[], 4).is_empty());
    }
}
