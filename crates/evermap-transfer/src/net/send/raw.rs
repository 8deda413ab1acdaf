//! Raw transfer: the bytes of the file, then the end of the stream.

use std::os::fd::AsFd;

use evermap_observe::Moment;

use super::source::{Source, advise};
use super::{Send, data};
use crate::end::{End, Ends};
use crate::engines::{EngineKind, Stop};
use crate::error::{Result, Side};
use crate::meter::Meter;
use crate::net::engine_chain::EngineChain;
use crate::net::report::{Connection, SendReport, Traffic};
use crate::net::socket::Socket;
use crate::net::watch::{Direction, Watched};
use crate::report::NotUsed;
use crate::segments::FullSegments;
use crate::span::{Span, Work};
use crate::sys::write_signals::WriteSignalsBlocked;

/// Sends all of `source` over `socket` and ends the stream. On failure the connection is reset if
/// possible, so that the receiver does not mistake the part for the whole.
pub(super) fn send(send: &Send, source: &Source, socket: &Socket) -> Result<SendReport> {
    let begin = Moment::now();
    let meter = Meter::new(send.cancelled.clone());
    let sent = bytes(send, source, socket, &meter);
    let (engine, not_used) = match sent {
        Ok(carried) => carried,
        Err(error) => {
            socket.reset_when_closed();
            return Err(error);
        }
    };
    socket.end_sending();
    let bytes = meter.arrived_bytes();
    let connection =
        Connection { peer: socket.address().into(), engine, bytes, spans: u64::from(bytes > 0) };
    Ok(SendReport {
        path: source.path().into(),
        size_bytes: bytes,
        verified: false,
        published: false,
        traffic: Traffic::since(&begin, &meter, vec![connection], not_used),
    })
}

type Used = (Option<EngineKind>, Vec<NotUsed>);

fn bytes(send: &Send, source: &Source, socket: &Socket, meter: &Meter) -> Result<Used> {
    const DOING: &str = "while bytes were sent";
    let _no_signal = WriteSignalsBlocked::new();
    let ends = Ends {
        source: End::new(source.as_fd(), source.path())?,
        target: End::new(socket.as_fd(), &socket.path())?,
    };
    let has_known_size = source.has_known_size()?;
    let mut work = match has_known_size {
        true => Work::new([Span::new(0, source.size_bytes())]),
        false => Work::open(0),
    };
    if let Ok(file) = rustix::io::fcntl_dupfd_cloexec(source, 0) {
        advise(&file);
    }
    let _full = FullSegments::of(&ends);
    let mut chain = EngineChain::new(&send.engines());
    let watched = Watched {
        sockets: std::slice::from_ref(socket),
        control: None,
        direction: Direction::Sending,
        meter,
        idle: send.idle,
        total_bytes: work.bytes().unwrap_or(0),
        bytes_max: u64::MAX,
        on_progress: send.on_progress.as_deref(),
        on_moved: None,
    };
    let (carried, cause) = watched.during(|| chain.transfer(&ends, &mut work, meter))?;
    if let (Err(_), Some(error)) = (&carried, cause.and_then(|cause| cause.error(socket))) {
        return Err(error);
    }
    carried.map_err(|stop| match stop {
        Stop::Failed { side: Side::Target, errno, .. } => socket.connection_error(errno, DOING),
        stop => data::error(stop, &chain, &ends),
    })?;
    if has_known_size {
        source.unchanged()?;
    }
    let not_used = chain.not_used().to_vec();
    Ok((chain.used(), not_used))
}
