//! Raw transfer: stores all bytes until the end of the stream.

use std::os::fd::OwnedFd;

use evermap_observe::Moment;

use super::Receive;
use super::sink::Sink;
use super::space::{SpaceLimit, too_large};
use super::target::{Target, open_stream, set_default_mode};
use crate::error::Result;
use crate::meter::Meter;
use crate::net::report::{Connection, ReceiveReport, Traffic};
use crate::net::socket::Socket;
use crate::net::watch::{Direction, StopCause, Watched};
use crate::span::Work;
use crate::sys::write_signals::WriteSignalsBlocked;

/// Receives all bytes of `socket`. The end of the stream is taken as the end of the file.
pub(super) fn receive(
    receive: &Receive,
    target: &Target,
    socket: &Socket,
) -> Result<ReceiveReport> {
    let _no_signal = WriteSignalsBlocked::new();
    let begin = Moment::now();
    let kinds = receive.engines();
    let meter = Meter::new(receive.cancelled.clone());
    let file = target.prepare_raw()?;
    // The size is not announced, so the limit applies to the received bytes.
    let limit_bytes = match &file {
        Some(file) => SpaceLimit::of(file, file.path(), receive.transfer_bytes_max)?.limit_bytes(),
        None => u64::MAX,
    };
    let (mut dev_null, stream): (Option<OwnedFd>, OwnedFd);
    let mut sink = match (&file, target) {
        (Some(file), _) => Sink::into_file(socket, file, file.path(), &kinds)?,
        (None, Target::Stream(path)) => {
            stream = open_stream(path)?;
            Sink::into_file(socket, &stream, path, &kinds)?
        }
        (None, _) => {
            dev_null = None;
            Sink::discarding(socket, &mut dev_null, &kinds)?
        }
    };
    let mut work = Work::open(0);
    let watched = Watched {
        sockets: std::slice::from_ref(socket),
        control: None,
        direction: Direction::Receiving,
        meter: &meter,
        idle: receive.idle,
        total_bytes: 0,
        bytes_max: limit_bytes,
        on_progress: receive.on_progress.as_deref(),
        on_moved: None,
    };
    let mut take = || sink.take(socket, &mut work, &meter);
    let (taken, cause) = watched.during(|| match target {
        // A reader may wait for each byte.
        Target::Stream(_) => take(),
        _ => socket.with_wake_threshold(take),
    })?;
    if let (Some(file), Some(StopCause::TooMuch)) = (&file, cause) {
        return Err(too_large(file.path(), meter.arrived_bytes(), limit_bytes));
    }
    // A socket shut down by the watch also reports the end of the stream, which is not the end of
    // the file.
    if let Some(error) = cause.and_then(|cause| cause.error(socket)) {
        return Err(error);
    }
    taken.map_err(|stop| sink.error(stop, socket, meter.arrived_bytes()))?;
    let bytes = meter.arrived_bytes();
    let connection = Connection {
        peer: socket.address().into(),
        engine: sink.used(),
        bytes,
        spans: u64::from(bytes > 0),
    };
    let not_used = sink.not_used().to_vec();
    drop(sink);
    let path = match file {
        Some(file) => {
            set_default_mode(&file)?;
            Some(target.publish(file, receive.durability)?)
        }
        None => None,
    };
    Ok(ReceiveReport {
        path,
        size_bytes: bytes,
        verified: false,
        not_kept: Vec::new(),
        traffic: Traffic::since(&begin, &meter, vec![connection], not_used),
    })
}
