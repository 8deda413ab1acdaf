//! A receiver without room.

use std::path::{Path, PathBuf};
use std::process::Command;

use evermap_transfer::Error;
use evermap_transfer::net::{Receive, Send};

use crate::common::{Place, bytes, transfer, until};

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
fn a_disk_that_gets_full_meanwhile_leaves_nothing() {
    let place = Place::new();
    let Some(small) = Small::mount(&place.path("small")) else { return };
    // Of raw bytes nothing is known before they come.
    let file = place.file("file", bytes(3 << 20));
    let receive = Receive::new(small.0.join("copy")).raw(true);
    let (sent, received) = transfer(&Send::new(&file).raw(true), &receive, "127.0.0.1:0");
    assert!(matches!(received, Err(Error::NoSpace { .. })), "{received:?}");
    drop(sent);
    assert_eq!(std::fs::read_dir(&small.0).unwrap().count(), 0);
    until("the giving back", || rustix::fs::statvfs(&small.0).unwrap().f_bfree == 512);
}
