//! Receivers without enough space.

use std::path::{Path, PathBuf};
use std::process::Command;

use evermap_transfer::Error;
use evermap_transfer::net::{Receive, Send};

use crate::common::{SOON, TestDir, bytes, ok, over_pair, transfer, until};
use crate::wire;

/// A file system of 2 MiB, unmounted on drop.
struct Small(PathBuf);

impl Small {
    fn mount(path: &Path) -> Option<Small> {
        std::fs::create_dir(path).unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "none"]).arg(path).output();
        match mount {
            Ok(output) if output.status.success() => Some(Small(path.into())),
            other => {
                eprintln!("SKIPPED: cannot mount a small file system ({other:?})");
                None
            }
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn full_disk_is_reported_by_both_ends_before_the_first_byte() {
    let dir = TestDir::new();
    let Some(small) = Small::mount(&dir.path("small")) else { return };
    let file = dir.file("file", bytes(3 << 20));
    for connections in [1, 2] {
        let (sent, received) = transfer(
            &Send::new(&file).connections(connections),
            &Receive::new(&small.0),
            "127.0.0.1:0",
        );
        assert!(matches!(received, Err(Error::NoSpace { .. })), "{received:?}");
        let error = sent.unwrap_err();
        assert!(error.to_string().contains("not enough space for 3145728 bytes"), "{error}");
        assert!(matches!(error, Error::PeerRefused { .. }));
        assert_eq!(std::fs::read_dir(&small.0).unwrap().count(), 0);
        until("freeing the space", || rustix::fs::statvfs(&small.0).unwrap().f_bfree == 512);
    }
}

#[test]
fn announcement_takes_no_space() {
    let dir = TestDir::new();
    let Some(small) = Small::mount(&dir.path("small")) else { return };
    let free = || rustix::fs::statvfs(&small.0).unwrap().f_bfree;
    let before = free();
    let announced = 900 << 10;
    let manifest = wire::manifest(b"file", announced, &[(0, announced)]);
    let (mut stream, receiver) = over_pair(&Receive::new(&small.0));
    wire::send_greeting(&mut stream, &manifest);
    assert_eq!(free(), before, "only arrived data may take space");
    drop(stream);
    receiver.join().unwrap().unwrap_err();
    assert_eq!(std::fs::read_dir(&small.0).unwrap().count(), 0);
}

#[test]
fn transfer_above_the_limit_is_refused_before_the_first_byte() {
    let dir = TestDir::new();
    let file = dir.file("file", bytes(3000));
    let receive = Receive::new(dir.inbox()).transfer_bytes_max(2999);
    let (sent, received) = transfer(&Send::new(&file), &receive, "127.0.0.1:0");
    let error = received.unwrap_err();
    assert!(
        matches!(error, Error::TooLarge { needed_bytes: 3000, limit_bytes: 2999, .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("--room"), "{error}");
    let error = sent.unwrap_err().to_string();
    assert!(error.contains("at most 2999 bytes"), "{error}");
    assert!(dir.received().is_empty());
    ok(&Send::new(&file), &Receive::new(dir.inbox()).transfer_bytes_max(3000), "127.0.0.1:0");
}

#[test]
fn default_limit_is_half_of_a_small_file_system() {
    let dir = TestDir::new();
    let Some(small) = Small::mount(&dir.path("small")) else { return };
    let file = dir.file("file", bytes(1200 << 10));
    let (_, received) = transfer(&Send::new(&file), &Receive::new(&small.0), "127.0.0.1:0");
    assert!(matches!(received, Err(Error::TooLarge { .. })), "{received:?}");
    ok(&Send::new(&file), &Receive::new(&small.0).transfer_bytes_max(u64::MAX), "127.0.0.1:0");
}

#[test]
fn raw_transfer_above_the_limit_is_ended() {
    let dir = TestDir::new();
    // Endless: only the limit ends it.
    let receive = Receive::new(dir.inbox().join("copy")).raw(true).transfer_bytes_max(1 << 20);
    let (mut stream, receiver) = over_pair(&receive);
    let block = vec![7; 64 << 10];
    let begin = std::time::Instant::now();
    while std::io::Write::write_all(&mut stream, &block).is_ok() {
        assert!(begin.elapsed() < SOON, "the limit did not end the transfer");
        // As slow as a network, so that little more than the limit arrives before the watch checks.
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let error = receiver.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::TooLarge { limit_bytes: 0x10_0000, .. }), "{error:?}");
    assert!(dir.received().is_empty());
}

#[test]
fn disk_that_fills_up_during_a_transfer_leaves_nothing() {
    let dir = TestDir::new();
    let Some(small) = Small::mount(&dir.path("small")) else { return };
    // The size of raw data is unknown beforehand.
    let file = dir.file("file", bytes(3 << 20));
    let receive = Receive::new(small.0.join("copy")).raw(true).transfer_bytes_max(u64::MAX);
    let (sent, received) = transfer(&Send::new(&file).raw(true), &receive, "127.0.0.1:0");
    assert!(matches!(received, Err(Error::NoSpace { .. })), "{received:?}");
    drop(sent);
    assert_eq!(std::fs::read_dir(&small.0).unwrap().count(), 0);
    until("freeing the space", || rustix::fs::statvfs(&small.0).unwrap().f_bfree == 512);
}
