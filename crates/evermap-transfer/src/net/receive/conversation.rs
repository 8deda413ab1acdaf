//! Receiver's side of the protocol: handshake, digests, completion.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use evermap_observe::Moment;

use super::slots::WaitState;
use super::target::{Target, flush, set_attributes};
use super::{Receive, data};
use crate::error::{Error, Result};
use crate::file;
use crate::meter::Meter;
use crate::net::digest::{Digester, chunks};
use crate::net::report::{ReceiveReport, Traffic};
use crate::net::socket::{Socket, Timeout};
use crate::net::watch::with_keep_alive;
use crate::net::wire::{
    DIGEST_CHUNK_BYTES, Frame, HELLO_BYTES, Hello, Malformed, Manifest, Reason, name_of,
};
use crate::policy::Durability;

/// Timeout for sending a failure to the sender.
const FAILURE_TIMEOUT: Duration = Duration::from_secs(1);

/// Refusal of a request for verification, which the sender is told.
const CANNOT_VERIFY: &str = "discarded data cannot be verified: send without `verify`";

/// Minimum rate of a manifest, in addition to the time for the hello.
const MANIFEST_BYTES_PER_SECOND: u32 = 64 << 10;

/// First message of a connection.
#[derive(Debug)]
pub(super) struct Greeting {
    pub hello: Hello,
    /// Present on a transfer's first connection.
    pub manifest: Option<Manifest>,
}

/// Source of further connections of a transfer. Returns the next one before the deadline.
pub(super) type Joins<'a> = dyn FnMut(Instant) -> Result<Option<(Socket, Hello)>> + 'a;

/// Reads the first message of an unidentified peer. Answers invalid ones with a failure.
pub(super) fn read_greeting(receive: &Receive, socket: &Socket) -> Result<Greeting> {
    let refuse = |what: Malformed| {
        let reason = match what {
            Malformed::Newer(_) => Reason::NewerVersion,
            Malformed::Bytes(_) => Reason::Malformed,
        };
        send_failure(socket, reason, &what.to_string());
        socket.malformed(what)
    };
    let timeout = Timeout::within(receive.handshake, &receive.cancelled);
    let mut bytes = [0; HELLO_BYTES];
    socket.read_exact(&mut bytes, timeout, "before its hello arrived")?;
    let hello = Hello::decode(&bytes).map_err(refuse)?;
    if hello.index > 0 {
        return Ok(Greeting { hello, manifest: None });
    }
    let more = Duration::from_secs((hello.manifest_bytes / MANIFEST_BYTES_PER_SECOND).into());
    let timeout = Timeout::within(receive.handshake + more, &receive.cancelled);
    let manifest = read_manifest(socket, hello.manifest_bytes as usize, timeout)?;
    let manifest = Manifest::decode(&manifest).map_err(refuse)?;
    Ok(Greeting { hello, manifest: Some(manifest) })
}

/// Reads a manifest. Memory is allocated as bytes arrive, not by the announced length.
fn read_manifest(socket: &Socket, length: usize, timeout: Timeout<'_>) -> Result<Vec<u8>> {
    const PIECE_BYTES: usize = 64 << 10;
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let begin = bytes.len();
        bytes.resize(length.min(begin + PIECE_BYTES), 0);
        socket.read_exact(&mut bytes[begin..], timeout, "before its manifest arrived")?;
    }
    Ok(bytes)
}

/// Receives the announced file. On error the sender is told the reason. No data is left, unless
/// only the flush of the directory failed.
pub(super) fn receive(
    receive: &Receive,
    target: &Target,
    first: &Socket,
    hello: Hello,
    manifest: &Manifest,
    joins: &mut Joins<'_>,
    wait_state: &WaitState,
) -> Result<ReceiveReport> {
    let begin = Moment::now();
    let received = transfer(receive, target, first, hello, manifest, joins, wait_state, &begin)
        .map_err(|error| wait_state.eviction_error(first).unwrap_or(error));
    if let Err(error) = &received {
        let (reason, text) = reason_for_sender(error);
        send_failure(first, reason, &text);
    }
    received
}

#[expect(clippy::too_many_arguments, reason = "inputs of a transfer, from one caller")]
fn transfer(
    receive: &Receive,
    target: &Target,
    first: &Socket,
    hello: Hello,
    manifest: &Manifest,
    joins: &mut Joins<'_>,
    wait_state: &WaitState,
    begin: &Moment,
) -> Result<ReceiveReport> {
    let handshake = || Timeout::within(receive.handshake, &receive.cancelled);
    if let Some(why) = target.refusal_reason(&manifest.name, receive.dot_files) {
        return Err(first.error(format!("the file name {why}")));
    }
    let file = target.prepare(manifest, receive.transfer_bytes_max)?;
    let digest_chunk_bytes = match (manifest.digest_chunk_bytes, receive.verify && file.is_some()) {
        (0, true) => DIGEST_CHUNK_BYTES,
        (wished, _) => wished,
    };
    if digest_chunk_bytes > 0 && file.is_none() {
        return Err(Error::Usage(CANNOT_VERIFY.into()));
    }
    let ready = Frame::Ready { digest_chunk_bytes, discards: file.is_none() };
    first.send_frame(&ready, handshake())?;
    let sockets = collect_connections(receive, first, hello, joins, &ready)?;
    let meter = Meter::new(receive.cancelled.clone());
    let (connections, not_used) =
        data::receive(receive, manifest, file.as_ref(), &sockets, &meter, wait_state)?;
    wait_state.set_busy();
    if let (Some(file), 1..) = (&file, digest_chunk_bytes) {
        read_back(receive, file, first, manifest, digest_chunk_bytes)?;
    }
    let idle = Timeout::idle(receive.idle, &receive.cancelled);
    first.send_frame(&Frame::Stored { bytes: meter.arrived_bytes() }, idle)?;
    wait_state.set_waiting();
    wait_keep(first, idle, manifest, file.as_ref())?;
    wait_state.set_busy();
    let (path, not_kept) = match file {
        Some(file) => {
            let not_kept = set_attributes(&file, manifest)?;
            // The file is kept from here on, even if the sender is gone.
            let keep_alive = || {
                let _ = first.send_frame(&Frame::Working, handshake());
                Ok(())
            };
            let path = match receive.durability {
                Durability::None => target.publish(file, Durability::None)?,
                durability => with_keep_alive(keep_alive, || target.publish(file, durability))?,
            };
            (Some(path), not_kept)
        }
        None => (None, Vec::new()),
    };
    // The file is published. If the sender is gone, it will report an uncertain outcome, but the
    // file stays.
    if let Err(error) = first.send_frame(&Frame::Published, handshake()) {
        tracing::debug!(%error, "could not confirm publication to the sender");
    }
    if let Some(progress) = &receive.on_progress {
        progress(meter.arrived_bytes(), manifest.data_bytes());
    }
    Ok(ReceiveReport {
        path,
        size_bytes: manifest.size_bytes,
        verified: digest_chunk_bytes > 0,
        not_kept,
        traffic: Traffic::since(begin, &meter, connections, not_used),
    })
}

/// Waits for all connections of a transfer. A connection that does not belong to it is refused.
fn collect_connections(
    receive: &Receive,
    first: &Socket,
    hello: Hello,
    joins: &mut Joins<'_>,
    ready: &Frame,
) -> Result<Vec<Socket>> {
    let mut sockets: Vec<Option<Socket>> = vec![None; hello.connections.into()];
    let mut come = 1;
    let end = Instant::now() + receive.handshake;
    while come < hello.connections {
        let Some((socket, other)) = joins(end)? else {
            return Err(first.error(format!(
                "only {come} of {} connections arrived: check whether a firewall or proxy limits their number",
                hello.connections
            )));
        };
        let is_of_this = other.id == hello.id && other.connections == hello.connections;
        match sockets.get_mut(usize::from(other.index)) {
            Some(slot @ None) if is_of_this && other.index > 0 => {
                socket.send_frame(ready, Timeout::within(receive.handshake, &receive.cancelled))?;
                *slot = Some(socket);
                come += 1;
            }
            _ => send_failure(
                &socket,
                Reason::Malformed,
                "this connection does not belong to the transfer",
            ),
        }
    }
    if let Some(slot) = sockets.first_mut() {
        *slot = Some(first.clone());
    }
    Ok(sockets.into_iter().flatten().collect())
}

/// Reads the file back from the disk and sends a digest of each chunk.
fn read_back(
    receive: &Receive,
    file: &file::Target<'_>,
    socket: &Socket,
    manifest: &Manifest,
    chunk_bytes: u64,
) -> Result<()> {
    let idle = Timeout::idle(receive.idle, &receive.cancelled);
    with_keep_alive(|| socket.send_frame(&Frame::Working, idle), || flush(file))?;
    let mut digester = Digester::new();
    for span in chunks(&manifest.extents, chunk_bytes) {
        let digest =
            digester.digest(file.as_fd(), span).map_err(Error::io("read back", file.path()))?;
        let Some(digest) = digest else {
            return Err(Error::io("read back", file.path())(std::io::Error::from(
                std::io::ErrorKind::UnexpectedEof,
            )));
        };
        if let Err(error) = socket.send_frame(&Frame::Digest { span, digest }, idle) {
            // The sender may have sent a reason before closing.
            return Err(
                read_discard_error(socket, manifest, Some(file), Duration::ZERO).unwrap_or(error)
            );
        }
    }
    Ok(())
}

/// Waits for the sender's request to keep the file.
fn wait_keep(
    socket: &Socket,
    idle: Timeout<'_>,
    manifest: &Manifest,
    file: Option<&file::Target<'_>>,
) -> Result<()> {
    loop {
        match socket.read_frame(idle, "before it asked to keep the file")? {
            Frame::Keep => return Ok(()),
            Frame::Working => {}
            Frame::Failed { reason, at, text } => {
                return Err(discard_error(socket, manifest, file, reason, at, &text));
            }
            other => {
                return Err(socket.error(format!(
                    "the sender sent `{}` unexpectedly: it violates the protocol",
                    other.name()
                )));
            }
        }
    }
}

/// Returns the sender's reason for giving up, if it sent one.
fn read_discard_error(
    socket: &Socket,
    manifest: &Manifest,
    file: Option<&file::Target<'_>>,
    time: Duration,
) -> Option<Error> {
    let (reason, at, text) = socket.read_failure(time)?;
    Some(discard_error(socket, manifest, file, reason, at, &text))
}

fn discard_error(
    socket: &Socket,
    manifest: &Manifest,
    file: Option<&file::Target<'_>>,
    reason: Reason,
    at: u64,
    text: &str,
) -> Error {
    let there = format!("{} at {}", name_of(&manifest.name).display(), socket.address());
    match (reason, file) {
        (Reason::SourceChanged, _) => {
            Error::SourceChanged { path: there.into(), what: "reported by the sender".into() }
        }
        (Reason::Differs, Some(file)) => Error::Differs {
            source_path: there.into(),
            target_path: file.path().into(),
            offset_bytes: at,
        },
        _ => Error::PeerRefused {
            address: socket.address().into(),
            why: format!("{text}; nothing was kept"),
        },
    }
}

/// Sends a failure to the peer, if it still reads.
pub(super) fn send_failure(socket: &Socket, reason: Reason, text: &str) {
    let never = std::sync::atomic::AtomicBool::new(false);
    let frame = Frame::Failed { reason, at: 0, text: text.into() };
    let _ = socket.send_frame(&frame, Timeout::within(FAILURE_TIMEOUT, &never));
    socket.end_sending();
}

/// Describes an error to the sender, who is not trusted. Leaves out all paths of the receiver.
fn reason_for_sender(error: &Error) -> (Reason, String) {
    match error {
        Error::NoSpace { needed_bytes, .. } => {
            (Reason::NoSpace, format!("not enough space for {needed_bytes} bytes"))
        }
        Error::TooLarge { needed_bytes, limit_bytes, .. } => (
            Reason::NoSpace,
            format!(
                "the receiver accepts at most {limit_bytes} bytes per transfer, not {needed_bytes}"
            ),
        ),
        Error::Io { operation, source, .. } => {
            (Reason::Other, format!("the receiver cannot {operation} its file: {source}"))
        }
        Error::Cancelled { .. } => (Reason::Cancelled, "the receiver was interrupted".into()),
        Error::Peer { what, .. } => (Reason::Malformed, what.clone()),
        Error::Usage(what) if what == CANNOT_VERIFY => (Reason::Other, what.clone()),
        _ => (Reason::Other, "the receiver gave up".into()),
    }
}
