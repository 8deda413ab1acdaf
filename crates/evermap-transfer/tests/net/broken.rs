//! Peers that disconnect, stall, are slow, or modify their file: an error at both ends, and no
//! files left.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use evermap_transfer::Error;
use evermap_transfer::net::{Receive, Send};

use crate::common::{Sent, TestDir, assert_peer, bytes, listening, over_pair, tcp_pair};
use crate::wire::{
    DIGEST, FAILED, Hello, KEEP, PUBLISHED, READY, STORED, end, expect, frame, frame_with,
    manifest, range, send_greeting,
};

const DATA: &[u8] = b"some bytes of a file";

/// Returns all bytes that a sender of one small file sends.
fn whole_conversation(name: &[u8]) -> Vec<u8> {
    let manifest = manifest(name, DATA.len() as u64, &[(0, DATA.len() as u64)]);
    let hello = Hello::new(&manifest).bytes();
    [hello, manifest, range(0, DATA.len() as u64), DATA.to_vec(), end(), frame(KEEP, 0, 0)].concat()
}

/// Runs a sender on one end of a socket pair in a thread. Returns the other end.
fn sending(send: &Send) -> (UnixStream, JoinHandle<Sent>) {
    let (here, there) = UnixStream::pair().unwrap();
    let send = send.clone();
    (there, std::thread::spawn(move || send.over(here)))
}

/// Reads hello and manifest and answers that the receiver is ready.
fn accept_transfer(stream: &mut UnixStream, digest_chunk_bytes: u64) {
    let mut hello = [0; 48];
    stream.read_exact(&mut hello).unwrap();
    let length = u32::from_le_bytes(hello[32..36].try_into().unwrap());
    stream.read_exact(&mut vec![0; length as usize]).unwrap();
    stream.write_all(&frame(READY, digest_chunk_bytes, 0)).unwrap();
}

/// Reads one span of this length and the end marker.
fn take_all(stream: &mut UnixStream, length: usize) {
    stream.read_exact(&mut vec![0; 16 + length + 16]).unwrap();
}

#[test]
fn sender_that_disconnects_at_any_byte_leaves_nothing() {
    let dir = TestDir::new();
    let whole = whole_conversation(b"file");
    for cut in 0..whole.len() {
        let (mut stream, receiver) = over_pair(&Receive::new(dir.inbox()));
        stream.write_all(&whole[..cut]).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_peer(&receiver.join().unwrap().unwrap_err(), "closed the connection");
        assert!(dir.received().is_empty(), "after {cut} bytes");
    }
    let (mut stream, receiver) = over_pair(&Receive::new(dir.inbox()));
    stream.write_all(&whole).unwrap();
    receiver.join().unwrap().unwrap();
    assert_eq!(std::fs::read(dir.path("inbox/file")).unwrap(), DATA);
}

#[test]
fn sender_that_resets_the_connection_leaves_nothing() {
    let dir = TestDir::new();
    let whole = whole_conversation(b"file");
    for cut in [0, 20, 48, 100, whole.len() - 90, whole.len() - 65] {
        let (mut here, there) = tcp_pair();
        let receive = Receive::new(dir.inbox());
        let receiver = std::thread::spawn(move || receive.over(there));
        here.write_all(&whole[..cut]).unwrap();
        rustix::net::sockopt::set_socket_linger(&here, Some(Duration::ZERO)).unwrap();
        drop(here);
        assert_peer(&receiver.join().unwrap().unwrap_err(), "");
        assert!(dir.received().is_empty(), "after {cut} bytes");
    }
}

#[test]
fn silent_sender_times_out_at_any_stage() {
    let dir = TestDir::new();
    let whole = whole_conversation(b"file");
    let receive = Receive::new(dir.inbox())
        .handshake_timeout(Duration::from_millis(80))
        .idle_timeout(Duration::from_millis(80));
    for cut in
        [0, 20, 48, 60, whole.len() - 116, whole.len() - 110, whole.len() - 90, whole.len() - 64]
    {
        let (mut stream, receiver) = over_pair(&receive);
        stream.write_all(&whole[..cut]).unwrap();
        assert_peer(&receiver.join().unwrap().unwrap_err(), "no progress for 80ms");
        assert!(dir.received().is_empty(), "after {cut} bytes");
    }
}

#[test]
fn receiver_that_disconnects_at_any_stage_is_an_error() {
    let dir = TestDir::new();
    let file = dir.file("file", bytes(3 << 20));
    let send = Send::new(&file);
    for stage in 0..5 {
        let (mut stream, sender) = sending(&send);
        if stage >= 1 {
            accept_transfer(&mut stream, 0);
        }
        if stage >= 2 {
            stream.read_exact(&mut vec![0; 1 << 20]).unwrap();
        }
        if stage >= 3 {
            stream.read_exact(&mut vec![0; (2 << 20) + 32]).unwrap();
        }
        if stage >= 4 {
            stream.write_all(&frame(STORED, 3 << 20, 0)).unwrap();
            expect(&mut stream, KEEP);
        }
        drop(stream);
        let error = sender.join().unwrap().unwrap_err();
        assert_peer(&error, "");
        assert_eq!(error.to_string().contains("may exist there"), stage == 4, "{error}");
    }
}

#[test]
fn silent_receiver_times_out_at_any_stage() {
    let dir = TestDir::new();
    let file = dir.file("file", bytes(3 << 20));
    let time = Duration::from_millis(80);
    let send = Send::new(&file).handshake_timeout(time).idle_timeout(time);
    for stage in 0..4 {
        let (mut stream, sender) = sending(&send);
        if stage >= 1 {
            accept_transfer(&mut stream, 0);
        }
        if stage >= 2 {
            take_all(&mut stream, 3 << 20);
        }
        if stage >= 3 {
            stream.write_all(&frame(STORED, 3 << 20, 0)).unwrap();
        }
        assert_peer(&sender.join().unwrap().unwrap_err(), "no progress for 80ms");
    }
}

#[test]
fn slow_receiver_gets_everything() {
    let dir = TestDir::new();
    let contents = bytes(2 << 20);
    let file = dir.file("file", &contents);
    // Reading takes several times the idle timeout, and one call drains a whole pipe.
    let (mut stream, sender) =
        sending(&Send::new(&file).raw(true).idle_timeout(Duration::from_millis(300)));
    let mut found: Vec<u8> = Vec::new();
    let mut some = vec![0; 100_000];
    loop {
        std::thread::sleep(Duration::from_millis(60));
        match stream.read(&mut some).unwrap() {
            0 => break,
            read => found.extend(&some[..read]),
        }
    }
    sender.join().unwrap().unwrap();
    assert_eq!(found, contents);
}

#[test]
fn sender_reports_the_receivers_reason() {
    let dir = TestDir::new();
    let file = dir.file("file", bytes(16 << 20));
    let text = b"the cupboard is bare";
    let mut failed = FAILED.to_le_bytes().to_vec();
    failed.extend((text.len() as u32).to_le_bytes());
    failed.extend([0; 48]);
    failed.extend(0u32.to_le_bytes());
    let failed = [crate::wire::summed(failed), text.to_vec()].concat();
    for is_midway in [false, true] {
        let (mut stream, sender) = sending(&Send::new(&file));
        if is_midway {
            accept_transfer(&mut stream, 0);
            stream.read_exact(&mut vec![0; 1 << 20]).unwrap();
        }
        stream.write_all(&failed).unwrap();
        let error = sender.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::PeerRefused { .. }), "{error:?}");
        assert_peer(&error, "the cupboard is bare");
        // The connection was still open: the failure message alone ends the transfer.
        drop(stream);
    }
}

#[test]
fn source_written_during_the_transfer_is_an_error_at_both_ends() {
    let dir = TestDir::new();
    let path = dir.file("file", bytes(1 << 20));
    let (mut stream, sender) = sending(&Send::new(&path));
    accept_transfer(&mut stream, 0);
    take_all(&mut stream, 1 << 20);
    std::os::unix::fs::FileExt::write_at(
        &std::fs::File::options().write(true).open(&path).unwrap(),
        b"x",
        7,
    )
    .unwrap();
    stream.write_all(&frame(STORED, 1 << 20, 0)).unwrap();
    let (_, text) = expect(&mut stream, FAILED);
    assert!(text.contains("changed"), "{text}");
    let error = sender.join().unwrap().unwrap_err();
    assert!(matches!(&error, Error::SourceChanged { path: of, .. } if *of == path), "{error:?}");

    // A receiver that is told so keeps nothing.
    let whole = whole_conversation(b"file");
    let (mut stream, receiver) = over_pair(&Receive::new(dir.inbox()));
    stream.write_all(&whole[..whole.len() - 64]).unwrap();
    let mut changed = frame(FAILED, 0, 0);
    changed.truncate(56);
    changed.extend(5u32.to_le_bytes());
    stream.write_all(&crate::wire::summed(changed)).unwrap();
    let error = receiver.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::SourceChanged { .. }), "{error:?}");
    assert!(dir.received().is_empty());
}

#[test]
fn source_truncated_during_the_transfer_is_an_error_at_both_ends() {
    let dir = TestDir::new();
    let path = dir.file("file", bytes(32 << 20));
    let (here, there) = tcp_pair();
    let receive = Receive::new(dir.inbox());
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    // The receiver starts reading after the file was truncated.
    let (begin, may_begin) = std::sync::mpsc::channel::<()>();
    let send = Send::new(&path);
    let sender = std::thread::spawn(move || send.over(here));
    let receiver = std::thread::spawn(move || {
        may_begin.recv().unwrap();
        receive.over(there)
    });
    file.set_len(1000).unwrap();
    begin.send(()).unwrap();
    let (sent, received) = (sender.join().unwrap(), receiver.join().unwrap());
    // If it is truncated before the manifest, it is a file of 1,000 bytes.
    match sent {
        Ok(report) => assert_eq!((report.size_bytes, received.unwrap().size_bytes), (1000, 1000)),
        Err(error) => {
            assert!(matches!(error, Error::SourceChanged { .. }), "{error:?}");
            // Within a span the sender can only close the connection. After the last one it sends
            // the reason.
            let received = received.unwrap_err();
            assert!(
                matches!(received, Error::Peer { .. } | Error::SourceChanged { .. }),
                "{received:?}"
            );
            assert!(dir.received().is_empty());
        }
    }
}

#[test]
fn wrong_digest_is_detected_and_nothing_is_kept() {
    let dir = TestDir::new();
    let contents = bytes((16 << 20) + 5);
    let file = dir.file("file", &contents);
    let (mut stream, sender) = sending(&Send::new(&file).verify(true));
    accept_transfer(&mut stream, 16 << 20);
    take_all(&mut stream, contents.len());
    let (first, second) = contents.split_at(16 << 20);
    let mut digest = *blake3::hash(first).as_bytes();
    stream.write_all(&frame_with(DIGEST, 0, 16 << 20, digest)).unwrap();
    digest = *blake3::hash(second).as_bytes();
    digest[31] ^= 1;
    stream.write_all(&frame_with(DIGEST, 16 << 20, contents.len() as u64, digest)).unwrap();
    let (at, _) = expect(&mut stream, FAILED);
    assert_eq!(at, 16 << 20);
    let error = sender.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::Differs { offset_bytes: 0x100_0000, .. }), "{error:?}");

    // The receiver sends digests of its data, and a sender that disagrees ends the transfer.
    let manifest = crate::wire::manifest_with(b"file", 4, 0o600, 1 << 16, &[(0, 4)]);
    let (mut stream, receiver) = over_pair(&Receive::new(dir.inbox()));
    send_greeting(&mut stream, &manifest);
    stream.write_all(&[range(0, 4), b"sent".to_vec(), end()].concat()).unwrap();
    let mut frame = [0; 64];
    stream.read_exact(&mut frame).unwrap();
    assert_eq!(frame[24..56], *blake3::hash(b"sent").as_bytes());
    let mut differs = crate::wire::frame(FAILED, 2, 0);
    differs.truncate(56);
    differs.extend(6u32.to_le_bytes());
    stream.write_all(&crate::wire::summed(differs)).unwrap();
    let error = receiver.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::Differs { offset_bytes: 2, .. }), "{error:?}");
    assert!(dir.received().is_empty());
}

#[test]
fn wrong_answers_of_a_receiver_are_errors() {
    let dir = TestDir::new();
    let file = dir.file("file", "text");
    for (verify, answers) in [
        (false, vec![frame(STORED, 3, 0)]),
        (false, vec![frame(PUBLISHED, 0, 0)]),
        (false, vec![frame_with(DIGEST, 0, 4, [0; 32])]),
        (false, vec![frame(99, 0, 0)]),
        (true, vec![frame(STORED, 4, 0)]),
        (true, vec![frame_with(DIGEST, 0, 3, [0; 32])]),
        (false, vec![frame(STORED, 4, 0), frame(STORED, 4, 0)]),
    ] {
        let (mut stream, sender) = sending(&Send::new(&file).verify(verify));
        accept_transfer(&mut stream, if verify { 16 << 20 } else { 0 });
        take_all(&mut stream, 4);
        stream.write_all(&answers.concat()).unwrap();
        assert_peer(&sender.join().unwrap().unwrap_err(), "");
    }
    // A receiver that does not verify although asked to.
    let (mut stream, sender) = sending(&Send::new(&file).verify(true));
    accept_transfer(&mut stream, 0);
    assert_peer(&sender.join().unwrap().unwrap_err(), "violates the protocol");
}

#[test]
fn cancelled_transfer_ends_and_leaves_nothing() {
    let dir = TestDir::new();
    let file = dir.file("file", bytes(16 << 20));
    for is_sender in [true, false] {
        let cancelled = Arc::new(AtomicBool::new(false));
        let (mut send, mut receive) = (Send::new(&file), Receive::new(dir.inbox()));
        match is_sender {
            true => send = send.cancelled_by(cancelled.clone()),
            false => receive = receive.cancelled_by(cancelled.clone()),
        }
        // The peer stalls in the middle. Only the flag ends the transfer.
        let error = if is_sender {
            let (mut stream, sender) = sending(&send);
            accept_transfer(&mut stream, 0);
            stream.read_exact(&mut vec![0; 1 << 20]).unwrap();
            cancelled.store(true, Ordering::Relaxed);
            sender.join().unwrap().unwrap_err()
        } else {
            let (mut stream, receiver) = over_pair(&receive);
            send_greeting(&mut stream, &manifest(b"file", 100, &[(0, 100)]));
            stream.write_all(&range(0, 100)).unwrap();
            cancelled.store(true, Ordering::Relaxed);
            receiver.join().unwrap().unwrap_err()
        };
        assert!(matches!(error, Error::Cancelled { .. }), "{error:?}");
        assert!(dir.received().is_empty());
    }
    // A receiver that waits for a sender.
    let cancelled = Arc::new(AtomicBool::new(true));
    let (_, receiver) =
        listening(&Receive::new(dir.inbox()).cancelled_by(cancelled), "127.0.0.1:0");
    assert!(matches!(receiver.join().unwrap(), Err(Error::Cancelled { .. })));
}
