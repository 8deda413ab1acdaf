//! Destination of a connection's bytes: a file, a stream, or nowhere.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::target::open_dev_null;
use crate::end::{End, Ends};
use crate::engines::{EngineKind, Stop};
use crate::error::{Error, Result, Side};
use crate::meter::Meter;
use crate::net::engine_chain::EngineChain;
use crate::net::socket::Socket;
use crate::report::NotUsed;
use crate::span::Work;

/// Bytes discarded per call.
const DISCARD_BYTES: usize = 1 << 20;

/// Destination of a connection's bytes.
pub(super) enum Sink<'a> {
    /// A file or stream, written by engines.
    Engines { ends: Box<Ends<'a>>, chain: EngineChain },
    /// Discard: TCP drops bytes by count without a copy. Only the buffer's length is used; its
    /// pages are never touched.
    Discard { buffer: Vec<u8> },
}

impl<'a> Sink<'a> {
    /// Creates a destination for `target`, called `path` in messages.
    pub(super) fn into_file(
        socket: &'a Socket,
        target: &'a impl AsFd,
        path: &Path,
        kinds: &[EngineKind],
    ) -> Result<Sink<'a>> {
        let ends = Ends {
            source: End::new(socket.as_fd(), &socket.path())?,
            target: End::new(target.as_fd(), path)?,
        };
        Ok(Sink::Engines { ends: Box::new(ends), chain: EngineChain::new(kinds) })
    }

    /// Creates a destination that discards. UNIX sockets cannot drop bytes, so theirs are spliced
    /// to `/dev/null`, opened into `dev_null`.
    pub(super) fn discarding(
        socket: &'a Socket,
        dev_null: &'a mut Option<OwnedFd>,
        kinds: &[EngineKind],
    ) -> Result<Sink<'a>> {
        if socket.is_tcp() {
            return Ok(Sink::Discard { buffer: vec![0; DISCARD_BYTES] });
        }
        let dev_null = dev_null.insert(open_dev_null()?);
        Sink::into_file(socket, dev_null, Path::new("/dev/null"), kinds)
    }

    /// Reads all of `work` from the socket.
    pub(super) fn take(
        &mut self,
        socket: &Socket,
        work: &mut Work,
        meter: &Meter,
    ) -> Result<(), Stop> {
        match self {
            Sink::Engines { ends, chain } => chain.transfer(ends, work, meter),
            Sink::Discard { buffer } => discard(socket, buffer, work, meter),
        }
    }

    pub(super) fn used(&self) -> Option<EngineKind> {
        match self {
            Sink::Engines { chain, .. } => chain.used(),
            Sink::Discard { .. } => None,
        }
    }

    pub(super) fn not_used(&self) -> &[NotUsed] {
        match self {
            Sink::Engines { chain, .. } => chain.not_used(),
            Sink::Discard { .. } => &[],
        }
    }

    /// Converts a stop into an error about the connection or the target.
    pub(super) fn error(&self, stop: Stop, socket: &Socket, needed_bytes: u64) -> Error {
        const DOING: &str = "before all bytes arrived";
        match (stop, self) {
            (Stop::SourceEnded { at_bytes }, _) => socket.error(format!(
                "the peer closed the connection {DOING}, at byte {at_bytes}; nothing was kept: check the peer's messages and send again"
            )),
            (Stop::Failed { side: Side::Source, errno, .. }, _) => socket.connection_error(errno, DOING),
            (Stop::Failed { errno: Errno::NOSPC | Errno::DQUOT, .. }, Sink::Engines { ends, .. }) => {
                Error::NoSpace { path: ends.target.path().into(), needed_bytes }
            }
            (stop, Sink::Engines { ends, chain }) => {
                let engine = chain.used().or(chain.not_used().last().map(|not| not.engine));
                stop.into_error(engine.unwrap_or(EngineKind::ReadWrite), ends)
            }
            (Stop::Cancelled, Sink::Discard { .. }) => {
                Error::Cancelled { left: "no partial file remains".into() }
            }
            (stop, Sink::Discard { .. }) => socket.error(format!("{stop:?}")),
        }
    }
}

fn discard(socket: &Socket, buffer: &mut [u8], work: &mut Work, meter: &Meter) -> Result<(), Stop> {
    while let Some(span) = work.first() {
        if meter.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        let bytes_max = span.bytes().min(buffer.len() as u64) as usize;
        match meter
            .filling(|| rustix::net::recv(socket, &mut buffer[..bytes_max], RecvFlags::TRUNC))
        {
            Ok((_, 0)) if span.is_open() => work.ended(span.begin),
            Ok((_, 0)) => return Err(Stop::SourceEnded { at_bytes: span.begin }),
            Ok((_, bytes)) => {
                let bytes = bytes.min(bytes_max) as u64;
                work.arrived(bytes);
                meter.arrived(bytes);
            }
            Err(Errno::INTR) => {}
            Err(errno) => {
                return Err(Stop::Failed { side: Side::Source, operation: "read", errno });
            }
        }
    }
    Ok(())
}
