//! Whole processes: killed in the middle, with signals that interrupt every call, with SIGPIPE as C programs have it.
//!
//! The test program starts itself again; what a child is to be stands in its environment.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evermap_transfer::engines::EngineKind;
use evermap_transfer::net::{Address, Receive, Send};

use crate::common::{Place, assert_peer, bytes, listening, ok, until};
use crate::wire::{Hello, READY, expect, frame};

const ROLE: &str = "EVERMAP_TEST_ROLE";

/// A child that is killed when the test is over, however that ends.
struct Own(Child);

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(role: &str, address: &Address, path: &Path) -> Own {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "processes::child", "--nocapture"]).env(ROLE, role);
    command.env("EVERMAP_TEST_ADDRESS", address.to_string()).env("EVERMAP_TEST_PATH", path);
    Own(command.stdout(Stdio::piped()).spawn().unwrap())
}

/// What children do. Nothing, in a run of the tests.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let address: Address = std::env::var("EVERMAP_TEST_ADDRESS").unwrap().parse().unwrap();
    let path = std::env::var_os("EVERMAP_TEST_PATH").unwrap();
    match role.as_str() {
        "send" => drop(Send::new(path).connections(2).to(&address)),
        "receive" => drop(Receive::new(path).on(&address)),
        "sigpipe" => {
            // As a C program has it: a write to a closed socket ends it.
            // SAFETY: the default action of a signal, before this process has any other thread that cares.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
            for engine in [
                EngineKind::Splice,
                EngineKind::Sendfile,
                EngineKind::ReadWrite,
                EngineKind::DualPipe,
            ] {
                for raw in [true, false] {
                    assert_peer(
                        &Send::new(&path).engine(engine).raw(raw).to(&address).unwrap_err(),
                        "",
                    );
                }
            }
            std::process::exit(42);
        }
        "storm" => {
            transfers_in_a_storm(Path::new(&path));
            std::process::exit(42);
        }
        role => panic!("no such role: {role}"),
    }
}

#[test]
fn a_sender_that_is_killed_leaves_nothing_at_the_receiver() {
    let place = Place::new();
    let file = place.file("file", bytes(64 << 20));
    let (address, receiver) = listening(&Receive::new(place.inbox()), "127.0.0.1:0");
    let (has_begun, is_killed) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let front = proxy(&address, has_begun.clone(), is_killed.clone());
    let mut sender = start("send", &front, &file);
    until("the first megabytes", || has_begun.load(Ordering::Relaxed));
    sender.0.kill().unwrap();
    sender.0.wait().unwrap();
    is_killed.store(true, Ordering::Relaxed);
    assert_peer(&receiver.join().unwrap().unwrap_err(), "");
    assert!(place.received().is_empty());
}

/// Passes two connections on. Each lets four megabytes through, so that the sender is in the middle for sure, and breaks off
/// when that was killed.
fn proxy(to: &Address, has_begun: Arc<AtomicBool>, is_killed: Arc<AtomicBool>) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().into();
    let to = to.to_string();
    std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut front, _) = listener.accept().unwrap();
            let mut back = TcpStream::connect(&to).unwrap();
            let (mut answers_from, mut answers_to) =
                (back.try_clone().unwrap(), front.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut answers_from, &mut answers_to));
            let (has_begun, is_killed) = (has_begun.clone(), is_killed.clone());
            std::thread::spawn(move || {
                std::io::copy(&mut (&mut front).take(4 << 20), &mut back).unwrap();
                has_begun.store(true, Ordering::Relaxed);
                until("the sender's death", || is_killed.load(Ordering::Relaxed));
                let _ = back.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    address
}

#[test]
fn a_receiver_that_is_killed_is_an_error_at_the_sender_and_leaves_nothing() {
    let place = Place::new();
    let socket = Address::Unix(place.path("socket"));
    let mut receiver = start("receive", &socket, &place.inbox());
    until("the listening", || place.path("socket").exists());
    // Announced and begun by hand, so that it surely is in the middle.
    let mut stream = std::os::unix::net::UnixStream::connect(place.path("socket")).unwrap();
    let manifest = crate::wire::manifest(b"file", 1 << 20, &[(0, 1 << 20)]);
    stream.write_all(&[Hello::new(&manifest).bytes(), manifest].concat()).unwrap();
    expect(&mut stream, READY);
    stream.write_all(&[crate::wire::range(0, 1 << 20), vec![1; 1000]].concat()).unwrap();
    receiver.0.kill().unwrap();
    receiver.0.wait().unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(place.received().is_empty());
    // The next one takes its socket over, and a sender sees a receiver die.
    let file = place.file("file", bytes(1 << 20));
    let mut receiver = start("receive", &socket, &place.inbox());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().into();
    let sender = std::thread::spawn(move || Send::new(&file).to(&address));
    let (mut front, _) = listener.accept().unwrap();
    front.read_exact(&mut [0; 48]).unwrap();
    front.write_all(&frame(READY, 0, 0)).unwrap();
    drop(front);
    assert_peer(&sender.join().unwrap().unwrap_err(), "");
    receiver.0.kill().unwrap();
}

#[test]
fn a_program_with_the_default_sigpipe_survives_a_receiver_that_goes_away() {
    let place = Place::new();
    let file = place.file("file", bytes(16 << 20));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().into();
    std::thread::spawn(move || {
        // Each connection is welcomed, and closed a little later with everything unread.
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.write_all(&frame(READY, 0, 0));
            let _ = stream.read_exact(&mut vec![0; 100_000]);
        }
    });
    let mut child = start("sigpipe", &address, &file);
    let status = child.0.wait().unwrap();
    assert_eq!(status.code(), Some(42), "{status}");
}

#[test]
fn a_storm_of_signals_interrupts_every_call_and_nothing_is_lost() {
    let place = Place::new();
    let nowhere = "127.0.0.1:1".parse().unwrap();
    let mut child = start("storm", &nowhere, &place.path(""));
    let status = child.0.wait().unwrap();
    assert_eq!(status.code(), Some(42), "{status}");
}

/// In a process of its own, as signals are the whole process's.
fn transfers_in_a_storm(directory: &Path) {
    let contents = bytes((24 << 20) + 7);
    let file = directory.join("file");
    std::fs::write(&file, &contents).unwrap();
    let inbox = directory.join("inbox");
    let storm = Storm::begin();
    for connections in [1, 3] {
        for address in
            ["127.0.0.1:0".to_string(), format!("unix:{}", directory.join("socket").display())]
        {
            ok(
                &Send::new(&file).connections(connections).verify(true),
                &Receive::new(&inbox),
                &address,
            );
            assert!(std::fs::read(inbox.join("file")).unwrap() == contents);
        }
    }
    ok(&Send::new(&file).raw(true), &Receive::new(inbox.join("raw")).raw(true), "127.0.0.1:0");
    assert!(std::fs::read(inbox.join("raw")).unwrap() == contents);
    drop(storm);
}

/// A signal every 200 microseconds, to whichever thread, whose handler does nothing and restarts no call.
struct Storm;

impl Storm {
    fn begin() -> Storm {
        extern "C" fn nothing(_: libc::c_int) {}
        // SAFETY: the handler does nothing at all, the structures are initialised and live for the calls.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
        }
        Storm::every(200);
        Storm
    }

    fn every(us: libc::suseconds_t) {
        let time = libc::timeval { tv_sec: 0, tv_usec: us };
        let timer = libc::itimerval { it_interval: time, it_value: time };
        // SAFETY: the timer is live for the call, and the old one is not asked for.
        unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) };
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        Storm::every(0);
    }
}
