//! Several connections and several unidentified peers at one listener.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evermap_transfer::Error;
use evermap_transfer::net::{Address, Receive, Send};

use crate::common::{TestDir, assert_peer, bytes, listening, until};
use crate::wire::{
    FAILED, Hello, KEEP, PUBLISHED, READY, STORED, end, expect, frame, manifest, range,
    send_greeting,
};

fn connect(address: &Address) -> TcpStream {
    TcpStream::connect(address.to_string()).unwrap()
}

/// Returns a receiver that records the connections it refuses.
fn recording_refusals(dir: &TestDir) -> (Receive, Arc<Mutex<Vec<String>>>) {
    let refused = Arc::new(Mutex::new(Vec::new()));
    let notes = refused.clone();
    let receive = Receive::new(dir.inbox())
        .on_refused(move |error| notes.lock().unwrap().push(error.to_string()));
    (receive, refused)
}

#[test]
fn unidentified_connections_do_not_block_a_sender() {
    let dir = TestDir::new();
    let (receive, refused) = recording_refusals(&dir);
    let (address, receiver) = listening(&receive, "127.0.0.1:0");
    // Silent, half a hello, another protocol, and closed at once.
    let silent = connect(&address);
    let mut half = connect(&address);
    half.write_all(&Hello::new(b"x").bytes()[..20]).unwrap();
    let mut other = connect(&address);
    other.write_all(b"GET / HTTP/1.1\r\nHost: evermap\r\nAccept: text/html\r\n\r\n").unwrap();
    expect(&mut other, FAILED);
    drop(connect(&address));
    let file = dir.file("file", bytes(3 << 20));
    Send::new(&file).connections(2).to(&address).unwrap();
    receiver.join().unwrap().unwrap();
    assert_eq!(dir.received(), ["file"]);
    assert!(
        refused.lock().unwrap().iter().any(|why| why.contains("not an Evermap sender")),
        "{refused:?}"
    );
    drop((silent, half));
}

#[test]
fn stalled_senders_are_evicted_for_an_active_one() {
    let dir = TestDir::new();
    let idle = Duration::from_secs(12);
    let stop = Arc::new(AtomicBool::new(false));
    let receive = Receive::new(dir.inbox()).idle_timeout(idle).cancelled_by(stop.clone());
    let listening = receive.listen(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listening.address().clone();
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let ended = outcomes.clone();
    let server = std::thread::spawn(move || {
        listening.serve(|outcome| ended.lock().unwrap().push(outcome.map_err(|e| e.to_string())))
    });
    // All slots of one peer, each with an announcement and no data.
    let manifest = manifest(b"stalled", 8, &[(0, 8)]);
    let stalled: Vec<TcpStream> = (0..8)
        .map(|number| {
            let mut stream = connect(&address);
            let hello = Hello { id: [number + 1; 16], ..Hello::new(&manifest) };
            stream.write_all(&[hello.bytes(), manifest.clone()].concat()).unwrap();
            expect(&mut stream, READY);
            stream
        })
        .collect();
    let begin = std::time::Instant::now();
    let file = dir.file("file", bytes(100_000));
    let error = Send::new(&file).to(&address).unwrap_err().to_string();
    assert!(error.contains("busy"), "no transfer has stalled long enough yet: {error}");
    until("a free slot", || Send::new(&file).to(&address).is_ok());
    assert!(begin.elapsed() < idle, "waited for the stalled transfers to time out");
    assert_eq!(dir.received(), ["file"]);
    until("an eviction", || {
        let outcomes = outcomes.lock().unwrap();
        outcomes.iter().any(|end| end.as_ref().is_err_and(|e| e.contains("evicted")))
    });
    stop.store(true, Ordering::Relaxed);
    drop(stalled);
    server.join().unwrap().unwrap();
}

#[test]
fn missing_connections_fail_the_transfer() {
    let dir = TestDir::new();
    let receive = Receive::new(dir.inbox()).handshake_timeout(Duration::from_millis(200));
    let (address, receiver) = listening(&receive, "127.0.0.1:0");
    let manifest = manifest(b"file", 4, &[(0, 4)]);
    let hello = Hello { connections: 4, ..Hello::new(&manifest) };
    let mut first = connect(&address);
    first.write_all(&[hello.bytes(), manifest].concat()).unwrap();
    expect(&mut first, READY);
    let mut second = connect(&address);
    second.write_all(&Hello { index: 2, manifest_bytes: 0, ..hello }.bytes()).unwrap();
    expect(&mut second, READY);
    assert_peer(&receiver.join().unwrap().unwrap_err(), "only 2 of 4 connections arrived");
    expect(&mut first, FAILED);
    assert!(dir.received().is_empty());
}

#[test]
fn surplus_and_foreign_connections_do_not_affect_a_transfer() {
    let dir = TestDir::new();
    let (receive, refused) = recording_refusals(&dir);
    let (address, receiver) = listening(&receive, "127.0.0.1:0");
    let manifest = manifest(b"file", 8, &[(0, 8)]);
    let hello = Hello { connections: 2, ..Hello::new(&manifest) };
    let further = Hello { index: 1, manifest_bytes: 0, ..hello.clone() };
    let mut first = connect(&address);
    first.write_all(&[hello.bytes(), manifest.clone()].concat()).unwrap();
    expect(&mut first, READY);
    for wrong in
        [Hello { id: [9; 16], ..further.clone() }, Hello { connections: 3, ..further.clone() }]
    {
        let mut stream = connect(&address);
        stream.write_all(&wrong.bytes()).unwrap();
        expect(&mut stream, FAILED);
    }
    let mut second = connect(&address);
    second.write_all(&further.bytes()).unwrap();
    expect(&mut second, READY);
    // All connections exist: a further one and a second transfer are refused.
    let mut more = connect(&address);
    more.write_all(&further.bytes()).unwrap();
    let mut again = connect(&address);
    again
        .write_all(&[Hello { id: [8; 16], ..Hello::new(&manifest) }.bytes(), manifest].concat())
        .unwrap();
    let (_, text) = expect(&mut again, FAILED);
    assert!(text.contains("busy"), "{text}");
    second.write_all(&[range(4, 8), b"5678".to_vec(), end()].concat()).unwrap();
    first.write_all(&[range(0, 4), b"1234".to_vec(), end()].concat()).unwrap();
    expect(&mut first, STORED);
    first.write_all(&frame(KEEP, 0, 0)).unwrap();
    expect(&mut first, PUBLISHED);
    receiver.join().unwrap().unwrap();
    assert_eq!(std::fs::read(dir.path("inbox/file")).unwrap(), b"12345678");
    // The surplus connection gets a reason or is closed.
    let _ = more.read_to_end(&mut Vec::new());
    assert!(refused.lock().unwrap().len() >= 2, "{refused:?}");
}

#[test]
fn one_broken_connection_ends_all() {
    let dir = TestDir::new();
    let (address, receiver) = listening(&Receive::new(dir.inbox()), "127.0.0.1:0");
    let manifest = manifest(b"file", 8, &[(0, 8)]);
    let hello = Hello { connections: 2, ..Hello::new(&manifest) };
    let mut first = connect(&address);
    first.write_all(&[hello.bytes(), manifest].concat()).unwrap();
    expect(&mut first, READY);
    let mut second = connect(&address);
    second.write_all(&Hello { index: 1, manifest_bytes: 0, ..hello }.bytes()).unwrap();
    expect(&mut second, READY);
    second.write_all(&range(0, 8)).unwrap();
    drop(second);
    assert_peer(&receiver.join().unwrap().unwrap_err(), "closed the connection");
    expect(&mut first, FAILED);
    assert!(dir.received().is_empty());
}

#[test]
fn sender_reports_why_a_further_connection_was_refused() {
    let dir = TestDir::new();
    let file = dir.file("file", "text");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().into();
    let sender = std::thread::spawn(move || Send::new(&file).connections(2).to(&address));
    let (mut first, _) = listener.accept().unwrap();
    let mut hello = [0; 48];
    first.read_exact(&mut hello).unwrap();
    first.write_all(&frame(READY, 0, 0)).unwrap();
    let (mut second, _) = listener.accept().unwrap();
    let mut further = [0; 48];
    second.read_exact(&mut further).unwrap();
    assert_eq!(
        (&further[16..32], further[12]),
        (&hello[16..32], 1),
        "must name the same transfer and the next connection"
    );
    second.write_all(&frame(FAILED, 0, 0)).unwrap();
    let error = sender.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::PeerRefused { .. }), "{error:?}");
}

#[test]
fn serving_receiver_accepts_concurrent_transfers() {
    let dir = TestDir::new();
    let stop = Arc::new(AtomicBool::new(false));
    let receive = Receive::new(dir.inbox()).cancelled_by(stop.clone());
    let listener = receive.listen(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address().clone();
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let noted = outcomes.clone();
    let server = std::thread::spawn(move || {
        listener.serve(|outcome| noted.lock().unwrap().push(outcome.is_ok()))
    });
    // A transfer that has begun and stalls.
    let mut stuck = connect(&address);
    send_greeting(&mut stuck, &manifest(b"stuck", 4, &[(0, 4)]));
    let senders: Vec<_> = (0..4)
        .map(|number| {
            let file = dir.file(format!("file{number}"), bytes(100_000 * number));
            let address = address.clone();
            std::thread::spawn(move || {
                Send::new(file).connections(number as u16 % 2 + 1).to(&address).unwrap()
            })
        })
        .collect();
    senders.into_iter().for_each(|sender| {
        sender.join().unwrap();
    });
    drop(stuck);
    until("the fifth outcome", || outcomes.lock().unwrap().len() == 5);
    stop.store(true, Ordering::Relaxed);
    server.join().unwrap().unwrap();
    assert_eq!(outcomes.lock().unwrap().iter().filter(|is_ok| **is_ok).count(), 4);
    assert_eq!(dir.received(), ["file0", "file1", "file2", "file3"]);
}

#[test]
fn too_many_silent_connections_do_not_block_a_sender() {
    let dir = TestDir::new();
    let (address, receiver) = listening(&Receive::new(dir.inbox()), "127.0.0.1:0");
    let silent: Vec<TcpStream> = (0..100).map(|_| connect(&address)).collect();
    let file = dir.file("file", "text");
    Send::new(&file).to(&address).unwrap();
    receiver.join().unwrap().unwrap();
    drop(silent);
}

#[test]
fn missing_peer_is_an_error_with_a_remedy() {
    let dir = TestDir::new();
    let file = dir.file("file", "text");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().into();
    assert_peer(&Send::new(&file).to(&closed).unwrap_err(), "check that a receiver is listening");
    let nowhere = Address::Unix(dir.path("none"));
    assert_peer(&Send::new(&file).to(&nowhere).unwrap_err(), "check that a receiver is listening");
    assert_peer(
        &Send::new(&file).to(&"no-such-host.invalid:7".parse().unwrap()).unwrap_err(),
        "name",
    );
    // No sender within the timeout.
    let receive = Receive::new(dir.inbox()).wait_timeout(Duration::from_millis(50));
    assert_peer(&receive.on(&"127.0.0.1:0".parse().unwrap()).unwrap_err(), "no sender connected");
}

#[test]
fn address_is_exclusive_and_a_stale_socket_is_replaced() {
    let dir = TestDir::new();
    let receive = Receive::new(dir.inbox());
    let first = receive.listen(&"127.0.0.1:0".parse().unwrap()).unwrap();
    assert_peer(&receive.listen(first.address()).unwrap_err(), "already");
    let address = Address::Unix(dir.path("socket"));
    let listener = receive.listen(&address).unwrap();
    assert_peer(&receive.listen(&address).unwrap_err(), "already");
    drop(listener);
    assert!(!dir.path("socket").exists());
    // The state a killed listener leaves.
    drop(UnixListener::bind(dir.path("socket")).unwrap());
    assert!(dir.path("socket").exists());
    drop(receive.listen(&address).unwrap());
    // A file that is not a socket must not be removed.
    dir.file("socket", "mine");
    assert_peer(&receive.listen(&address).unwrap_err(), "already");
    assert_eq!(std::fs::read(dir.path("socket")).unwrap(), b"mine");
}

#[test]
fn sender_that_connects_at_the_end_gets_the_next_transfer() {
    let dir = TestDir::new();
    let file = dir.file("file", "contents");
    for address in ["127.0.0.1:0", &format!("unix:{}", dir.path("socket").display())] {
        let receiver = Receive::new(dir.path("any")).listen(&address.parse().unwrap()).unwrap();
        std::thread::scope(|scope| {
            let address = receiver.address().clone();
            let file = &file;
            let sender = scope.spawn(move || {
                for round in 0..100 {
                    let connections = 1 + round % 3;
                    let sent = Send::new(file).connections(connections).to(&address);
                    assert!(sent.is_ok(), "round {round}: {sent:?}");
                }
            });
            for round in 0..100 {
                let target = dir.path(format!("copy-{round}"));
                // Limited, because a refused sender would be waited for forever.
                let receive = Receive::new(&target).wait_timeout(Duration::from_secs(20));
                receiver.next(&receive).unwrap();
                assert_eq!(std::fs::read(&target).unwrap(), b"contents");
            }
            sender.join().unwrap();
        });
    }
}
