//! Sender's side of the protocol: handshake, digests, completion.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use evermap_observe::Moment;

use super::source::Source;
use super::{Send, data};
use crate::error::{Error, Result};
use crate::meter::Meter;
use crate::net::digest::{Digester, chunks};
use crate::net::report::{SendReport, Traffic};
use crate::net::socket::{Patience, Socket};
use crate::net::watch::SIGN_EVERY;
use crate::net::wire::{
    DIGEST_CHUNK_BYTES, Frame, Hello, Manifest, Reason, TransferId, is_digest_chunk, name_of,
};

/// Timeout for sending a failure to the receiver.
const FAREWELL: Duration = Duration::from_secs(2);

/// Receiver's answer to the manifest.
#[derive(Debug, Clone, Copy)]
struct Terms {
    /// Bytes per digest of the data it reads back; 0 for none.
    digest_chunk_bytes: u64,
    /// It discards the data.
    discards: bool,
}

/// Sends `source` over `connections` connections, which `more` creates.
pub(super) fn send(
    send: &Send,
    source: &Source,
    connections: u16,
    mut more: impl FnMut() -> Result<Socket>,
) -> Result<SendReport> {
    if !source.has_a_size()? {
        return Err(Error::Usage(format!(
            "{} has no known size: send it with `raw` to a receiver with `raw`",
            source.path().display()
        )));
    }
    let manifest = source.manifest(if send.verify { DIGEST_CHUNK_BYTES } else { 0 })?;
    let begin = Moment::now();
    let id = new_id()?;
    let first = more()?;
    let terms = introduce(send, &first, id, connections, &manifest)?;
    let mut sockets = vec![first.clone()];
    for index in 1..connections {
        let socket = more()?;
        join(send, &socket, &first, Hello { id, index, connections, manifest_bytes: 0 })?;
        sockets.push(socket);
    }
    let meter = Meter::new(send.cancelled.clone());
    let (carried, not_used) = data::send(send, source, &manifest.extents, &sockets, &meter)?;
    conclude(send, source, &first, &manifest, terms)?;
    if let Some(progress) = &send.on_progress {
        progress(meter.arrived_bytes(), manifest.data_bytes());
    }
    Ok(SendReport {
        path: source.path().into(),
        size_bytes: manifest.size_bytes,
        verified: terms.digest_chunk_bytes > 0,
        published: !terms.discards,
        traffic: Traffic::since(&begin, &meter, carried, not_used),
    })
}

fn new_id() -> Result<TransferId> {
    let mut id = TransferId::default();
    getrandom::fill(&mut id).map_err(|error| {
        Error::io("get random bytes for", "a transfer's id")(std::io::Error::other(error))
    })?;
    Ok(id)
}

/// Sends hello and manifest, and reads the receiver's answer.
fn introduce(
    send: &Send,
    socket: &Socket,
    id: TransferId,
    connections: u16,
    manifest: &Manifest,
) -> Result<Terms> {
    let bytes = manifest.encode();
    let manifest_bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut greeting = Hello { id, index: 0, connections, manifest_bytes }.encode().to_vec();
    greeting.extend(bytes);
    let answered = socket
        .write_all(
            &greeting,
            false,
            Patience::idle(send.handshake, &send.cancelled),
            "while the manifest was sent",
        )
        .and_then(|()| answer(send, socket));
    let terms = or_last_words(answered, socket)?;
    if (terms.digest_chunk_bytes != 0 && !is_digest_chunk(terms.digest_chunk_bytes))
        || (send.verify && terms.digest_chunk_bytes != manifest.digest_chunk_bytes)
    {
        return Err(socket.error(format!(
            "the receiver agreed to digests of {} bytes each instead of {}: it violates the protocol",
            terms.digest_chunk_bytes, manifest.digest_chunk_bytes
        )));
    }
    Ok(terms)
}

/// Adds a connection.
fn join(send: &Send, socket: &Socket, first: &Socket, hello: Hello) -> Result<()> {
    let patience = Patience::within(send.handshake, &send.cancelled);
    let answered = socket
        .write_all(&hello.encode(), false, patience, "while another connection was made")
        .and_then(|()| answer(send, socket));
    or_last_words(answered, first).map(|_| ())
}

fn answer(send: &Send, socket: &Socket) -> Result<Terms> {
    loop {
        // A receiver that reserves space for a large file sends keep-alives meanwhile.
        let patience = Patience::within(send.handshake, &send.cancelled);
        match socket.listen(
            patience,
            "while waiting for its answer (is it an `evermap receive` without `--raw`?)",
        )? {
            Frame::Ready { digest_chunk_bytes, discards } => {
                return Ok(Terms { digest_chunk_bytes, discards });
            }
            Frame::Working => {}
            other => return Err(unexpected(socket, other)),
        }
    }
}

/// After the last byte: checks the stored data and tells the receiver to keep it.
fn conclude(
    send: &Send,
    source: &Source,
    socket: &Socket,
    manifest: &Manifest,
    terms: Terms,
) -> Result<()> {
    let stored = compare(send, source, socket, manifest, terms);
    let stored = or_last_words(stored, socket)?;
    if stored != manifest.data_bytes() {
        discard(send, socket, Reason::Other, 0, "not all bytes were stored");
        return Err(socket.error(format!(
            "the receiver stored {stored} bytes of {}: it violates the protocol",
            manifest.data_bytes()
        )));
    }
    if let Err(changed) = source.unchanged() {
        discard(send, socket, Reason::SourceChanged, 0, "the source changed while it was sent");
        return Err(changed);
    }
    let published = socket
        .say(&Frame::Keep, Patience::idle(send.idle, &send.cancelled))
        .and_then(|()| until_published(send, socket));
    or_last_words(published, socket).map_err(|error| match error {
        Error::Peer { address, what } => Error::Peer {
            address,
            what: format!("{what} (it had all data before: the file may exist there)"),
        },
        error => error,
    })
}

/// Compares digests as they arrive. Returns the number of bytes that the receiver stored.
fn compare(
    send: &Send,
    source: &Source,
    socket: &Socket,
    manifest: &Manifest,
    terms: Terms,
) -> Result<u64> {
    let patience = Patience::idle(send.idle, &send.cancelled);
    let mut digester = None;
    let chunk_bytes = terms.digest_chunk_bytes;
    let mut due =
        (chunk_bytes > 0).then(|| chunks(&manifest.extents, chunk_bytes)).into_iter().flatten();
    let mut sign = Instant::now();
    loop {
        match socket.listen(patience, "while waiting for its confirmation")? {
            Frame::Working => {}
            Frame::Digest { span, digest } => {
                if due.next() != Some(span) {
                    return Err(unexpected(socket, Frame::Digest { span, digest }));
                }
                let here = digester.get_or_insert_with(Digester::new).digest(source.as_fd(), span);
                match here.map_err(Error::io("read", source.path()))? {
                    Some(here) if here == digest => {}
                    Some(_) => return Err(differs(send, source, socket, manifest, span.begin)),
                    None => {
                        discard(send, socket, Reason::SourceChanged, 0, "the source was cut short");
                        source.unchanged()?;
                    }
                }
                // Reading may take longer at this end.
                if sign.elapsed() >= SIGN_EVERY {
                    socket.say(&Frame::Working, patience)?;
                    sign = Instant::now();
                }
            }
            Frame::Stored { bytes } if due.next().is_none() => return Ok(bytes),
            other => return Err(unexpected(socket, other)),
        }
    }
}

/// Handles a wrong digest: the source changed, or the copy is damaged.
fn differs(send: &Send, source: &Source, socket: &Socket, manifest: &Manifest, at: u64) -> Error {
    if let Err(changed) = source.unchanged() {
        discard(send, socket, Reason::SourceChanged, 0, "the source changed while it was sent");
        return changed;
    }
    discard(send, socket, Reason::Differs, at, "the data read back differs from the data sent");
    let name = name_of(&manifest.name).display();
    Error::Differs {
        source_path: source.path().into(),
        target_path: format!("{name} at {}", socket.address()).into(),
        offset_bytes: at,
    }
}

fn until_published(send: &Send, socket: &Socket) -> Result<()> {
    let patience = Patience::idle(send.idle, &send.cancelled);
    loop {
        match socket.listen(patience, "before it confirmed publication")? {
            Frame::Published => return Ok(()),
            Frame::Working => {}
            other => return Err(unexpected(socket, other)),
        }
    }
}

/// Tells the receiver to discard the file. It also does so if this message never arrives.
fn discard(send: &Send, socket: &Socket, reason: Reason, at: u64, text: &str) {
    let frame = Frame::Failed { reason, at, text: text.into() };
    let _ = socket.say(&frame, Patience::within(FAREWELL, &send.cancelled));
    socket.end_sending();
}

/// Creates the error for an unexpected frame. A failure frame contains the receiver's reason.
fn unexpected(socket: &Socket, frame: Frame) -> Error {
    match frame {
        Frame::Failed { reason, at: _, text } => refused(socket, reason, &text),
        other => socket.error(format!(
            "the receiver sent `{}` unexpectedly: it violates the protocol",
            other.name()
        )),
    }
}

fn refused(socket: &Socket, reason: Reason, text: &str) -> Error {
    let remedy = match reason {
        Reason::NoSpace => "free space there or receive elsewhere",
        Reason::Busy => "try again later",
        Reason::NewerVersion => "update the receiver",
        Reason::Cancelled => "restart the receiver and send again",
        Reason::Malformed | Reason::SourceChanged | Reason::Differs | Reason::Other => {
            "check the receiver's messages"
        }
    };
    Error::PeerRefused {
        address: socket.address().into(),
        why: format!("{text}; nothing was kept: {remedy}"),
    }
}

/// Replaces a connection error by the receiver's reason, if it sent one.
fn or_last_words<T>(result: Result<T>, socket: &Socket) -> Result<T> {
    match result {
        Err(error @ Error::Peer { .. }) => Err(last_words(socket, Duration::ZERO).unwrap_or(error)),
        result => result,
    }
}

/// Returns the receiver's reason for giving up, if it arrives within `time`.
pub(super) fn last_words(socket: &Socket, time: Duration) -> Option<Error> {
    let (reason, _, text) = socket.last_words(time)?;
    Some(refused(socket, reason, &text))
}
