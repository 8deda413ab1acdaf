//! Raw transfers with other programs.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use evermap_transfer::engines::EngineKind;
use evermap_transfer::net::{Receive, Send};

use crate::common::{TestDir, assert_peer, bytes, listening, ok, over_pair, tcp_pair};

#[test]
fn raw_sender_sends_only_the_file() {
    let dir = TestDir::new();
    let contents = bytes((2 << 20) + 3);
    let file = dir.file("file", &contents);
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
fn raw_receiver_reads_to_the_end_of_the_stream() {
    let dir = TestDir::new();
    let contents = bytes((2 << 20) + 3);
    let (address, receiver) = listening(&Receive::new(dir.path("copy")).raw(true), "127.0.0.1:0");
    let mut stream = TcpStream::connect(address.to_string()).unwrap();
    for piece in contents.chunks(70_001) {
        stream.write_all(piece).unwrap();
    }
    drop(stream);
    let received = receiver.join().unwrap().unwrap();
    assert_eq!(received.size_bytes, contents.len() as u64);
    assert_eq!(std::fs::read(dir.path("copy")).unwrap(), contents);
}

#[test]
fn raw_senders_and_receivers_interoperate() {
    let dir = TestDir::new();
    for size in [0, 1, 5 << 20] {
        let contents = bytes(size);
        let file = dir.file("file", &contents);
        for address in ["127.0.0.1:0".to_string(), format!("unix:{}", dir.path("socket").display())]
        {
            let receive = Receive::new(dir.path("copy")).raw(true);
            ok(&Send::new(&file).raw(true), &receive, &address);
            assert_eq!(std::fs::read(dir.path("copy")).unwrap(), contents);
            let (_, received) =
                ok(&Send::new(&file).raw(true), &receive.clone().discard(true), &address);
            assert_eq!((received.path, received.traffic.bytes), (None, size as u64));
        }
    }
}

#[test]
fn source_of_unknown_size_is_sent_to_its_end() {
    let dir = TestDir::new();
    ok(
        &Send::new("/proc/version").raw(true),
        &Receive::new(dir.path("copy")).raw(true),
        "127.0.0.1:0",
    );
    assert_eq!(std::fs::read(dir.path("copy")).unwrap(), std::fs::read("/proc/version").unwrap());
    let fifo = dir.path("fifo");
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
    ok(&Send::new(&fifo).raw(true), &Receive::new(dir.path("copy")).raw(true), "127.0.0.1:0");
    writer.join().unwrap();
    assert_eq!(std::fs::read(dir.path("copy")).unwrap(), contents);
}

#[test]
fn raw_receiver_writes_into_a_stream() {
    let dir = TestDir::new();
    let fifo = dir.path("fifo");
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
    stream.write_all(b"raw bytes").unwrap();
    drop(stream);
    receiver.join().unwrap().unwrap();
    assert_eq!(reader.join().unwrap(), b"raw bytes");
    // `/dev/null` is a valid stream target too.
    let (_stream, receiver) = over_pair(&Receive::new("/dev/null").raw(true));
    drop(_stream);
    receiver.join().unwrap().unwrap();
}

#[test]
fn raw_receiver_needs_a_file_name_and_leaves_nothing_after_a_reset() {
    let dir = TestDir::new();
    let (stream, receiver) = over_pair(&Receive::new(dir.inbox()).raw(true));
    assert!(receiver.join().unwrap().unwrap_err().to_string().contains("choose a file in it"));
    drop(stream);
    let (mut here, there) = tcp_pair();
    let receive = Receive::new(dir.path("inbox/copy")).raw(true);
    let receiver = std::thread::spawn(move || receive.over(there));
    here.write_all(&bytes(100_000)).unwrap();
    rustix::net::sockopt::set_socket_linger(&here, Some(std::time::Duration::ZERO)).unwrap();
    drop(here);
    assert_peer(&receiver.join().unwrap().unwrap_err(), "the peer closed the connection");
    assert!(dir.received().is_empty());
}

#[test]
fn truncated_raw_source_resets_the_connection() {
    let dir = TestDir::new();
    let contents = bytes(64 << 20);
    let path = dir.file("file", &contents);
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
    assert!(end.is_err(), "{length} bytes ended like a complete transfer");
}

/// Raw transfers with a common program.
#[test]
fn raw_transfers_work_with_socat() {
    if Command::new("socat").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
    {
        eprintln!("SKIPPED: socat is not installed");
        return;
    }
    let dir = TestDir::new();
    let contents = bytes(1 << 20);
    let file = dir.file("file", &contents);
    let (address, receiver) = listening(&Receive::new(dir.path("copy")).raw(true), "127.0.0.1:0");
    let from = format!("OPEN:{},rdonly", file.display());
    assert!(
        Command::new("socat")
            .args(["-u", &from, &format!("TCP:{address}")])
            .status()
            .unwrap()
            .success()
    );
    receiver.join().unwrap().unwrap();
    assert_eq!(std::fs::read(dir.path("copy")).unwrap(), contents);

    let (here, there) = UnixStream::pair().unwrap();
    let output = std::fs::File::create(dir.path("second")).unwrap();
    let mut socat = Command::new("socat");
    let socat = socat
        .args(["-u", "STDIN", "STDOUT"])
        .stdin(std::os::fd::OwnedFd::from(there))
        .stdout(output);
    let mut child = socat.spawn().unwrap();
    // Only the child holds that end now.
    socat.stdin(Stdio::null());
    Send::new(&file).raw(true).over(here).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(std::fs::read(dir.path("second")).unwrap(), contents);
}
