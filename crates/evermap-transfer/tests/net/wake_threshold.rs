//! Receivers with a wake threshold (`SO_RCVLOWAT`), which sleep until many bytes have arrived. From
//! a slow sender they must still deliver single bytes, the last byte, and bytes that a reader waits
//! for.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

use evermap_transfer::engines::EngineKind;
use evermap_transfer::net::Receive;

use crate::common::{TestDir, bytes, tcp_pair};
use crate::wire::{KEEP, PUBLISHED, STORED, end, expect, frame, manifest, range, send_greeting};

/// Wake threshold of a receiver.
const WAKE_BYTES: usize = 128 << 10;

const DELAY: Duration = Duration::from_millis(2);

/// Time after which a receiver that no longer wakes fails the test.
const IDLE: Duration = Duration::from_secs(10);

/// Sends the file in two pieces, the second of `last` bytes, with pauses.
fn send_slowly(stream: &mut TcpStream, contents: &[u8], last: usize) {
    send_greeting(stream, &manifest(b"file", contents.len() as u64, &[(0, contents.len() as u64)]));
    stream.write_all(&range(0, contents.len() as u64)).unwrap();
    let (first, last) = contents.split_at(contents.len() - last);
    for piece in [first, last, &end()] {
        sleep(DELAY);
        stream.write_all(piece).unwrap();
    }
    expect(stream, STORED);
    stream.write_all(&frame(KEEP, 0, 0)).unwrap();
    expect(stream, PUBLISHED);
}

#[test]
fn the_end_of_a_file_is_received_whatever_its_size() {
    let dir = TestDir::new();
    for near in [1, WAKE_BYTES, 2 * WAKE_BYTES, 5 * WAKE_BYTES + 17] {
        for size in [near.saturating_sub(1).max(1), near, near + 1] {
            let contents = bytes(size);
            for last in [1, 100, WAKE_BYTES - 1, WAKE_BYTES, WAKE_BYTES + 1, size] {
                let engine = if last % 2 == 0 { EngineKind::Splice } else { EngineKind::ReadWrite };
                let (mut here, there) = tcp_pair();
                here.set_nodelay(true).unwrap();
                let receive = Receive::new(dir.inbox()).idle_timeout(IDLE).engine(engine);
                let receiver = std::thread::spawn(move || receive.over(there));
                send_slowly(&mut here, &contents, last.min(size));
                receiver.join().unwrap().unwrap();
                assert_eq!(std::fs::read(dir.path("inbox/file")).unwrap(), contents);
            }
        }
    }
}

#[test]
fn single_raw_bytes_are_all_received() {
    let dir = TestDir::new();
    let (mut here, there) = tcp_pair();
    let receive = Receive::new(dir.path("copy")).raw(true).idle_timeout(IDLE);
    let receiver = std::thread::spawn(move || receive.over(there));
    for byte in b"abc" {
        here.write_all(&[*byte]).unwrap();
        sleep(DELAY);
    }
    drop(here);
    assert_eq!(receiver.join().unwrap().unwrap().size_bytes, 3);
    assert_eq!(std::fs::read(dir.path("copy")).unwrap(), b"abc");
}

#[test]
fn each_byte_for_a_stream_is_delivered_at_once() {
    let dir = TestDir::new();
    let fifo = dir.path("fifo");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
    let (mut here, there) = tcp_pair();
    let receive = Receive::new(&fifo).raw(true).idle_timeout(IDLE);
    let receiver = std::thread::spawn(move || receive.over(there));
    let mut reader = File::open(&fifo).unwrap();
    for byte in b"abc" {
        here.write_all(&[*byte]).unwrap();
        let mut found = [0];
        // Send the next byte after this one was delivered.
        reader.read_exact(&mut found).unwrap();
        assert_eq!(found[0], *byte);
    }
    drop(here);
    receiver.join().unwrap().unwrap();
}
