//! Senders that lie: each fails its own transfer, by a typed error, and nothing is left.

use std::io::Write;

use evermap_transfer::Error;
use evermap_transfer::net::{Receive, Send};

use crate::common::{Place, Received, assert_peer, ok, over_pair};
use crate::wire::{
    FAILED, Hello, KEEP, end, expect, frame, greet, manifest, manifest_with, range, summed,
};

/// What a receiver makes of a greeting.
fn greeted_with(place: &Place, bytes: &[u8]) -> (Received, String) {
    let (mut stream, receiver) = over_pair(&Receive::new(place.inbox()));
    stream.write_all(bytes).unwrap();
    let (_, words) = expect(&mut stream, FAILED);
    (receiver.join().unwrap(), words)
}

#[test]
fn a_hello_that_is_none_is_refused_and_told_why() {
    let place = Place::new();
    let manifest = manifest(b"file", 4, &[(0, 4)]);
    let good = Hello::new(&manifest);
    let mut cases = vec![
        (Hello { magic: *b"GET / HT", ..good.clone() }.bytes(), "none of an Evermap sender's"),
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
    for (hello, says) in cases {
        let (received, words) = greeted_with(&place, &hello);
        assert_peer(&received.unwrap_err(), says);
        assert!(words.contains(says), "{words}");
        assert!(place.received().is_empty());
    }
}

#[test]
fn a_manifest_that_lies_is_refused_and_told_why() {
    let place = Place::new();
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
    for (manifest, says) in cases {
        let (received, words) =
            greeted_with(&place, &[Hello::new(&manifest).bytes(), manifest].concat());
        assert_peer(&received.unwrap_err(), says);
        assert!(words.contains(says), "{words}");
        assert!(place.received().is_empty());
    }
}

#[test]
fn a_name_that_leads_elsewhere_is_refused() {
    let place = Place::new();
    for name in
        [&b""[..], b".", b"..", b"../escaped", b"/tmp/escaped", b"a/b", b"a\0b", b"escaped/"]
    {
        let manifest = manifest(name, 0, &[]);
        let (received, _) =
            greeted_with(&place, &[Hello::new(&manifest).bytes(), manifest].concat());
        assert_peer(&received.unwrap_err(), "name");
    }
    // The name of a directory that is there is none for a file.
    std::fs::create_dir(place.path("inbox/folder")).unwrap();
    let manifest = manifest(b"folder", 0, &[]);
    let (received, _) = greeted_with(&place, &[Hello::new(&manifest).bytes(), manifest].concat());
    assert!(matches!(received, Err(Error::Io { .. })), "{received:?}");
    assert_eq!(place.received(), ["folder"]);
    assert!(!place.path("escaped").exists());
}

#[test]
fn names_that_hide_mislead_or_configure_are_refused_in_a_directory() {
    let place = Place::new();
    let names: [(&[u8], &str); 6] = [
        (b"a\x1b[2Jb", "control character"),
        (b"a\nb", "control character"),
        ("a\u{9b}b".as_bytes(), "control character"),
        (b".bashrc", "--dot-files"),
        (b".film.evermap-part.journal", "unfinished"),
        (b".film.evermap-0123abcd", "unfinished"),
    ];
    for (name, says) in names {
        let manifest = manifest(name, 0, &[]);
        let (received, words) =
            greeted_with(&place, &[Hello::new(&manifest).bytes(), manifest].concat());
        assert_peer(&received.unwrap_err(), says);
        assert!(words.contains(says), "{words}");
        assert!(place.received().is_empty());
    }
    // With the option a dot is a dot; and who names the file decides for themselves.
    let file = place.file(".profile", "text");
    ok(&Send::new(&file), &Receive::new(place.inbox()).dot_files(true), "127.0.0.1:0");
    assert_eq!(place.received(), [".profile"]);
    ok(&Send::new(&file), &Receive::new(place.inbox().join("named")), "127.0.0.1:0");
    assert_eq!(place.received(), [".profile", "named"]);
}

#[test]
fn spans_that_were_not_announced_are_refused_before_a_byte_of_them_is_stored() {
    let place = Place::new();
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
        let (mut stream, receiver) = over_pair(&Receive::new(place.inbox()));
        greet(&mut stream, &manifest);
        stream.write_all(&case.concat()).unwrap();
        let (_, words) = expect(&mut stream, FAILED);
        assert!(words.contains("bytes"), "{words}");
        assert_peer(&receiver.join().unwrap().unwrap_err(), "bytes");
        assert!(place.received().is_empty(), "{case:?}");
    }
}

#[test]
fn fewer_or_more_bytes_than_announced_are_refused() {
    let place = Place::new();
    let manifest = manifest(b"file", 100, &[(0, 10), (50, 60)]);
    let (mut stream, receiver) = over_pair(&Receive::new(place.inbox()));
    greet(&mut stream, &manifest);
    stream.write_all(&[range(0, 10), vec![b'x'; 10], end(), frame(KEEP, 0, 0)].concat()).unwrap();
    assert_peer(&receiver.join().unwrap().unwrap_err(), "10 of 20 bytes are missing");
    // What comes behind the end is taken for what is said there, and says nothing.
    let (mut stream, receiver) = over_pair(&Receive::new(place.inbox()));
    greet(&mut stream, &manifest);
    let all = [range(0, 10), vec![b'x'; 10], range(50, 60), vec![b'x'; 10], end()].concat();
    stream.write_all(&[all.clone(), vec![b'x'; 64]].concat()).unwrap();
    assert_peer(&receiver.join().unwrap().unwrap_err(), "checksum");
    assert!(place.received().is_empty());
    // In any order, and the same is well.
    let (mut stream, receiver) = over_pair(&Receive::new(place.inbox()));
    greet(&mut stream, &manifest);
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
    let found = std::fs::read(place.path("inbox/file")).unwrap();
    assert_eq!(
        (&found[..10], &found[50..60], found.len()),
        (&b"abcdefghij"[..], &b"1234567890"[..], 100)
    );
}

#[test]
fn a_size_that_no_disk_has_takes_none() {
    let place = Place::new();
    // Announced and never sent: room is reserved for what is announced, so this is refused, or taken back.
    let size = 1 << 60;
    let manifest = manifest(b"file", size, &[(0, size)]);
    let (received, _) = greeted_with(&place, &[Hello::new(&manifest).bytes(), manifest].concat());
    assert!(matches!(received, Err(Error::NoSpace { .. } | Error::Io { .. })), "{received:?}");
    assert!(place.received().is_empty());
}

#[test]
fn a_further_connection_alone_is_no_transfer() {
    let place = Place::new();
    let hello = Hello { index: 1, connections: 2, manifest_bytes: 0, ..Hello::new(b"") };
    let (mut stream, receiver) = over_pair(&Receive::new(place.inbox()));
    stream.write_all(&hello.bytes()).unwrap();
    assert_peer(&receiver.join().unwrap().unwrap_err(), "first one is missing");
}
