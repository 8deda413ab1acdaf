//! Sends the bytes of a file over all connections in parallel.
//!
//! The extents are split into pieces. Each connection takes the next piece when it has sent its
//! last one, so a slower connection carries less.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::Send;
use super::refusal::failure_reason;
use super::source::Source;
use crate::end::{End, Ends};
use crate::engines::{EngineKind, Stop};
use crate::error::{Error, Result, Side};
use crate::meter::Meter;
use crate::net::engine_chain::EngineChain;
use crate::net::parallel::{AllResults, ConnectionResult, on_each};
use crate::net::report::Connection;
use crate::net::socket::{Socket, Timeout};
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
const REASON_TIMEOUT: Duration = Duration::from_secs(2);

/// Failure of one connection.
enum SendFailure {
    /// Error at this end.
    Local(Error),
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
) -> Result<AllResults> {
    let pieces = cut(extents, sockets.len());
    let next = AtomicUsize::new(0);
    let watched = Watched {
        sockets,
        control: sockets.first(),
        direction: Direction::Sending,
        meter,
        idle: send.idle,
        total_bytes: extents.iter().map(Span::bytes).sum(),
        bytes_max: u64::MAX,
        on_progress: send.on_progress.as_deref(),
        on_moved: None,
    };
    let (carried, cause) = watched.during(|| {
        on_each(sockets, Direction::Sending, |socket| {
            one_connection(send, source, &pieces, &next, socket, meter)
        })
    })?;
    let carried = match carried? {
        Ok(carried) => return Ok(carried),
        Err(failure) => failure,
    };
    let Some(first) = sockets.first() else { return Ok(AllResults::default()) };
    match (cause.and_then(|cause| cause.error(first)), carried) {
        (Some(error), _) | (None, SendFailure::Local(error)) => Err(error),
        (None, SendFailure::Connection(error)) => {
            Err(failure_reason(first, REASON_TIMEOUT).unwrap_or(error))
        }
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
) -> Result<ConnectionResult, SendFailure> {
    const DOING: &str = "while bytes were sent";
    let _no_signal = WriteSignalsBlocked::new();
    let file = source.reopen().map_err(SendFailure::Local)?;
    let open = || -> Result<Ends<'_>> {
        Ok(Ends {
            source: End::new(file.as_fd(), source.path())?,
            target: End::new(socket.as_fd(), &socket.path())?,
        })
    };
    let ends = open().map_err(SendFailure::Local)?;
    let timeout = Timeout::idle(send.idle, &send.cancelled);
    let _full = FullSegments::of(&ends);
    let mut chain = EngineChain::new(&send.engines());
    let (mut bytes, mut spans) = (0, 0);
    while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
        let header = Range::Bytes(*piece).encode();
        meter.called();
        socket.write_all(&header, true, timeout, DOING).map_err(SendFailure::Connection)?;
        let mut work = Work::new([*piece]);
        chain
            .transfer(&ends, &mut work, meter)
            .map_err(|stop| failure(stop, &chain, &ends, socket, DOING))?;
        bytes += piece.bytes();
        spans += 1;
    }
    meter.called();
    socket
        .write_all(&Range::End.encode(), false, timeout, DOING)
        .map_err(SendFailure::Connection)?;
    let connection =
        Connection { peer: socket.address().into(), engine: chain.used(), bytes, spans };
    Ok((connection, chain.not_used().to_vec()))
}

/// Converts an engine's stop into an error of this end or of the connection.
fn failure(
    stop: Stop,
    chain: &EngineChain,
    ends: &Ends<'_>,
    socket: &Socket,
    doing: &str,
) -> SendFailure {
    match stop {
        Stop::Failed { side: Side::Target, errno, .. } => {
            SendFailure::Connection(socket.connection_error(errno, doing))
        }
        stop => SendFailure::Local(error(stop, chain, ends)),
    }
}

/// Converts an engine's stop into an error about the file.
pub(super) fn error(stop: Stop, chain: &EngineChain, ends: &Ends<'_>) -> Error {
    let engine = chain.used().or(chain.not_used().last().map(|not| not.engine));
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
