//! Sender's side of the protocol: handshake, digests, completion.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use evermap_observe::Moment;

use super::refusal::{failure_reason, refused};
use super::source::Source;
use super::{Send, data};
use crate::error::{Error, Result};
use crate::meter::Meter;
use crate::net::digest::{Digester, chunks};
use crate::net::report::{SendReport, Traffic};
use crate::net::socket::{Socket, Timeout};
use crate::net::watch::KEEP_ALIVE_INTERVAL;
use crate::net::wire::{
    DIGEST_CHUNK_BYTES, Frame, Hello, Manifest, Reason, TransferId, is_digest_chunk, name_of,
};

/// Timeout for sending a failure to the receiver.
const FAILURE_TIMEOUT: Duration = Duration::from_secs(2);

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
    if !source.has_known_size()? {
        return Err(Error::Usage(format!(
            "{} has no known size: send it with `raw` to a receiver with `raw`",
            source.path().display()
        )));
    }
    let manifest = source.manifest(if send.verify { DIGEST_CHUNK_BYTES } else { 0 })?;
    let begin = Moment::now();
    let id = new_id()?;
    let first = more()?;
    let terms = start(send, &first, id, connections, &manifest)?;
    let mut sockets = vec![first.clone()];
    for index in 1..connections {
        let socket = more()?;
        join(send, &socket, &first, Hello { id, index, connections, manifest_bytes: 0 })?;
        sockets.push(socket);
    }
    let meter = Meter::new(send.cancelled.clone());
    let (carried, not_used) = data::send(send, source, &manifest.extents, &sockets, &meter)?;
    finish(send, source, &first, &manifest, terms)?;
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
fn start(
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
            Timeout::idle(send.handshake, &send.cancelled),
            "while the manifest was sent",
        )
        .and_then(|()| answer(send, socket));
    let terms = or_failure_reason(answered, socket)?;
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
    let timeout = Timeout::within(send.handshake, &send.cancelled);
    let answered = socket
        .write_all(&hello.encode(), false, timeout, "while another connection was made")
        .and_then(|()| answer(send, socket));
    or_failure_reason(answered, first).map(|_| ())
}

fn answer(send: &Send, socket: &Socket) -> Result<Terms> {
    loop {
        // The protocol allows keep-alives before the answer. Each starts the timeout again.
        let timeout = Timeout::within(send.handshake, &send.cancelled);
        match socket.read_frame(
            timeout,
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
fn finish(
    send: &Send,
    source: &Source,
    socket: &Socket,
    manifest: &Manifest,
    terms: Terms,
) -> Result<()> {
    let stored = compare(send, source, socket, manifest, terms);
    let stored = or_failure_reason(stored, socket)?;
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
        .send_frame(&Frame::Keep, Timeout::idle(send.idle, &send.cancelled))
        .and_then(|()| wait_published(send, socket));
    or_failure_reason(published, socket).map_err(|error| match error {
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
    let timeout = Timeout::idle(send.idle, &send.cancelled);
    let mut digester = None;
    let chunk_bytes = terms.digest_chunk_bytes;
    let mut due =
        (chunk_bytes > 0).then(|| chunks(&manifest.extents, chunk_bytes)).into_iter().flatten();
    let mut keep_alive = Instant::now();
    loop {
        match socket.read_frame(timeout, "while waiting for its confirmation")? {
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
                        let what = "it ended early".to_string();
                        return Err(Error::SourceChanged { path: source.path().into(), what });
                    }
                }
                // Reading may take longer at this end.
                if keep_alive.elapsed() >= KEEP_ALIVE_INTERVAL {
                    socket.send_frame(&Frame::Working, timeout)?;
                    keep_alive = Instant::now();
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

fn wait_published(send: &Send, socket: &Socket) -> Result<()> {
    let timeout = Timeout::idle(send.idle, &send.cancelled);
    loop {
        match socket.read_frame(timeout, "before it confirmed publication")? {
            Frame::Published => return Ok(()),
            Frame::Working => {}
            other => return Err(unexpected(socket, other)),
        }
    }
}

/// Tells the receiver to discard the file. It also does so if this message never arrives.
fn discard(send: &Send, socket: &Socket, reason: Reason, at: u64, text: &str) {
    let frame = Frame::Failed { reason, at, text: text.into() };
    let _ = socket.send_frame(&frame, Timeout::within(FAILURE_TIMEOUT, &send.cancelled));
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

/// Replaces a connection error by the receiver's reason, if it sent one.
fn or_failure_reason<T>(result: Result<T>, socket: &Socket) -> Result<T> {
    match result {
        Err(error @ Error::Peer { .. }) => {
            Err(failure_reason(socket, Duration::ZERO).unwrap_or(error))
        }
        result => result,
    }
}
