//! A receiver sleeps until a good part has come, and yet misses nothing of senders that dawdle: a byte that comes alone,
//! the last one, one that somebody waits for.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

use evermap_transfer::engines::EngineKind;
use evermap_transfer::net::Receive;

use crate::common::{Place, bytes, tcp_pair};
use crate::wire::{KEEP, PUBLISHED, STORED, end, expect, frame, greet, manifest, range};

/// What a receiver sleeps for.
const WAKING_BYTES: usize = 128 << 10;

const PAUSE: Duration = Duration::from_millis(2);

/// Long enough for a receiver that was woken, and short enough for a test that has to fail.
const IDLE: Duration = Duration::from_secs(10);

/// Sends what the file is in two pieces, the second of `last` bytes, and after each waits.
fn dawdle(stream: &mut TcpStream, contents: &[u8], last: usize) {
    greet(stream, &manifest(b"file", contents.len() as u64, &[(0, contents.len() as u64)]));
    stream.write_all(&range(0, contents.len() as u64)).unwrap();
    let (first, last) = contents.split_at(contents.len() - last);
    for piece in [first, last, &end()] {
        sleep(PAUSE);
        stream.write_all(piece).unwrap();
    }
    expect(stream, STORED);
    stream.write_all(&frame(KEEP, 0, 0)).unwrap();
    expect(stream, PUBLISHED);
}

#[test]
fn the_last_bytes_are_taken_however_few_come_at_a_time() {
    let place = Place::new();
    for size in [1, WAKING_BYTES, 2 * WAKING_BYTES, 5 * WAKING_BYTES + 17] {
        for size in [size.saturating_sub(1).max(1), size, size + 1] {
            let contents = bytes(size);
            for last in [1, 100, WAKING_BYTES - 1, WAKING_BYTES, WAKING_BYTES + 1, size] {
                let engine = if last % 2 == 0 { EngineKind::Splice } else { EngineKind::ReadWrite };
                let (mut here, there) = tcp_pair();
                here.set_nodelay(true).unwrap();
                let receive = Receive::new(place.inbox()).idle_timeout(IDLE).engine(engine);
                let receiver = std::thread::spawn(move || receive.over(there));
                dawdle(&mut here, &contents, last.min(size));
                receiver.join().unwrap().unwrap();
                assert_eq!(std::fs::read(place.path("inbox/file")).unwrap(), contents);
            }
        }
    }
}

#[test]
fn raw_bytes_that_come_one_by_one_are_all_there_at_the_end() {
    let place = Place::new();
    let (mut here, there) = tcp_pair();
    let receive = Receive::new(place.path("copy")).raw(true).idle_timeout(IDLE);
    let receiver = std::thread::spawn(move || receive.over(there));
    for byte in b"abc" {
        here.write_all(&[*byte]).unwrap();
        sleep(PAUSE);
    }
    drop(here);
    assert_eq!(receiver.join().unwrap().unwrap().size_bytes, 3);
    assert_eq!(std::fs::read(place.path("copy")).unwrap(), b"abc");
}

#[test]
fn each_byte_for_a_stream_is_passed_on_at_once() {
    let place = Place::new();
    let fifo = place.path("fifo");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
    let (mut here, there) = tcp_pair();
    let receive = Receive::new(&fifo).raw(true).idle_timeout(IDLE);
    let receiver = std::thread::spawn(move || receive.over(there));
    let mut reader = File::open(&fifo).unwrap();
    for byte in b"abc" {
        here.write_all(&[*byte]).unwrap();
        let mut found = [0];
        // The next one is sent when this one has come.
        reader.read_exact(&mut found).unwrap();
        assert_eq!(found[0], *byte);
    }
    drop(here);
    receiver.join().unwrap().unwrap();
}
