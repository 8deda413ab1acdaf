//! Several connections and several strangers at one listener.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evermap_transfer::Error;
use evermap_transfer::net::{Address, Receive, Send};

use crate::common::{Place, assert_peer, bytes, listening, until};
use crate::wire::{
    FAILED, Hello, KEEP, PUBLISHED, READY, STORED, end, expect, frame, greet, manifest, range,
};

fn connect(address: &Address) -> TcpStream {
    TcpStream::connect(address.to_string()).unwrap()
}

/// A receiver that notes whom it sends away.
fn noting(place: &Place) -> (Receive, Arc<Mutex<Vec<String>>>) {
    let refused = Arc::new(Mutex::new(Vec::new()));
    let notes = refused.clone();
    let receive = Receive::new(place.inbox())
        .on_refused(move |error| notes.lock().unwrap().push(error.to_string()));
    (receive, refused)
}

#[test]
fn strangers_hold_nobody_up() {
    let place = Place::new();
    let (receive, refused) = noting(&place);
    let (address, receiver) = listening(&receive, "127.0.0.1:0");
    // One that says nothing, one that says half a hello, one that speaks something else, one that is gone at once.
    let silent = connect(&address);
    let mut half = connect(&address);
    half.write_all(&Hello::new(b"x").bytes()[..20]).unwrap();
    let mut other = connect(&address);
    other.write_all(b"GET / HTTP/1.1\r\nHost: evermap\r\nAccept: text/html\r\n\r\n").unwrap();
    expect(&mut other, FAILED);
    drop(connect(&address));
    let file = place.file("file", bytes(3 << 20));
    Send::new(&file).connections(2).to(&address).unwrap();
    receiver.join().unwrap().unwrap();
    assert_eq!(place.received(), ["file"]);
    assert!(
        refused.lock().unwrap().iter().any(|why| why.contains("none of an Evermap sender's")),
        "{refused:?}"
    );
    drop((silent, half));
}

#[test]
fn stalled_senders_lose_their_places_to_one_who_sends() {
    let place = Place::new();
    let idle = Duration::from_secs(12);
    let enough = Arc::new(AtomicBool::new(false));
    let receive = Receive::new(place.inbox()).idle_timeout(idle).cancelled_by(enough.clone());
    let listening = receive.listen(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listening.address().clone();
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let ended = outcomes.clone();
    let server = std::thread::spawn(move || {
        listening.serve(|outcome| ended.lock().unwrap().push(outcome.map_err(|e| e.to_string())))
    });
    // All places that one peer may have, each with an announcement and nothing behind it.
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
    let file = place.file("file", bytes(100_000));
    let error = Send::new(&file).to(&address).unwrap_err().to_string();
    assert!(error.contains("busy"), "as long as none has stalled for long: {error}");
    until("a place", || Send::new(&file).to(&address).is_ok());
    assert!(begin.elapsed() < idle, "the stalled ones were waited for");
    assert_eq!(place.received(), ["file"]);
    until("the end of one of them", || {
        let outcomes = outcomes.lock().unwrap();
        outcomes.iter().any(|end| end.as_ref().is_err_and(|e| e.contains("needed the place")))
    });
    enough.store(true, Ordering::Relaxed);
    drop(stalled);
    server.join().unwrap().unwrap();
}

#[test]
fn half_of_the_connections_are_no_transfer() {
    let place = Place::new();
    let receive = Receive::new(place.inbox()).handshake_timeout(Duration::from_millis(200));
    let (address, receiver) = listening(&receive, "127.0.0.1:0");
    let manifest = manifest(b"file", 4, &[(0, 4)]);
    let hello = Hello { connections: 4, ..Hello::new(&manifest) };
    let mut first = connect(&address);
    first.write_all(&[hello.bytes(), manifest].concat()).unwrap();
    expect(&mut first, READY);
    let mut second = connect(&address);
    second.write_all(&Hello { index: 2, manifest_bytes: 0, ..hello }.bytes()).unwrap();
    expect(&mut second, READY);
    assert_peer(&receiver.join().unwrap().unwrap_err(), "2 of its 4 connections came");
    expect(&mut first, FAILED);
    assert!(place.received().is_empty());
}

#[test]
fn connections_that_are_too_many_or_of_another_transfer_change_nothing() {
    let place = Place::new();
    let (receive, refused) = noting(&place);
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
    // All are there: one more has no place, nor has a second transfer.
    let mut more = connect(&address);
    more.write_all(&further.bytes()).unwrap();
    let mut again = connect(&address);
    again
        .write_all(&[Hello { id: [8; 16], ..Hello::new(&manifest) }.bytes(), manifest].concat())
        .unwrap();
    let (_, words) = expect(&mut again, FAILED);
    assert!(words.contains("busy"), "{words}");
    second.write_all(&[range(4, 8), b"5678".to_vec(), end()].concat()).unwrap();
    first.write_all(&[range(0, 4), b"1234".to_vec(), end()].concat()).unwrap();
    expect(&mut first, STORED);
    first.write_all(&frame(KEEP, 0, 0)).unwrap();
    expect(&mut first, PUBLISHED);
    receiver.join().unwrap().unwrap();
    assert_eq!(std::fs::read(place.path("inbox/file")).unwrap(), b"12345678");
    // Whoever has no place is told, or finds itself closed.
    let _ = more.read_to_end(&mut Vec::new());
    assert!(refused.lock().unwrap().len() >= 2, "{refused:?}");
}

#[test]
fn a_broken_connection_of_several_ends_all_of_them() {
    let place = Place::new();
    let (address, receiver) = listening(&Receive::new(place.inbox()), "127.0.0.1:0");
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
    assert!(place.received().is_empty());
}

#[test]
fn a_sender_whose_further_connection_is_refused_says_why() {
    let place = Place::new();
    let file = place.file("file", "text");
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
        "the same transfer, the next connection"
    );
    second.write_all(&frame(FAILED, 0, 0)).unwrap();
    let error = sender.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::PeerRefused { .. }), "{error:?}");
}

#[test]
fn a_receiver_that_goes_on_has_transfers_side_by_side() {
    let place = Place::new();
    let enough = Arc::new(AtomicBool::new(false));
    let receive = Receive::new(place.inbox()).cancelled_by(enough.clone());
    let listener = receive.listen(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address().clone();
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let noted = outcomes.clone();
    let server = std::thread::spawn(move || {
        listener.serve(|outcome| noted.lock().unwrap().push(outcome.is_ok()))
    });
    // One that has begun and does not go on.
    let mut stuck = connect(&address);
    greet(&mut stuck, &manifest(b"stuck", 4, &[(0, 4)]));
    let senders: Vec<_> = (0..4)
        .map(|number| {
            let file = place.file(format!("file{number}"), bytes(100_000 * number));
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
    enough.store(true, Ordering::Relaxed);
    server.join().unwrap().unwrap();
    assert_eq!(outcomes.lock().unwrap().iter().filter(|is_ok| **is_ok).count(), 4);
    assert_eq!(place.received(), ["file0", "file1", "file2", "file3"]);
}

#[test]
fn more_silent_strangers_than_there_is_room_for_do_not_keep_a_sender_out() {
    let place = Place::new();
    let (address, receiver) = listening(&Receive::new(place.inbox()), "127.0.0.1:0");
    let silent: Vec<TcpStream> = (0..100).map(|_| connect(&address)).collect();
    let file = place.file("file", "text");
    Send::new(&file).to(&address).unwrap();
    receiver.join().unwrap().unwrap();
    drop(silent);
}

#[test]
fn nobody_there_is_an_error_with_a_remedy() {
    let place = Place::new();
    let file = place.file("file", "text");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().into();
    assert_peer(&Send::new(&file).to(&closed).unwrap_err(), "start it first");
    let nowhere = Address::Unix(place.path("none"));
    assert_peer(&Send::new(&file).to(&nowhere).unwrap_err(), "start it first");
    assert_peer(
        &Send::new(&file).to(&"no-such-host.invalid:7".parse().unwrap()).unwrap_err(),
        "name",
    );
    // And no sender, for who does not want to wait for ever.
    let receive = Receive::new(place.inbox()).wait_timeout(Duration::from_millis(50));
    assert_peer(&receive.on(&"127.0.0.1:0".parse().unwrap()).unwrap_err(), "no sender came");
}

#[test]
fn an_address_is_had_once_and_a_deserted_socket_is_taken_over() {
    let place = Place::new();
    let receive = Receive::new(place.inbox());
    let first = receive.listen(&"127.0.0.1:0".parse().unwrap()).unwrap();
    assert_peer(&receive.listen(first.address()).unwrap_err(), "already");
    let address = Address::Unix(place.path("socket"));
    let listener = receive.listen(&address).unwrap();
    assert_peer(&receive.listen(&address).unwrap_err(), "already");
    drop(listener);
    assert!(!place.path("socket").exists());
    // As a killed listener leaves it.
    drop(UnixListener::bind(place.path("socket")).unwrap());
    assert!(place.path("socket").exists());
    drop(receive.listen(&address).unwrap());
    // What is no socket is nobody's to remove.
    place.file("socket", "mine");
    assert_peer(&receive.listen(&address).unwrap_err(), "already");
    assert_eq!(std::fs::read(place.path("socket")).unwrap(), b"mine");
}

#[test]
fn who_comes_at_the_end_of_a_transfer_has_the_next_one() {
    let place = Place::new();
    let file = place.file("file", "what is sent");
    for address in ["127.0.0.1:0", &format!("unix:{}", place.path("socket").display())] {
        let receiver = Receive::new(place.path("any")).listen(&address.parse().unwrap()).unwrap();
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
                let target = place.path(format!("copy-{round}"));
                // Bounded: a sender that was sent away would be waited for in vain.
                let receive = Receive::new(&target).wait_timeout(Duration::from_secs(20));
                receiver.next(&receive).unwrap();
                assert_eq!(std::fs::read(&target).unwrap(), b"what is sent");
            }
            sender.join().unwrap();
        });
    }
}
