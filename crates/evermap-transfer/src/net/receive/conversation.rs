//! Receiver's side of the protocol: handshake, digests, completion.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use evermap_observe::Moment;

use super::places::Standing;
use super::target::{Target, flush, set_attributes};
use super::{Receive, data};
use crate::error::{Error, Result};
use crate::file;
use crate::meter::Meter;
use crate::net::digest::{Digester, chunks};
use crate::net::report::{ReceiveReport, Traffic};
use crate::net::socket::{Patience, Socket};
use crate::net::watch::with_signs;
use crate::net::wire::{
    DIGEST_CHUNK_BYTES, Frame, HELLO_BYTES, Hello, Malformed, Manifest, Reason, name_of,
};
use crate::policy::Durability;

/// Timeout for sending a failure to the sender.
const FAREWELL: Duration = Duration::from_secs(1);

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
pub(super) fn greet(receive: &Receive, socket: &Socket) -> Result<Greeting> {
    let refuse = |what: Malformed| {
        let reason = match what {
            Malformed::Newer(_) => Reason::NewerVersion,
            Malformed::Bytes(_) => Reason::Malformed,
        };
        say_failed(socket, reason, &what.to_string());
        socket.malformed(what)
    };
    let patience = Patience::within(receive.handshake, &receive.cancelled);
    let mut bytes = [0; HELLO_BYTES];
    socket.read_exact(&mut bytes, patience, "before its hello arrived")?;
    let hello = Hello::decode(&bytes).map_err(refuse)?;
    if hello.index > 0 {
        return Ok(Greeting { hello, manifest: None });
    }
    let more = Duration::from_secs((hello.manifest_bytes / MANIFEST_BYTES_PER_SECOND).into());
    let patience = Patience::within(receive.handshake + more, &receive.cancelled);
    let manifest = read_manifest(socket, hello.manifest_bytes as usize, patience)?;
    let manifest = Manifest::decode(&manifest).map_err(refuse)?;
    Ok(Greeting { hello, manifest: Some(manifest) })
}

/// Reads a manifest. Memory is allocated as bytes arrive, not by the announced length.
fn read_manifest(socket: &Socket, length: usize, patience: Patience<'_>) -> Result<Vec<u8>> {
    const PIECE_BYTES: usize = 64 << 10;
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let begin = bytes.len();
        bytes.resize(length.min(begin + PIECE_BYTES), 0);
        socket.read_exact(&mut bytes[begin..], patience, "before its manifest arrived")?;
    }
    Ok(bytes)
}

/// Receives the announced file. On error the sender is told the reason, and no data is left.
pub(super) fn receive(
    receive: &Receive,
    target: &Target,
    first: &Socket,
    hello: Hello,
    manifest: &Manifest,
    joins: &mut Joins<'_>,
    standing: &Standing,
) -> Result<ReceiveReport> {
    let begin = Moment::now();
    let received = whole(receive, target, first, hello, manifest, joins, standing, &begin)
        .map_err(|error| standing.displaced(first).unwrap_or(error));
    if let Err(error) = &received {
        let (reason, text) = in_words_for_the_sender(error);
        say_failed(first, reason, &text);
    }
    received
}

#[expect(clippy::too_many_arguments, reason = "inputs of a transfer, from one caller")]
fn whole(
    receive: &Receive,
    target: &Target,
    first: &Socket,
    hello: Hello,
    manifest: &Manifest,
    joins: &mut Joins<'_>,
    standing: &Standing,
    begin: &Moment,
) -> Result<ReceiveReport> {
    let handshake = || Patience::within(receive.handshake, &receive.cancelled);
    if let Some(why) = target.why_refused(&manifest.name, receive.dot_files) {
        return Err(first.error(format!("the file name {why}")));
    }
    let file = target.prepare(manifest, receive.room_bytes_max)?;
    let digest_chunk_bytes = match (manifest.digest_chunk_bytes, receive.verify && file.is_some()) {
        (0, true) => DIGEST_CHUNK_BYTES,
        (wished, _) => wished,
    };
    if digest_chunk_bytes > 0 && file.is_none() {
        return Err(Error::Usage(
            "discarded data cannot be verified: send without `verify`".into(),
        ));
    }
    let ready = Frame::Ready { digest_chunk_bytes, discards: file.is_none() };
    first.say(&ready, handshake())?;
    let sockets = gather(receive, first, hello, joins, &ready)?;
    let meter = Meter::new(receive.cancelled.clone());
    let (connections, not_used) =
        data::receive(receive, manifest, file.as_ref(), &sockets, &meter, standing)?;
    standing.is_at_work();
    if let (Some(file), 1..) = (&file, digest_chunk_bytes) {
        read_back(receive, file, first, manifest, digest_chunk_bytes)?;
    }
    let idle = Patience::idle(receive.idle, &receive.cancelled);
    first.say(&Frame::Stored { bytes: meter.arrived_bytes() }, idle)?;
    standing.awaits_more();
    until_kept(first, idle, manifest, file.as_ref())?;
    standing.is_at_work();
    let (path, not_kept) = match file {
        Some(file) => {
            let not_kept = set_attributes(&file, manifest)?;
            // The file is kept from here on, even if the sender is gone.
            let sign = || {
                let _ = first.say(&Frame::Working, handshake());
                Ok(())
            };
            let path = match receive.durability {
                Durability::None => target.publish(file, Durability::None)?,
                durability => with_signs(sign, || target.publish(file, durability))?,
            };
            (Some(path), not_kept)
        }
        None => (None, Vec::new()),
    };
    // The file is published. If the sender is gone, it will report an uncertain outcome, but the
    // file stays.
    if let Err(error) = first.say(&Frame::Published, handshake()) {
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
fn gather(
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
            Some(place @ None) if is_of_this && other.index > 0 => {
                socket.say(ready, Patience::within(receive.handshake, &receive.cancelled))?;
                *place = Some(socket);
                come += 1;
            }
            _ => say_failed(
                &socket,
                Reason::Malformed,
                "this connection does not belong to the transfer",
            ),
        }
    }
    if let Some(place) = sockets.first_mut() {
        *place = Some(first.clone());
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
    let idle = Patience::idle(receive.idle, &receive.cancelled);
    with_signs(|| socket.say(&Frame::Working, idle), || flush(file))?;
    let mut digester = Digester::new();
    for span in chunks(&manifest.extents, chunk_bytes) {
        let digest =
            digester.digest(file.as_fd(), span).map_err(Error::io("read back", file.path()))?;
        let Some(digest) = digest else {
            return Err(Error::io("read back", file.path())(std::io::Error::from(
                std::io::ErrorKind::UnexpectedEof,
            )));
        };
        if let Err(error) = socket.say(&Frame::Digest { span, digest }, idle) {
            // The sender may have sent a reason before closing.
            return Err(discarded(socket, manifest, Some(file), Duration::ZERO).unwrap_or(error));
        }
    }
    Ok(())
}

/// Waits for the sender's request to keep the file.
fn until_kept(
    socket: &Socket,
    idle: Patience<'_>,
    manifest: &Manifest,
    file: Option<&file::Target<'_>>,
) -> Result<()> {
    loop {
        match socket.listen(idle, "before it asked to keep the file")? {
            Frame::Keep => return Ok(()),
            Frame::Working => {}
            Frame::Failed { reason, at, text } => {
                return Err(why_discarded(socket, manifest, file, reason, at, &text));
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
fn discarded(
    socket: &Socket,
    manifest: &Manifest,
    file: Option<&file::Target<'_>>,
    time: Duration,
) -> Option<Error> {
    let (reason, at, text) = socket.last_words(time)?;
    Some(why_discarded(socket, manifest, file, reason, at, &text))
}

fn why_discarded(
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
pub(super) fn say_failed(socket: &Socket, reason: Reason, text: &str) {
    let never = std::sync::atomic::AtomicBool::new(false);
    let frame = Frame::Failed { reason, at: 0, text: text.into() };
    let _ = socket.say(&frame, Patience::within(FAREWELL, &never));
    socket.end_sending();
}

/// Describes an error to an unidentified peer, without paths of this machine.
fn in_words_for_the_sender(error: &Error) -> (Reason, String) {
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
        Error::Peer { what, .. } => (Reason::Malformed, format!("{what}")),
        Error::Usage(what) => (Reason::Other, what.clone()),
        _ => (Reason::Other, "the receiver gave up".into()),
    }
}
