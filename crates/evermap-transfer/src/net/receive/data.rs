//! Receives the bytes of a file from all connections in parallel, with a thread for each.

use std::sync::{Mutex, PoisonError};

use super::Receive;
use super::sink::Sink;
use super::slots::WaitState;
use super::space::{STEP_BYTES, reserve};
use crate::engines::Stop;
use crate::error::Result;
use crate::file;
use crate::meter::Meter;
use crate::net::parallel::{AllResults, ConnectionResult, on_each};
use crate::net::report::Connection;
use crate::net::socket::{Socket, Timeout, WAKE_BYTES};
use crate::net::unclaimed::Unclaimed;
use crate::net::watch::{Direction, Watched};
use crate::net::wire::{Manifest, RANGE_BYTES, Range};
use crate::span::{Span, Work};
use crate::sys::write_signals::WriteSignalsBlocked;

/// State shared by the connections.
struct Shared<'a> {
    receive: &'a Receive,
    manifest: &'a Manifest,
    /// `None` discards the data.
    file: Option<&'a file::Target<'a>>,
    unclaimed: Mutex<Unclaimed>,
    meter: &'a Meter,
}

/// Receives all extents of `manifest`.
pub(super) fn receive(
    receive: &Receive,
    manifest: &Manifest,
    file: Option<&file::Target<'_>>,
    sockets: &[Socket],
    meter: &Meter,
    wait_state: &WaitState,
) -> Result<AllResults> {
    let shared = Shared {
        receive,
        manifest,
        file,
        unclaimed: Mutex::new(Unclaimed::new(&manifest.extents)),
        meter,
    };
    let watched = Watched {
        sockets,
        control: None,
        direction: Direction::Receiving,
        meter,
        idle: receive.idle,
        total_bytes: manifest.data_bytes(),
        bytes_max: u64::MAX,
        on_progress: receive.on_progress.as_deref(),
        on_moved: Some(&|| wait_state.set_waiting()),
    };
    let (carried, cause) = watched.during(|| {
        on_each(sockets, Direction::Receiving, |socket| shared.one_connection(socket))
    })?;
    let Some(first) = sockets.first() else { return Ok(AllResults::default()) };
    // If the watch shut down the sockets, its reason is the cause.
    if let Some(error) = cause.and_then(|cause| cause.error(first)) {
        return Err(error);
    }
    let carried = carried??;
    let missing = shared.unclaimed.into_inner().unwrap_or_else(PoisonError::into_inner).bytes();
    match missing {
        0 => Ok(carried),
        missing => Err(first.error(format!(
            "the sender finished, but {missing} of {} bytes are missing: it violates the protocol",
            manifest.data_bytes()
        ))),
    }
}

impl Shared<'_> {
    /// Receives span after span. Each header must name unclaimed bytes.
    fn one_connection(&self, socket: &Socket) -> Result<ConnectionResult> {
        let _no_signal = WriteSignalsBlocked::new();
        let kinds = self.receive.engines();
        let mut dev_null = None;
        let mut sink = match self.file {
            Some(file) => Sink::into_file(socket, file, file.path(), &kinds)?,
            None => Sink::discarding(socket, &mut dev_null, &kinds)?,
        };
        let timeout = Timeout::idle(self.receive.idle, &self.receive.cancelled);
        let (mut bytes, mut spans) = (0, 0);
        loop {
            let mut header = [0; RANGE_BYTES];
            self.meter.called();
            socket.read_exact(&mut header, timeout, "before all bytes arrived")?;
            let span = match Range::decode(&header).map_err(|what| socket.malformed(what))? {
                Range::Bytes(span) => span,
                Range::End => break,
            };
            let claimed = self.unclaimed.lock().unwrap_or_else(PoisonError::into_inner).claim(span);
            claimed.map_err(|what| socket.malformed(what))?;
            let mut rest = span;
            while !rest.is_empty() {
                let step =
                    Span::new(rest.begin, rest.end.min(rest.begin.saturating_add(STEP_BYTES)));
                if let Some(file) = self.file {
                    reserve(file, file.path(), step, self.manifest.data_bytes())?;
                }
                self.take(step, socket, &mut sink)
                    .map_err(|stop| sink.error(stop, socket, self.manifest.data_bytes()))?;
                rest.begin = step.end;
            }
            bytes += span.bytes();
            spans += 1;
        }
        let connection =
            Connection { peer: socket.address().into(), engine: sink.used(), bytes, spans };
        Ok((connection, sink.not_used().to_vec()))
    }

    /// Receives one step of a span. All but its last part is read with a wake threshold, because
    /// enough bytes are known to follow.
    fn take(
        &self,
        span: Span,
        socket: &Socket,
        sink: &mut Sink<'_>,
    ) -> std::result::Result<(), Stop> {
        let rest = span.end.saturating_sub(WAKE_BYTES).max(span.begin);
        if rest > span.begin {
            let mut most = Work::new([Span::new(span.begin, rest)]);
            socket.with_wake_threshold(|| sink.take(socket, &mut most, self.meter))?;
        }
        sink.take(socket, &mut Work::new([Span::new(rest, span.end)]), self.meter)
    }
}
