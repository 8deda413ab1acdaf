//! A receiver's side of the protocol: what is said before the bytes, and after.

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

/// How long the sender is waited for to have taken the reason why this end gives up.
const FAREWELL: Duration = Duration::from_secs(1);

/// A manifest comes at least this fast, beyond the time for the hello.
const MANIFEST_BYTES_PER_SECOND: u32 = 64 << 10;

/// What a sender begins with.
#[derive(Debug)]
pub(super) struct Greeting {
    pub hello: Hello,
    /// On a transfer's first connection.
    pub manifest: Option<Manifest>,
}

/// Where further connections of a transfer come from: the next one that comes before the time is over.
pub(super) type Joins<'a> = dyn FnMut(Instant) -> Result<Option<(Socket, Hello)>> + 'a;

/// Reads what a stranger begins with, and tells those off that speak something else.
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
    socket.read_exact(&mut bytes, patience, "before it had said hello")?;
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

/// Memory is taken as bytes come, and not as they are announced.
fn read_manifest(socket: &Socket, length: usize, patience: Patience<'_>) -> Result<Vec<u8>> {
    const PIECE_BYTES: usize = 64 << 10;
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let begin = bytes.len();
        bytes.resize(length.min(begin + PIECE_BYTES), 0);
        socket.read_exact(&mut bytes[begin..], patience, "before its manifest had come")?;
    }
    Ok(bytes)
}

/// Receives what `hello` and `manifest` announce. Whatever goes wrong, the sender is told, and nothing is left.
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

#[expect(clippy::too_many_arguments, reason = "what a transfer begins with, from one caller")]
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
        return Err(first.error(format!("the name it sends, {why}")));
    }
    let file = target.prepare(manifest, receive.room_bytes_max)?;
    let digest_chunk_bytes = match (manifest.digest_chunk_bytes, receive.verify && file.is_some()) {
        (0, true) => DIGEST_CHUNK_BYTES,
        (wished, _) => wished,
    };
    if digest_chunk_bytes > 0 && file.is_none() {
        return Err(Error::Usage(
            "what is thrown away cannot be verified: send without `verify`".into(),
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
            // It is the receiver's to keep by now: whether the sender is still there is no matter.
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
    // The file has its name: a sender that is gone by now, and will say that it is not sure, changes nothing of that.
    if let Err(error) = first.say(&Frame::Published, handshake()) {
        tracing::debug!(%error, "the sender was not told that its file is published");
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

/// Waits for all of a transfer's connections. One that has no place here is refused, and changes nothing.
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
                "{come} of its {} connections came: see whether something between the two limits how many there may be",
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
                "there is no place for this connection in its transfer",
            ),
        }
    }
    if let Some(place) = sockets.first_mut() {
        *place = Some(first.clone());
    }
    Ok(sockets.into_iter().flatten().collect())
}

/// Reads the file back from its disk and sends the digest of each chunk.
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
            // It may have said why it no longer listens.
            return Err(discarded(socket, manifest, Some(file), Duration::ZERO).unwrap_or(error));
        }
    }
    Ok(())
}

/// Waits for the sender's word that the file is to be kept.
fn until_kept(
    socket: &Socket,
    idle: Patience<'_>,
    manifest: &Manifest,
    file: Option<&file::Target<'_>>,
) -> Result<()> {
    loop {
        match socket.listen(idle, "before it said that the file is to be kept")? {
            Frame::Keep => return Ok(()),
            Frame::Working => {}
            Frame::Failed { reason, at, text } => {
                return Err(why_discarded(socket, manifest, file, reason, at, &text));
            }
            other => {
                return Err(socket.error(format!(
                    "it says `{}` where that has no meaning: it is no sender to rely on",
                    other.name()
                )));
            }
        }
    }
}

/// Why the sender gave up, if it said so.
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
            Error::SourceChanged { path: there.into(), what: "the sender says so".into() }
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

/// Tells a sender that this is the end, if it still listens.
pub(super) fn say_failed(socket: &Socket, reason: Reason, text: &str) {
    let never = std::sync::atomic::AtomicBool::new(false);
    let frame = Frame::Failed { reason, at: 0, text: text.into() };
    let _ = socket.say(&frame, Patience::within(FAREWELL, &never));
    socket.end_sending();
}

/// What a stranger may know of an error: no paths of this machine.
fn in_words_for_the_sender(error: &Error) -> (Reason, String) {
    match error {
        Error::NoSpace { needed_bytes, .. } => {
            (Reason::NoSpace, format!("it has no space for {needed_bytes} bytes"))
        }
        Error::TooLarge { needed_bytes, most_bytes, .. } => (
            Reason::NoSpace,
            format!(
                "it takes at most {most_bytes} bytes from one transfer, and this one has {needed_bytes}"
            ),
        ),
        Error::Io { operation, source, .. } => {
            (Reason::Other, format!("it cannot {operation} its file: {source}"))
        }
        Error::Cancelled { .. } => (Reason::Cancelled, "it was interrupted".into()),
        Error::Peer { what, .. } => (Reason::Malformed, format!("it says of this end: {what}")),
        Error::Usage(what) => (Reason::Other, what.clone()),
        _ => (Reason::Other, "it gave up".into()),
    }
}
