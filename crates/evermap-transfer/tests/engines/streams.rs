//! Sockets and pipes as source or target.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use evermap_transfer::engines::{EngineKind, Stop};
use evermap_transfer::{Ends, Meter, Span, Work};

use super::common::*;

/// Name, end for an engine, end for a thread.
type Connection = (&'static str, Box<dyn Descriptor>, Box<dyn Descriptor>);

/// Creates one connection of each kind.
fn connections() -> [Connection; 4] {
    let (near, far) = UnixStream::pair().unwrap();
    let (near_waiting, far_waiting) = UnixStream::pair().unwrap();
    near_waiting.set_nonblocking(true).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let dialled = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let accepted = listener.accept().unwrap().0;
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    [
        ("UNIX socket", Box::new(near), Box::new(far)),
        ("UNIX socket that does not block", Box::new(near_waiting), Box::new(far_waiting)),
        ("TCP", Box::new(dialled), Box::new(accepted)),
        // The write end comes first. The tests swap the ends as needed.
        ("pipe", Box::new(File::from(writer)), Box::new(File::from(reader))),
    ]
}

trait Descriptor: Read + Write + AsFd + Send {}
impl<T: Read + Write + AsFd + Send> Descriptor for T {}

#[test]
fn file_arrives_at_a_stream_in_order() {
    let dir = disk();
    let bytes = noise((2 << 20) + 12_345, 21);
    let (source, from) = dir.file("source", &bytes);
    // The caller has removed the holes: spans follow each other in the stream.
    let spans = [Span::new(0, 100_001), Span::new(500_000, bytes.len() as u64)];
    let expected = [&bytes[..100_001], &bytes[500_000..]].concat();
    let mut served = Vec::new();
    for kind in EngineKind::ALL {
        for (name, near, mut far) in connections() {
            let (source, from) = (&source, &from);
            let (outcome, received) = std::thread::scope(move |scope| {
                let receiver = scope.spawn(move || {
                    let mut received = Vec::new();
                    let mut chunk = vec![0; 50_000];
                    loop {
                        match far.read(&mut chunk).unwrap() {
                            0 => return received,
                            read => received.extend_from_slice(&chunk[..read]),
                        }
                        // Slow at first, so that the sender waits.
                        if received.len() < 300_000 {
                            std::thread::sleep(std::time::Duration::from_millis(2));
                        }
                    }
                });
                let near_fd = near.as_fd();
                let ends = Ends::new((source, from), (&near_fd, name.as_ref())).unwrap();
                let (meter, mut work) = (Meter::default(), Work::new(spans));
                let outcome = attempt(kind, &small(), &ends, &mut work, &meter, 400_000);
                drop(near);
                (outcome, receiver.join().unwrap())
            });
            match outcome {
                None => continue,
                Some(outcome) => {
                    outcome.unwrap_or_else(|stop| panic!("{kind} to {name}: {stop:?}"))
                }
            }
            served.push((kind, name));
            assert_same(&format!("{kind} to {name}"), &received, &expected);
        }
    }
    use EngineKind::*;
    for kind in [ReadWrite, MmapWrite, Sendfile, Splice, DualPipe] {
        assert_eq!(
            served.iter().filter(|(served, _)| *served == kind).count(),
            4,
            "{kind} must support all streams"
        );
    }
    if has_rings() {
        assert_eq!(
            served.iter().filter(|(served, _)| *served == UringSplice).count(),
            3,
            "must support sockets but not pipes"
        );
    }
}

#[test]
fn stream_arrives_in_a_file() {
    for dir in test_dirs() {
        let bytes = noise((2 << 20) + 12_345, 22);
        for kind in EngineKind::ALL {
            for (name, near, far) in connections() {
                // The near end of a pipe is its write end.
                let (reader, mut writer) = if name == "pipe" { (far, near) } else { (near, far) };
                let (target, to) = dir.file("target", b"");
                let reader_fd = reader.as_fd();
                let ends = Ends::new((&reader_fd, name.as_ref()), (&target, &to)).unwrap();
                let (meter, mut work) = (Meter::default(), Work::open(0));
                let outcome = std::thread::scope(|scope| {
                    let mut engine = evermap_transfer::engines::make(kind, &small());
                    if engine.probe(&ends).is_err() {
                        return None;
                    }
                    let sent = &bytes;
                    scope.spawn(move || {
                        for part in sent.chunks(77_777) {
                            writer.write_all(part).unwrap();
                        }
                    });
                    Some(attempt(kind, &small(), &ends, &mut work, &meter, 400_000).unwrap())
                });
                match outcome {
                    None => assert!(![EngineKind::ReadWrite, EngineKind::Splice].contains(&kind)),
                    Some(outcome) => {
                        outcome.unwrap_or_else(|stop| panic!("{kind} from {name}: {stop:?}"));
                        assert!(work.is_done());
                        assert_same(
                            &format!("{kind} from {name} on {}", dir.name),
                            &contents(&to),
                            &bytes,
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn closed_peer_is_a_failure() {
    let dir = disk();
    let bytes = noise(4 << 20, 23);
    let (source, from) = dir.file("source", &bytes);
    for kind in EngineKind::ALL {
        let (near, far) = UnixStream::pair().unwrap();
        let ends = Ends::new((&source, &from), (&near, "peer".as_ref())).unwrap();
        drop(far);
        let mut work = whole(bytes.len());
        match attempt(kind, &small(), &ends, &mut work, &Meter::default(), u64::MAX) {
            None => {}
            Some(Err(Stop::Failed { errno: rustix::io::Errno::PIPE, .. })) => {}
            other => panic!("{kind}: {other:?}"),
        }
    }
}
