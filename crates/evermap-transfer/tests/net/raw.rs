//! Raw bytes, with programs that are not Evermap.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use evermap_transfer::engines::EngineKind;
use evermap_transfer::net::{Receive, Send};

use crate::common::{Place, assert_peer, bytes, listening, ok, over_pair, tcp_pair};

#[test]
fn raw_bytes_are_the_file_and_nothing_else() {
    let place = Place::new();
    let contents = bytes((2 << 20) + 3);
    let file = place.file("file", &contents);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().into();
    let reader = std::thread::spawn(move || {
        let mut found = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut found).unwrap();
        found
    });
    let sent = Send::new(&file).raw(true).to(&address).unwrap();
    assert_eq!(reader.join().unwrap(), contents);
    assert!(!sent.published);
    assert_eq!(
        (sent.size_bytes, sent.traffic.engine()),
        (contents.len() as u64, Some(EngineKind::Splice))
    );
}

#[test]
fn raw_bytes_are_received_up_to_the_end_of_the_stream() {
    let place = Place::new();
    let contents = bytes((2 << 20) + 3);
    let (address, receiver) = listening(&Receive::new(place.path("copy")).raw(true), "127.0.0.1:0");
    let mut stream = TcpStream::connect(address.to_string()).unwrap();
    for piece in contents.chunks(70_001) {
        stream.write_all(piece).unwrap();
    }
    drop(stream);
    let received = receiver.join().unwrap().unwrap();
    assert_eq!(received.size_bytes, contents.len() as u64);
    assert_eq!(std::fs::read(place.path("copy")).unwrap(), contents);
}

#[test]
fn raw_senders_and_receivers_understand_each_other() {
    let place = Place::new();
    for size in [0, 1, 5 << 20] {
        let contents = bytes(size);
        let file = place.file("file", &contents);
        for address in
            ["127.0.0.1:0".to_string(), format!("unix:{}", place.path("socket").display())]
        {
            let receive = Receive::new(place.path("copy")).raw(true);
            ok(&Send::new(&file).raw(true), &receive, &address);
            assert_eq!(std::fs::read(place.path("copy")).unwrap(), contents);
            let (_, received) =
                ok(&Send::new(&file).raw(true), &receive.clone().discard(true), &address);
            assert_eq!((received.path, received.traffic.bytes), (None, size as u64));
        }
    }
}

#[test]
fn a_source_without_a_size_is_sent_to_its_end() {
    let place = Place::new();
    ok(
        &Send::new("/proc/version").raw(true),
        &Receive::new(place.path("copy")).raw(true),
        "127.0.0.1:0",
    );
    assert_eq!(std::fs::read(place.path("copy")).unwrap(), std::fs::read("/proc/version").unwrap());
    let fifo = place.path("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let contents = bytes(300_000);
    let (path, written) = (fifo.clone(), contents.clone());
    let writer = std::thread::spawn(move || std::fs::write(path, written).unwrap());
    ok(&Send::new(&fifo).raw(true), &Receive::new(place.path("copy")).raw(true), "127.0.0.1:0");
    writer.join().unwrap();
    assert_eq!(std::fs::read(place.path("copy")).unwrap(), contents);
}

#[test]
fn a_stream_as_target_is_written_into() {
    let place = Place::new();
    let fifo = place.path("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let (mut stream, receiver) = over_pair(&Receive::new(&fifo).raw(true));
    let reader = std::thread::spawn(move || std::fs::read(fifo).unwrap());
    stream.write_all(b"what comes").unwrap();
    drop(stream);
    receiver.join().unwrap().unwrap();
    assert_eq!(reader.join().unwrap(), b"what comes");
    // The protocol has files only.
    let (_stream, receiver) = over_pair(&Receive::new("/dev/null").raw(true));
    drop(_stream);
    receiver.join().unwrap().unwrap();
}

#[test]
fn raw_bytes_need_a_name_and_leave_nothing_when_the_peer_resets() {
    let place = Place::new();
    let (stream, receiver) = over_pair(&Receive::new(place.inbox()).raw(true));
    assert!(receiver.join().unwrap().unwrap_err().to_string().contains("name a file in it"));
    drop(stream);
    let (mut here, there) = tcp_pair();
    let receive = Receive::new(place.path("inbox/copy")).raw(true);
    let receiver = std::thread::spawn(move || receive.over(there));
    here.write_all(&bytes(100_000)).unwrap();
    rustix::net::sockopt::set_socket_linger(&here, Some(std::time::Duration::ZERO)).unwrap();
    drop(here);
    assert_peer(&receiver.join().unwrap().unwrap_err(), "it went away");
    assert!(place.received().is_empty());
}

#[test]
fn a_raw_source_that_shrinks_is_an_error_and_no_end_of_the_stream() {
    let place = Place::new();
    let contents = bytes(64 << 20);
    let path = place.file("file", &contents);
    let (here, mut there) = tcp_pair();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let reader = std::thread::spawn(move || {
        let mut some = [0; 1000];
        there.read_exact(&mut some).unwrap();
        file.set_len(1000).unwrap();
        let mut rest = Vec::new();
        (there.read_to_end(&mut rest), rest.len())
    });
    let error = Send::new(&path).raw(true).over(here).unwrap_err();
    assert!(matches!(error, evermap_transfer::Error::SourceChanged { .. }), "{error:?}");
    let (end, length) = reader.join().unwrap();
    assert!(end.is_err(), "{length} bytes looked like the whole");
}

/// The programs that raw bytes are for.
#[test]
fn socat_understands_raw_bytes_both_ways() {
    if Command::new("socat").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
    {
        eprintln!("SKIPPED socat_understands_raw_bytes_both_ways: there is no socat");
        return;
    }
    let place = Place::new();
    let contents = bytes(1 << 20);
    let file = place.file("file", &contents);
    let (address, receiver) = listening(&Receive::new(place.path("copy")).raw(true), "127.0.0.1:0");
    let from = format!("OPEN:{},rdonly", file.display());
    assert!(
        Command::new("socat")
            .args(["-u", &from, &format!("TCP:{address}")])
            .status()
            .unwrap()
            .success()
    );
    receiver.join().unwrap().unwrap();
    assert_eq!(std::fs::read(place.path("copy")).unwrap(), contents);

    let (here, there) = UnixStream::pair().unwrap();
    let output = std::fs::File::create(place.path("second")).unwrap();
    let mut socat = Command::new("socat");
    let socat = socat
        .args(["-u", "STDIN", "STDOUT"])
        .stdin(std::os::fd::OwnedFd::from(there))
        .stdout(output);
    let mut child = socat.spawn().unwrap();
    // The child alone has that end now.
    socat.stdin(Stdio::null());
    Send::new(&file).raw(true).over(here).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(std::fs::read(place.path("second")).unwrap(), contents);
}
