//! Full disks: the guest gets `DISK_FULL`, no committed or stored data are lost, and the guest
//! continues when there is space.
//!
//! The disk is a small file system in memory. Only root can mount it; the tests are skipped for
//! other users.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{DATA, Fixture, Machine};
use evermap_wasm::{Code, SandboxOptions};

const WRITE: u32 = 3;
const SNAPSHOT: u32 = 1;
const MIB: u32 = 1 << 20;
const DISK_FULL: i32 = -(Code::DiskFull as i32);
/// More attempts than an application's quota, or the window, has granules.
const ATTEMPTS: u32 = 300;

const BODY: &str = r#"
    (func (export "fill") (param i32 i32 i32)
        (memory.fill (local.get 0) (local.get 1) (local.get 2)))
    (func (export "holds") (param $at i32) (param $byte i32) (param $bytes i32) (result i32)
        (local $end i32)
        (local.set $end (i32.add (local.get $at) (local.get $bytes)))
        (block $out (loop $next
            (br_if $out (i32.eq (local.get $at) (local.get $end)))
            (br_if $out (i32.ne (i32.load8_u (local.get $at)) (local.get $byte)))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (br $next)))
        (i32.eq (local.get $at) (local.get $end)))"#;

/// A file system for one test, unmounted when dropped.
struct Disk(PathBuf);

impl Disk {
    /// Returns `None` and prints a notice without the right to mount.
    fn mount(at: PathBuf, size: &str) -> Option<Disk> {
        std::fs::create_dir(&at).unwrap();
        let options = format!("size={size}");
        let mut mount = Command::new("mount");
        match mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&at).output() {
            Ok(output) if output.status.success() => Some(Disk(at)),
            other => {
                let why = other.map(|o| String::from_utf8_lossy(&o.stderr).trim().to_string());
                let _ = writeln!(std::io::stderr(), "SKIPPED: this user may not mount ({why:?})");
                None
            }
        }
    }

    /// Fills the disk until the value is dropped.
    fn fill_up(&self) -> Filler {
        let path = self.0.join("filler");
        let mut file = File::create(&path).unwrap();
        for bytes in [MIB, 4096, 1] {
            while file.write_all(&vec![1; bytes as usize]).is_ok() {}
        }
        Filler(path)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

struct Filler(PathBuf);

impl Filler {
    /// Frees this many bytes.
    fn leave(&self, bytes: u64) {
        let file = File::options().write(true).open(&self.0).unwrap();
        let length = file.metadata().unwrap().len();
        file.set_len(length - bytes).unwrap();
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A store on a disk of 32 MiB.
struct Small {
    // Dropped first, so that no file is open when the disk is unmounted.
    fixture: Fixture,
    disk: Disk,
    _directory: tempfile::TempDir,
}

impl Small {
    fn new() -> Option<Small> {
        let directory = tempfile::tempdir().unwrap();
        let disk = Disk::mount(directory.path().join("disk"), "32m")?;
        let fixture = Fixture::under(&disk.0, SandboxOptions::new());
        Some(Small { fixture, disk, _directory: directory })
    }

    fn start(&self) -> Machine {
        self.fixture.start("app", BODY)
    }
}

impl Fixture {
    fn under(directory: &Path, options: SandboxOptions) -> Fixture {
        Fixture::made_in(tempfile::tempdir_in(directory).unwrap(), options)
    }
}

impl Machine {
    fn fill(&mut self, at: u32, byte: u32, bytes: u32) {
        self.call::<_, ()>("fill", (at, byte, bytes)).unwrap();
    }

    fn holds(&mut self, at: u32, byte: u32, bytes: u32) -> bool {
        self.call::<_, u32>("holds", (at, byte, bytes)).unwrap() == 1
    }

    fn assert_disk_full(&mut self, result: i32) {
        assert_eq!(result, DISK_FULL, "{}", self.message());
        assert!(self.message().contains("no disk space left"), "{}", self.message());
    }
}

/// Grows in steps until a growth is refused. Returns the bytes that the object has at least, and
/// the code.
fn grow_until_refused(guest: &mut Machine, from_bytes: u32) -> (u32, i32) {
    let mut bytes = from_bytes;
    loop {
        let result = guest.map(bytes + MIB, WRITE);
        if result < 0 {
            return (bytes, result);
        }
        bytes += MIB;
        assert!(bytes < 64 * MIB, "the disk did not become full");
    }
}

#[test]
fn a_guest_that_fills_the_disk_gets_an_error_and_continues() {
    let Some(small) = Small::new() else { return };
    let mut guest = small.start();
    let base = guest.map_ok(MIB, WRITE);
    guest.fill(base + DATA, 7, MIB - DATA);
    assert_eq!(guest.commit(base), 1);
    let (_, refusal) = grow_until_refused(&mut guest, MIB);
    guest.assert_disk_full(refusal);
    assert!(guest.holds(base + DATA, 7, MIB - DATA));
    guest.fill(base + DATA, 8, MIB - DATA);
    // Unmapping frees the growth with all other uncommitted changes.
    assert_eq!(guest.unmap(base), 0);
    assert_eq!(guest.map_ok(2 * MIB, WRITE), base);
    assert!(guest.holds(base + DATA, 7, MIB - DATA));
    guest.fill(base + DATA, 9, 2 * MIB - DATA);
    assert_eq!(guest.commit(base), 1, "{}", guest.message());
    drop(guest);
    let mut next = small.start();
    assert_eq!(next.map_ok(0, SNAPSHOT), base);
    assert!(next.holds(base + DATA, 9, 2 * MIB - DATA));
    drop(next);
    small.fixture.assert_sound();
}

#[test]
fn growth_that_fails_on_a_full_disk_uses_no_addresses() {
    let Some(small) = Small::new() else { return };
    let mut guest = small.start();
    let base = guest.map_ok(MIB, WRITE);
    assert_eq!(guest.commit(base), 1);
    let filler = small.disk.fill_up();
    for _ in 0..ATTEMPTS {
        let refusal = guest.map(12 * MIB, WRITE);
        guest.assert_disk_full(refusal);
    }
    drop(filler);
    assert_eq!(guest.map_ok(12 * MIB, WRITE), base);
    guest.store(base + DATA, 5);
    assert_eq!(guest.commit(base), 1);
    drop(guest);
    small.fixture.assert_sound();
}

#[test]
fn regions_that_fail_on_a_full_disk_use_no_addresses() {
    let Some(small) = Small::new() else { return };
    let mut guest = small.start();
    let base = guest.map_ok(MIB, WRITE);
    assert_eq!(guest.commit(base), 1);
    // The next growth adds a region. It is assigned addresses first: the host's table still has
    // space, but the start of the region has none.
    guest.map_ok(4 * MIB - DATA, WRITE);
    let filler = small.disk.fill_up();
    filler.leave(32 << 10);
    for _ in 0..ATTEMPTS {
        let refusal = guest.map(12 * MIB, WRITE);
        guest.assert_disk_full(refusal);
    }
    drop(filler);
    assert_eq!(guest.map_ok(12 * MIB, WRITE), base);
    guest.store(base + DATA, 5);
    assert_eq!(guest.commit(base), 1);
    drop(guest);
    small.fixture.assert_sound();
}

#[test]
fn uncommitted_growth_uses_no_addresses() {
    let fixture = Fixture::in_memory(SandboxOptions::new());
    let mut maker = fixture.start("app", "");
    let base = maker.map_ok(MIB, WRITE);
    assert_eq!(maker.commit(base), 1);
    drop(maker);
    for attempt in 0..ATTEMPTS {
        let mut guest = fixture.start("app", "");
        assert_eq!(guest.map_ok(5 * MIB, WRITE), base, "{attempt}");
        // The guest ends without a commit, as after a trap.
    }
    let mut guest = fixture.start("app", "");
    assert_eq!(guest.map_ok(200 * MIB, WRITE), base);
    guest.store(base + DATA, 5);
    assert_eq!(guest.commit(base), 1);
    drop(guest);
    fixture.assert_sound();
}

#[test]
fn a_commit_that_fails_on_a_full_disk_loses_nothing_and_succeeds_later() {
    let Some(small) = Small::new() else { return };
    let mut guest = small.start();
    let base = guest.map_ok(8 * MIB, WRITE);
    // After the metadata of an object of this size.
    let at = base + MIB / 4;
    guest.fill(at, 1, 7 * MIB);
    assert_eq!(guest.commit(base), 1);
    let mut committed = 7 * MIB;
    // Each commit is larger than the space left in the log after the previous one. A commit that
    // fits into an emptied log succeeds on a full disk, too.
    for (byte, bytes) in [(2, MIB), (3, 3 * MIB)] {
        let filler = small.disk.fill_up();
        guest.fill(at, byte, bytes);
        for _ in 0..3 {
            let refusal = guest.commit(base);
            guest.assert_disk_full(refusal);
        }
        assert!(guest.holds(at, byte, bytes), "stored data were lost");
        let mut reader = small.start();
        reader.map_ok(0, SNAPSHOT);
        assert!(reader.holds(at, byte - 1, committed), "committed data were lost");
        drop(reader);
        drop(filler);
        assert_eq!(guest.commit(base), 1, "{}", guest.message());
        committed = bytes;
    }
    let filler = small.disk.fill_up();
    guest.fill(at, 4, 3 * MIB);
    assert_eq!(guest.commit(base), 1, "the log was not emptied: {}", guest.message());
    guest.fill(at, 5, 7 * MIB);
    let refusal = guest.commit(base);
    guest.assert_disk_full(refusal);
    assert_eq!(guest.unmap(base), 0);
    drop(filler);
    assert_eq!(guest.map_ok(0, WRITE), base);
    assert!(guest.holds(at, 4, 3 * MIB), "the last commit was lost");
    drop(guest);
    small.fixture.assert_sound();
}

#[test]
fn an_object_that_did_not_fit_on_the_disk_is_created_later() {
    let Some(small) = Small::new() else { return };
    let mut guest = small.start();
    // The table must have the application before the disk is full.
    let base = guest.map_ok(MIB, WRITE);
    let filler = small.disk.fill_up();
    for _ in 0..ATTEMPTS {
        let refusal = guest.call("map_other", (MIB, WRITE)).unwrap();
        guest.assert_disk_full(refusal);
    }
    drop(filler);
    let other: i32 = guest.call("map_other", (MIB, WRITE)).unwrap();
    assert!(other > 0, "{other}: {}", guest.message());
    guest.store(other as u32 + DATA, 6);
    assert_eq!(guest.commit(other as u32), 1);
    guest.store(base + DATA, 5);
    assert_eq!(guest.commit(base), 1);
    drop(guest);
    small.fixture.assert_sound();
}
