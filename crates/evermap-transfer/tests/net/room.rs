//! A receiver without room.

use std::path::{Path, PathBuf};
use std::process::Command;

use evermap_transfer::Error;
use evermap_transfer::net::{Receive, Send};

use crate::common::{Place, SOON, bytes, ok, over_pair, transfer, until};
use crate::wire;

/// A file system of 2 MiB, unmounted in the end.
struct Small(PathBuf);

impl Small {
    fn mount(path: &Path) -> Option<Small> {
        std::fs::create_dir(path).unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "none"]).arg(path).output();
        match mount {
            Ok(output) if output.status.success() => Some(Small(path.into())),
            other => {
                eprintln!("SKIPPED: no small file system can be mounted here ({other:?})");
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
fn a_full_disk_is_known_before_the_first_byte_and_both_ends_say_so() {
    let place = Place::new();
    let Some(small) = Small::mount(&place.path("small")) else { return };
    let file = place.file("file", bytes(3 << 20));
    for connections in [1, 2] {
        let (sent, received) = transfer(
            &Send::new(&file).connections(connections),
            &Receive::new(&small.0),
            "127.0.0.1:0",
        );
        assert!(matches!(received, Err(Error::NoSpace { .. })), "{received:?}");
        let error = sent.unwrap_err();
        assert!(error.to_string().contains("no space for 3145728 bytes"), "{error}");
        assert!(matches!(error, Error::PeerRefused { .. }));
        assert_eq!(std::fs::read_dir(&small.0).unwrap().count(), 0);
        until("the giving back", || rustix::fs::statvfs(&small.0).unwrap().f_bfree == 512);
    }
}

#[test]
fn an_announcement_takes_no_space() {
    let place = Place::new();
    let Some(small) = Small::mount(&place.path("small")) else { return };
    let free = || rustix::fs::statvfs(&small.0).unwrap().f_bfree;
    let before = free();
    let announced = 900 << 10;
    let manifest = wire::manifest(b"file", announced, &[(0, announced)]);
    let (mut stream, receiver) = over_pair(&Receive::new(&small.0));
    wire::greet(&mut stream, &manifest);
    assert_eq!(free(), before, "only what has come may take space");
    drop(stream);
    receiver.join().unwrap().unwrap_err();
    assert_eq!(std::fs::read_dir(&small.0).unwrap().count(), 0);
}

#[test]
fn more_than_one_transfer_may_bring_is_refused_before_the_first_byte() {
    let place = Place::new();
    let file = place.file("file", bytes(3000));
    let receive = Receive::new(place.inbox()).room_bytes_max(2999);
    let (sent, received) = transfer(&Send::new(&file), &receive, "127.0.0.1:0");
    let error = received.unwrap_err();
    assert!(
        matches!(error, Error::TooLarge { needed_bytes: 3000, most_bytes: 2999, .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains("--room"), "{error}");
    let error = sent.unwrap_err().to_string();
    assert!(error.contains("at most 2999 bytes"), "{error}");
    assert!(place.received().is_empty());
    ok(&Send::new(&file), &Receive::new(place.inbox()).room_bytes_max(3000), "127.0.0.1:0");
}

#[test]
fn half_of_a_small_file_system_is_the_most_by_default() {
    let place = Place::new();
    let Some(small) = Small::mount(&place.path("small")) else { return };
    let file = place.file("file", bytes(1200 << 10));
    let (_, received) = transfer(&Send::new(&file), &Receive::new(&small.0), "127.0.0.1:0");
    assert!(matches!(received, Err(Error::TooLarge { .. })), "{received:?}");
    ok(&Send::new(&file), &Receive::new(&small.0).room_bytes_max(u64::MAX), "127.0.0.1:0");
}

#[test]
fn raw_bytes_are_cut_off_where_they_are_too_many() {
    let place = Place::new();
    // Endless: only the bound ends it.
    let receive = Receive::new(place.inbox().join("copy")).raw(true).room_bytes_max(1 << 20);
    let (mut stream, receiver) = over_pair(&receive);
    let block = vec![7; 64 << 10];
    let begin = std::time::Instant::now();
    while std::io::Write::write_all(&mut stream, &block).is_ok() {
        assert!(begin.elapsed() < SOON, "it takes whatever comes");
        // As slow as a network, so that little more than the bound is taken before the watch looks.
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let error = receiver.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::TooLarge { most_bytes: 0x10_0000, .. }), "{error:?}");
    assert!(place.received().is_empty());
}

#[test]
fn a_disk_that_gets_full_meanwhile_leaves_nothing() {
    let place = Place::new();
    let Some(small) = Small::mount(&place.path("small")) else { return };
    // Of raw bytes nothing is known before they come.
    let file = place.file("file", bytes(3 << 20));
    let receive = Receive::new(small.0.join("copy")).raw(true).room_bytes_max(u64::MAX);
    let (sent, received) = transfer(&Send::new(&file).raw(true), &receive, "127.0.0.1:0");
    assert!(matches!(received, Err(Error::NoSpace { .. })), "{received:?}");
    drop(sent);
    assert_eq!(std::fs::read_dir(&small.0).unwrap().count(), 0);
    until("the giving back", || rustix::fs::statvfs(&small.0).unwrap().f_bfree == 512);
}
