//! Child processes: killed during a transfer, interrupted by signals in every call, with the
//! default SIGPIPE action.
//!
//! The test program starts itself. The environment determines the child's role.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evermap_transfer::engines::EngineKind;
use evermap_transfer::net::{Address, Receive, Send};

use crate::common::{TestDir, assert_peer, bytes, listening, ok, until};
use crate::wire::{Hello, READY, expect, frame};

const ROLE: &str = "EVERMAP_TEST_ROLE";

/// A child that is killed on drop.
struct ChildProcess(Child);

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(role: &str, address: &Address, path: &Path) -> ChildProcess {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "processes::child", "--nocapture"]).env(ROLE, role);
    command.env("EVERMAP_TEST_ADDRESS", address.to_string()).env("EVERMAP_TEST_PATH", path);
    ChildProcess(command.stdout(Stdio::piped()).spawn().unwrap())
}

/// Body of the child processes. Does nothing in a test run.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let address: Address = std::env::var("EVERMAP_TEST_ADDRESS").unwrap().parse().unwrap();
    let path = std::env::var_os("EVERMAP_TEST_PATH").unwrap();
    match role.as_str() {
        "send" => drop(Send::new(path).connections(2).to(&address)),
        "receive" => drop(Receive::new(path).on(&address)),
        "sigpipe" => {
            // The default action, as in a C program: a write to a closed socket is fatal.
            // SAFETY: sets the default action of a signal before this process has any other thread
            // that depends on it.
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
fn killed_sender_leaves_nothing_at_the_receiver() {
    let dir = TestDir::new();
    let file = dir.file("file", bytes(64 << 20));
    let (address, receiver) = listening(&Receive::new(dir.inbox()), "127.0.0.1:0");
    let (has_begun, is_killed) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let front = proxy(&address, has_begun.clone(), is_killed.clone());
    let mut sender = start("send", &front, &file);
    until("the first megabytes", || has_begun.load(Ordering::Relaxed));
    sender.0.kill().unwrap();
    sender.0.wait().unwrap();
    is_killed.store(true, Ordering::Relaxed);
    assert_peer(&receiver.join().unwrap().unwrap_err(), "");
    assert!(dir.received().is_empty());
}

/// Forwards two connections. Each passes four megabytes, so that the transfer has surely begun, and
/// breaks when the sender was killed.
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
                until("killing the sender", || is_killed.load(Ordering::Relaxed));
                let _ = back.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    address
}

#[test]
fn killed_receiver_is_an_error_at_the_sender_and_leaves_nothing() {
    let dir = TestDir::new();
    let socket = Address::Unix(dir.path("socket"));
    let mut receiver = start("receive", &socket, &dir.inbox());
    until("the listener's socket", || dir.path("socket").exists());
    // Started by hand, so that the transfer has surely begun.
    let mut stream = std::os::unix::net::UnixStream::connect(dir.path("socket")).unwrap();
    let manifest = crate::wire::manifest(b"file", 1 << 20, &[(0, 1 << 20)]);
    stream.write_all(&[Hello::new(&manifest).bytes(), manifest].concat()).unwrap();
    expect(&mut stream, READY);
    stream.write_all(&[crate::wire::range(0, 1 << 20), vec![1; 1000]].concat()).unwrap();
    receiver.0.kill().unwrap();
    receiver.0.wait().unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(dir.received().is_empty());
    // The next receiver replaces the socket, and a sender notices a killed receiver.
    let file = dir.file("file", bytes(1 << 20));
    let mut receiver = start("receive", &socket, &dir.inbox());
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
fn program_with_the_default_sigpipe_survives_a_closed_receiver() {
    let dir = TestDir::new();
    let file = dir.file("file", bytes(16 << 20));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().into();
    std::thread::spawn(move || {
        // Accept each connection and close it soon with unread data.
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
fn signals_in_every_call_lose_no_data() {
    let dir = TestDir::new();
    let nowhere = "127.0.0.1:1".parse().unwrap();
    let mut child = start("storm", &nowhere, &dir.path(""));
    let status = child.0.wait().unwrap();
    assert_eq!(status.code(), Some(42), "{status}");
}

/// Runs in a child process, because signals apply to the whole process.
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

/// Sends a signal every 200 microseconds to any thread. The handler does nothing and restarts no
/// call.
struct Storm;

impl Storm {
    fn begin() -> Storm {
        extern "C" fn nothing(_: libc::c_int) {}
        // SAFETY: the handler does nothing; the structures are initialised and live for the calls.
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
        // SAFETY: the timer is live for the call, and the old one is not requested.
        unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) };
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        Storm::every(0);
    }
}
