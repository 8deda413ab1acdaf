//! After a store was rebased or restored from a backup, its guests find their rights, keys and
//! objects at the same guest addresses.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::{Path, PathBuf};

use common::{DATA, Fixture};
use evermap::tools::{BackupOptions, RebaseOptions, backup, rebase, restore};
use evermap_wasm::{KeyRing, SandboxOptions, SecretKey};

const WRITE: u32 = 3;

/// A closed store with a guest's object.
struct Left {
    directory: tempfile::TempDir,
    store: PathBuf,
    base: u32,
    key: SecretKey,
}

fn left() -> Left {
    let fixture = Fixture::new();
    let (ring, id) = (KeyRing::of_store(fixture.store()), "ring".parse().unwrap());
    let key = ring.enter(fixture.sandbox.access(), &id).unwrap();
    let mut guest = fixture.start("app", "");
    let base = guest.map_ok(65536, WRITE);
    guest.store(base + DATA, 77);
    assert_eq!(guest.commit(base), 1);
    drop(guest);
    let store = fixture.store().to_path_buf();
    let Fixture { directory, sandbox } = fixture;
    drop(sandbox);
    Left { directory, store, base, key }
}

impl Left {
    fn assert_found_again(self) {
        let kept = KeyRing::of_store(&self.store).find(&"ring".parse().unwrap()).unwrap();
        assert_eq!(kept, Some(self.key));
        assert!(Path::new(&self.store).join("sandbox.access").exists());
        let fixture = Fixture::made_in(self.directory, SandboxOptions::new());
        fixture.assert_sound();
        let mut guest = fixture.start("app", "");
        assert_eq!(guest.map_ok(65536, WRITE), self.base);
        assert_eq!(guest.load(self.base + DATA), 77);
        guest.store(self.base + DATA, 78);
        assert_eq!(guest.commit(self.base), 1);
        // Assigned addresses are not assigned again.
        let other: i32 = guest.call("map_other", (65536u32, WRITE)).unwrap();
        assert!(other as u32 > self.base, "{}", guest.message());
    }
}

#[test]
fn a_guest_finds_its_objects_in_a_store_that_was_rebased() {
    let left = left();
    let report = rebase(&left.store, &RebaseOptions::new()).unwrap();
    assert_eq!(report.guests, ["app:heap"]);
    left.assert_found_again();
}

#[test]
fn a_guest_finds_its_objects_in_a_store_that_was_restored() {
    let left = left();
    let copy = left.directory.path().join("copy");
    let options = BackupOptions::new();
    backup(&left.store, &copy, &options).unwrap();
    std::fs::remove_dir_all(&left.store).unwrap();
    restore(&copy, &left.store, false, &options).unwrap();
    left.assert_found_again();
}
