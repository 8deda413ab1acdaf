//! Hostile senders: each one fails its own transfer with a typed error and leaves no files.

use std::io::Write;

use evermap_transfer::Error;
use evermap_transfer::net::{Receive, Send};

use crate::common::{Received, TestDir, assert_peer, ok, over_pair, transfer};
use crate::wire::{
    FAILED, Hello, KEEP, end, expect, frame, manifest, manifest_with, range, send_greeting, summed,
};

/// Sends a greeting to a receiver. Returns its result and the text of its failure.
fn receive_greeting(dir: &TestDir, bytes: &[u8]) -> (Received, String) {
    let (mut stream, receiver) = over_pair(&Receive::new(dir.inbox()));
    stream.write_all(bytes).unwrap();
    let (_, text) = expect(&mut stream, FAILED);
    (receiver.join().unwrap(), text)
}

#[test]
fn invalid_hello_is_refused_with_a_reason() {
    let dir = TestDir::new();
    let manifest = manifest(b"file", 4, &[(0, 4)]);
    let good = Hello::new(&manifest);
    let mut cases = vec![
        (Hello { magic: *b"GET / HT", ..good.clone() }.bytes(), "not an Evermap sender"),
        (Hello { version: 2, ..good.clone() }.bytes(), "version 2"),
        (Hello { version: 0, ..good.clone() }.bytes(), "version 0"),
        (Hello { flags: 0x8000, ..good.clone() }.bytes(), "0x8000"),
        (Hello { connections: 0, ..good.clone() }.bytes(), "1 to 64"),
        (Hello { connections: 65, ..good.clone() }.bytes(), "1 to 64"),
        (Hello { index: 1, ..good.clone() }.bytes(), "1 to 64"),
        (Hello { manifest_bytes: u32::MAX, ..good.clone() }.bytes(), "4294967295 bytes"),
        (Hello { manifest_bytes: 0, ..good.clone() }.bytes(), "manifest of 0 bytes"),
        (Hello { index: 1, connections: 2, ..good.clone() }.bytes(), "none on the others"),
    ];
    let mut damaged = good.bytes();
    damaged[20] ^= 1;
    cases.push((damaged, "checksum"));
    for (hello, expected_text) in cases {
        let (received, text) = receive_greeting(&dir, &hello);
        assert_peer(&received.unwrap_err(), expected_text);
        assert!(text.contains(expected_text), "{text}");
        assert!(dir.received().is_empty());
    }
}

#[test]
fn invalid_manifest_is_refused_with_a_reason() {
    let dir = TestDir::new();
    let with_length = |at: usize, length: u32| {
        let mut bytes = manifest(b"file", 4, &[(0, 4)]);
        bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
        bytes.truncate(bytes.len() - 4);
        summed(bytes)
    };
    let cases = [
        (manifest(b"file", 4, &[(0, 5)]), "up to byte 5"),
        (manifest(b"file", 9, &[(4, 8), (0, 4)]), "not in order"),
        (manifest(b"file", 9, &[(0, 5), (4, 8)]), "overlap"),
        (manifest(b"file", 9, &[(4, 4)]), "not in order"),
        (manifest(b"file", u64::MAX, &[]), "18446744073709551615"),
        (manifest(b"file", u64::MAX, &[(0, u64::MAX)]), "18446744073709551615"),
        (manifest_with(b"file", 4, 0o100_644, 0, &[]), "mode"),
        (manifest_with(b"file", 4, 0o644, 12345, &[]), "digests"),
        (manifest_with(b"file", 4, 0o644, 1 << 40, &[]), "digests"),
        (with_length(12, 3), "length"),
        (with_length(12, 300), "300 bytes"),
        (with_length(48, 2), "length"),
        (with_length(48, u32::MAX), "4294967295 extents"),
        (summed(vec![0; 8]), "too short"),
    ];
    for (manifest, expected_text) in cases {
        let (received, text) =
            receive_greeting(&dir, &[Hello::new(&manifest).bytes(), manifest].concat());
        assert_peer(&received.unwrap_err(), expected_text);
        assert!(text.contains(expected_text), "{text}");
        assert!(dir.received().is_empty());
    }
}

#[test]
fn name_with_a_path_is_refused() {
    let dir = TestDir::new();
    for name in
        [&b""[..], b".", b"..", b"../escaped", b"/tmp/escaped", b"a/b", b"a\0b", b"escaped/"]
    {
        let manifest = manifest(name, 0, &[]);
        let (received, _) =
            receive_greeting(&dir, &[Hello::new(&manifest).bytes(), manifest].concat());
        assert_peer(&received.unwrap_err(), "name");
    }
    // The name of an existing directory is refused for a file.
    std::fs::create_dir(dir.path("inbox/folder")).unwrap();
    let manifest = manifest(b"folder", 0, &[]);
    let (received, _) = receive_greeting(&dir, &[Hello::new(&manifest).bytes(), manifest].concat());
    assert!(matches!(received, Err(Error::Io { .. })), "{received:?}");
    assert_eq!(dir.received(), ["folder"]);
    assert!(!dir.path("escaped").exists());
}

#[test]
fn hidden_or_misleading_names_are_refused_in_a_directory() {
    let dir = TestDir::new();
    let names: [(&[u8], &str); 6] = [
        (b"a\x1b[2Jb", "control character"),
        (b"a\nb", "control character"),
        ("a\u{9b}b".as_bytes(), "control character"),
        (b".bashrc", "--dot-files"),
        (b".film.evermap-part.journal", "unfinished"),
        (b".film.evermap-0123abcd", "unfinished"),
    ];
    for (name, expected_text) in names {
        let manifest = manifest(name, 0, &[]);
        let (received, text) =
            receive_greeting(&dir, &[Hello::new(&manifest).bytes(), manifest].concat());
        assert_peer(&received.unwrap_err(), expected_text);
        assert!(text.contains(expected_text), "{text}");
        assert!(dir.received().is_empty());
    }
    // Dot names are allowed with the option. With a target file the sender's name does not matter.
    let file = dir.file(".profile", "text");
    ok(&Send::new(&file), &Receive::new(dir.inbox()).dot_files(true), "127.0.0.1:0");
    assert_eq!(dir.received(), [".profile"]);
    ok(&Send::new(&file), &Receive::new(dir.inbox().join("named")), "127.0.0.1:0");
    assert_eq!(dir.received(), [".profile", "named"]);
}

#[test]
fn unannounced_spans_are_refused_before_storing_a_byte() {
    let dir = TestDir::new();
    let manifest = manifest(b"file", 100, &[(0, 10), (50, 60)]);
    let bytes = |length: usize| vec![b'x'; length];
    let cases: Vec<Vec<Vec<u8>>> = vec![
        vec![range(0, 11)],
        vec![range(10, 20)],
        vec![range(0, 60)],
        vec![range(100, 101)],
        vec![range(u64::MAX - 1, u64::MAX)],
        vec![range(5, 5)],
        vec![range(9, 3)],
        vec![range(0, 10), bytes(10), range(0, 1)],
        vec![range(2, 4), bytes(2), range(3, 5)],
    ];
    for case in cases {
        let (mut stream, receiver) = over_pair(&Receive::new(dir.inbox()));
        send_greeting(&mut stream, &manifest);
        stream.write_all(&case.concat()).unwrap();
        let (_, text) = expect(&mut stream, FAILED);
        assert!(text.contains("bytes"), "{text}");
        assert_peer(&receiver.join().unwrap().unwrap_err(), "bytes");
        assert!(dir.received().is_empty(), "{case:?}");
    }
}

#[test]
fn missing_or_extra_bytes_are_refused() {
    let dir = TestDir::new();
    let manifest = manifest(b"file", 100, &[(0, 10), (50, 60)]);
    let (mut stream, receiver) = over_pair(&Receive::new(dir.inbox()));
    send_greeting(&mut stream, &manifest);
    stream.write_all(&[range(0, 10), vec![b'x'; 10], end(), frame(KEEP, 0, 0)].concat()).unwrap();
    assert_peer(&receiver.join().unwrap().unwrap_err(), "10 of 20 bytes are missing");
    // Bytes after the end marker are read as a frame, which is invalid.
    let (mut stream, receiver) = over_pair(&Receive::new(dir.inbox()));
    send_greeting(&mut stream, &manifest);
    let all = [range(0, 10), vec![b'x'; 10], range(50, 60), vec![b'x'; 10], end()].concat();
    stream.write_all(&[all.clone(), vec![b'x'; 64]].concat()).unwrap();
    assert_peer(&receiver.join().unwrap().unwrap_err(), "checksum");
    assert!(dir.received().is_empty());
    // In any order the same bytes are accepted.
    let (mut stream, receiver) = over_pair(&Receive::new(dir.inbox()));
    send_greeting(&mut stream, &manifest);
    let parts = [
        range(57, 60),
        b"890".to_vec(),
        range(0, 10),
        b"abcdefghij".to_vec(),
        range(50, 57),
        b"1234567".to_vec(),
    ];
    stream.write_all(&[parts.concat(), end(), frame(KEEP, 0, 0)].concat()).unwrap();
    receiver.join().unwrap().unwrap();
    let found = std::fs::read(dir.path("inbox/file")).unwrap();
    assert_eq!(
        (&found[..10], &found[50..60], found.len()),
        (&b"abcdefghij"[..], &b"1234567890"[..], 100)
    );
}

#[test]
fn sender_learns_no_path_of_the_receiver() {
    let dir = TestDir::new();
    let socket = dir.path("private");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let file = dir.file("file", "text");
    let (sent, received) = transfer(&Send::new(file), &Receive::new(&socket), "127.0.0.1:0");
    assert!(matches!(received, Err(Error::Usage(_))), "{received:?}");
    let sent = sent.unwrap_err();
    assert!(matches!(sent, Error::PeerRefused { .. }), "{sent:?}");
    assert!(!sent.to_string().contains("private"), "{sent}");
}

#[test]
fn impossible_size_takes_no_space() {
    let dir = TestDir::new();
    // Announced and never sent: it is refused, or the space is freed.
    let size = 1 << 60;
    let manifest = manifest(b"file", size, &[(0, size)]);
    let (received, _) = receive_greeting(&dir, &[Hello::new(&manifest).bytes(), manifest].concat());
    assert!(matches!(received, Err(Error::NoSpace { .. } | Error::Io { .. })), "{received:?}");
    assert!(dir.received().is_empty());
}

#[test]
fn further_connection_alone_is_refused() {
    let dir = TestDir::new();
    let hello = Hello { index: 1, connections: 2, manifest_bytes: 0, ..Hello::new(b"") };
    let (mut stream, receiver) = over_pair(&Receive::new(dir.inbox()));
    stream.write_all(&hello.bytes()).unwrap();
    assert_peer(&receiver.join().unwrap().unwrap_err(), "first one is missing");
}
