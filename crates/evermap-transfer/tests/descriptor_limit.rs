//! A receiver without free descriptors. A separate program, because limits apply to the process.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evermap_transfer::net::{Receive, Send};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Returns the processor time of this process, in nanoseconds.
fn processor_ns() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

#[test]
fn receiver_without_free_descriptors_pauses_and_recovers() {
    let directory = tempfile::tempdir().unwrap();
    let (file, inbox) = (directory.path().join("file"), directory.path().join("inbox"));
    std::fs::write(&file, "text").unwrap();
    std::fs::create_dir(&inbox).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let receive = Receive::new(&inbox).cancelled_by(stop.clone());
    let listener = receive.listen(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address().clone();
    let server = std::thread::spawn(move || listener.serve(|outcome| drop(outcome.unwrap())));
    // The receiver has started by then. From here on, the process gets no further descriptor.
    std::thread::sleep(Duration::from_millis(100));
    let client = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let free = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(free), maximum: before.maximum }).unwrap();
    let peer: SocketAddr = address.to_string().parse().unwrap();
    rustix::net::connect(&client, &peer).unwrap();
    let begun_ns = processor_ns();
    std::thread::sleep(Duration::from_millis(500));
    let spent_ns = processor_ns() - begun_ns;
    setrlimit(Resource::Nofile, before).unwrap();
    assert!(spent_ns < 100_000_000, "{spent_ns} ns in 500 ms");
    Send::new(&file).to(&address).unwrap();
    assert_eq!(std::fs::read(inbox.join("file")).unwrap(), b"text");
    drop(client);
    stop.store(true, Ordering::Relaxed);
    server.join().unwrap().unwrap();
}
