//! Raw transfer: stores all bytes until the end of the stream.

use std::os::fd::OwnedFd;

use evermap_observe::Moment;

use super::Receive;
use super::room::{Room, too_large};
use super::taker::Taker;
use super::target::{Target, open_stream, set_usual_mode};
use crate::error::Result;
use crate::meter::Meter;
use crate::net::report::{Connection, ReceiveReport, Traffic};
use crate::net::socket::Socket;
use crate::net::watch::{Direction, Seen, Watched};
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
    let most_bytes = match &file {
        Some(file) => Room::of(file, file.path(), receive.room_bytes_max)?.most_bytes(),
        None => u64::MAX,
    };
    let (mut nowhere, stream): (Option<OwnedFd>, OwnedFd);
    let mut taker = match (&file, target) {
        (Some(file), _) => Taker::into_file(socket, file, file.path(), &kinds)?,
        (None, Target::Stream(path)) => {
            stream = open_stream(path)?;
            Taker::into_file(socket, &stream, path, &kinds)?
        }
        (None, _) => {
            nowhere = None;
            Taker::into_nothing(socket, &mut nowhere, &kinds)?
        }
    };
    let mut work = Work::open(0);
    let watched = Watched {
        sockets: std::slice::from_ref(socket),
        words: None,
        direction: Direction::Receiving,
        meter: &meter,
        idle: receive.idle,
        total_bytes: 0,
        most_bytes,
        on_progress: receive.on_progress.as_deref(),
        on_moved: None,
    };
    let mut take = || taker.take(socket, &mut work, &meter);
    let (taken, seen) = watched.during(|| match target {
        // A reader may wait for each byte.
        Target::Stream(_) => take(),
        _ => socket.seldom_woken(take),
    })?;
    if let (Some(file), Some(Seen::TooMuch)) = (&file, seen) {
        return Err(too_large(file.path(), meter.arrived_bytes(), most_bytes));
    }
    // A socket shut down by the watch also reports the end of the stream, which is not the end of
    // the file.
    if let Some(error) = seen.and_then(|seen| seen.error(socket)) {
        return Err(error);
    }
    taken.map_err(|stop| taker.error(stop, socket, meter.arrived_bytes()))?;
    let bytes = meter.arrived_bytes();
    let connection = Connection {
        peer: socket.address().into(),
        engine: taker.used(),
        bytes,
        spans: u64::from(bytes > 0),
    };
    let not_used = taker.not_used().to_vec();
    drop(taker);
    let path = match file {
        Some(file) => {
            set_usual_mode(&file)?;
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
