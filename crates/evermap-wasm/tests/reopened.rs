//! Objects that guests read again without a new opening. Whatever happened in between, the next
//! guest must see the same as after an opening.
//!
//! The other process is this test program, started again.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{DATA, Fixture, Machine, key_of, module, object};
use evermap_wasm::{
    AccessTable, Application, Code, GuestOptions, Level, Module, Sandbox, SandboxOptions,
};

const STORE: &str = "EVERMAP_REOPENED_STORE";
const NUMBER: &str = "EVERMAP_REOPENED_NUMBER";
const SNAPSHOT: u32 = 1;
const READ: u32 = 2;
const WRITE: u32 = 3;
const OBJECT: &str = "app:heap";

fn refused(code: Code) -> i32 {
    -(code as i32)
}

/// Runs guests of one application one after the other.
struct Host {
    fixture: Fixture,
    module: Module,
    application: Application,
    base: u32,
}

impl Host {
    /// Creates an object that contains `number`.
    fn with(number: u32) -> Host {
        let fixture = Fixture::new();
        let base = commit(&fixture.sandbox, number);
        Host::of(fixture, base)
    }

    /// Creates an object that contains `number` and has been read by a guest.
    fn that_has_read(number: u32) -> Host {
        let host = Host::with(number);
        assert_eq!(host.read(), number);
        assert_eq!(host.fixture.sandbox.readers().open_count(), 1);
        assert_eq!(host.reused(), 0);
        host
    }

    fn of(fixture: Fixture, base: u32) -> Host {
        let module = fixture.sandbox.compile("reopened", module("").as_bytes()).unwrap();
        let application = fixture.application("app");
        Host { fixture, module, application, base }
    }

    fn start(&self) -> Machine {
        let options = GuestOptions::new();
        Machine(self.fixture.sandbox.start(&self.module, &self.application, &options).unwrap())
    }

    /// Returns the number that a new guest reads.
    fn read(&self) -> u32 {
        let mut guest = self.start();
        assert_eq!(guest.map_ok(0, SNAPSHOT), self.base);
        guest.load(self.base + DATA)
    }

    /// Returns the error that a new guest gets from `map`.
    fn refusal(&self) -> i32 {
        self.start().map(0, SNAPSHOT)
    }

    fn reused(&self) -> u64 {
        self.fixture.sandbox.readers().reused_count()
    }

    fn store(&self) -> &Path {
        self.fixture.store()
    }

    fn file(&self) -> std::path::PathBuf {
        self.fixture.file_of(OBJECT)
    }
}

/// Commits `number` in a guest, and returns the object's address.
fn commit(sandbox: &Sandbox, number: u32) -> u32 {
    let (mut guest, base) = store_number(sandbox, number);
    assert_eq!(guest.commit(base), 1);
    base
}

fn store_number(sandbox: &Sandbox, number: u32) -> (Machine, u32) {
    let module = sandbox.compile("writer", module("").as_bytes()).unwrap();
    let application = sandbox.application("app".parse().unwrap(), key_of("app")).unwrap();
    let mut guest = Machine(sandbox.start(&module, &application, &GuestOptions::new()).unwrap());
    let base = guest.map_ok(65536, WRITE);
    guest.store(base + DATA, number);
    (guest, base)
}

/// The other process: commits a number, prints that, and keeps the object open until it reads a
/// line.
#[test]
fn another_process_that_commits() {
    let Some(store) = std::env::var_os(STORE) else { return };
    let number = std::env::var(NUMBER).unwrap().parse().unwrap();
    let sandbox = Sandbox::open(store).unwrap();
    let (mut guest, base) = store_number(&sandbox, number);
    assert_eq!(guest.commit(base), 1);
    println!("\ncommitted");
    std::io::stdin().read_exact(&mut [0]).unwrap();
}

struct Other(Child);

impl Other {
    /// Starts it and waits until it has committed. It keeps the object open.
    fn that_has_committed(store: &Path, number: u32) -> Other {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "another_process_that_commits", "--nocapture"])
            .env(STORE, store)
            .env(NUMBER, number.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "committed"));
        Other(child)
    }

    fn end(mut self) {
        self.0.stdin.take().unwrap().write_all(b".").unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

#[test]
fn an_unchanged_object_is_not_opened_again() {
    let host = Host::that_has_read(7);
    for reused in 1..4 {
        assert_eq!(host.read(), 7);
        assert_eq!(host.reused(), reused);
    }
    // Also in a single guest.
    let mut guest = host.start();
    for level in [SNAPSHOT, READ] {
        let base = guest.map_ok(0, level);
        assert_eq!((guest.load(base + DATA), guest.unmap(base)), (7, 0));
    }
    assert_eq!(host.reused(), 5);
}

#[test]
fn a_snapshot_opened_again_sees_what_another_process_committed_in_between() {
    let host = Host::that_has_read(7);
    let other = Other::that_has_committed(host.store(), 8);
    assert_eq!(host.read(), 8, "the commit is in the log only");
    other.end();
    assert_eq!(host.read(), 8, "the commit is in the file");
    assert_eq!(host.reused(), 0);
    assert_eq!(host.read(), 8);
    assert_eq!(host.reused(), 1);
}

#[test]
fn a_snapshot_opened_again_sees_what_a_killed_process_committed_in_between() {
    let host = Host::that_has_read(7);
    let mut other = Other::that_has_committed(host.store(), 8);
    other.0.kill().unwrap();
    other.0.wait().unwrap();
    assert_eq!(host.read(), 8);
    assert_eq!(commit(&host.fixture.sandbox, 9), host.base);
    assert_eq!(host.read(), 9);
}

#[test]
fn every_commit_of_this_process_is_seen_by_the_next_guest() {
    let host = Host::that_has_read(7);
    for number in 8..40 {
        assert_eq!(commit(&host.fixture.sandbox, number), host.base);
        assert_eq!(host.read(), number);
    }
    let reused = host.reused();
    assert_eq!(host.read(), 39);
    assert_eq!(host.reused(), reused + 1);
}

#[test]
fn a_right_that_was_revoked_in_between_is_gone_at_the_next_map() {
    let host = Host::that_has_read(7);
    // Through another table value, as in another process.
    let access = &AccessTable::of_store(host.store());
    let mut running = host.start();
    access.grant(host.application.id(), &object(OBJECT), Level::None).unwrap();
    assert_eq!(running.map(0, SNAPSHOT), refused(Code::Denied));
    assert_eq!(host.refusal(), refused(Code::Denied));
    assert_eq!(running.map(0, SNAPSHOT), refused(Code::Denied));
    access.revoke(host.application.id(), &object(OBJECT)).unwrap();
    assert_eq!(host.read(), 7);
    running.map_ok(0, SNAPSHOT);
}

#[test]
fn a_reader_kept_for_one_application_is_not_used_for_another() {
    let host = Host::that_has_read(7);
    let name = OBJECT.as_bytes();
    let map = |application: &Application| -> i32 {
        let options = GuestOptions::new();
        let guest = host.fixture.sandbox.start(&host.module, application, &options);
        let mut guest = Machine(guest.unwrap());
        guest.put(0x5000_1000, name);
        guest.call("map_at", (0x5000_1000u32, name.len() as u32, 0u32, SNAPSHOT)).unwrap()
    };
    let other = host.fixture.application("other");
    assert_eq!(map(&other), refused(Code::Denied), "no right");
    let access = host.fixture.sandbox.access();
    access.grant(other.id(), &object(OBJECT), Level::Snapshot).unwrap();
    assert_eq!(map(&other), refused(Code::Denied), "no key");
    let wrong = other.clone().with_key_of("app".parse().unwrap(), key_of("wrong"));
    assert_eq!(map(&wrong), refused(Code::Denied), "a wrong key");
    assert_eq!(host.reused(), 0);
    let right = other.with_key_of("app".parse().unwrap(), key_of("app"));
    assert_eq!(map(&right), host.base as i32);
    assert_eq!(host.reused(), 1);
    access.revoke(right.id(), &object(OBJECT)).unwrap();
    assert_eq!(map(&right), refused(Code::Denied));
}

#[test]
fn a_removed_object_is_not_found_and_a_new_one_of_the_name_is() {
    let mut host = Host::that_has_read(7);
    host.fixture.sandbox.store().remove(OBJECT).unwrap();
    assert_eq!(host.refusal(), refused(Code::NotFound));
    assert_eq!(host.fixture.sandbox.readers().open_count(), 0, "the removed file is closed");
    host.base = commit(&host.fixture.sandbox, 8);
    assert_eq!(host.read(), 8);
    // Removed and created again without a read in between.
    host.fixture.sandbox.store().remove(OBJECT).unwrap();
    host.base = commit(&host.fixture.sandbox, 9);
    assert_eq!(host.read(), 9);
}

#[test]
fn an_object_renamed_in_between_is_found_under_its_new_name() {
    let host = Host::that_has_read(7);
    let store = host.fixture.sandbox.store();
    store.rename(OBJECT, "app:other").unwrap();
    assert_eq!(host.refusal(), refused(Code::NotFound));
    let mut guest = host.start();
    assert_eq!(guest.call::<_, i32>("map_other", (0u32, SNAPSHOT)).unwrap(), host.base as i32);
    assert_eq!(guest.load(host.base + DATA), 7);
}

#[test]
fn other_objects_do_not_cause_a_new_opening() {
    let host = Host::that_has_read(7);
    let store = host.fixture.sandbox.store();
    for reused in 1..4 {
        store.create::<u64, _>("number", 1).unwrap();
        store.remove("number").unwrap();
        assert_eq!(host.read(), 7);
        assert_eq!(host.reused(), reused);
    }
}

#[test]
fn a_file_truncated_in_between_is_damaged() {
    let host = Host::that_has_read(7);
    let file = fs::OpenOptions::new().write(true).open(host.file()).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length - 4096).unwrap();
    assert_eq!(host.refusal(), refused(Code::Damaged));
    assert_eq!(host.reused(), 0);
}

#[test]
fn a_superblock_that_was_damaged_in_between_is_damaged() {
    let host = Host::that_has_read(7);
    let file = fs::OpenOptions::new().read(true).write(true).open(host.file()).unwrap();
    for at in [0, 40, 88, 104, 252, 520, 3000] {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        assert!(host.refusal() < 0, "byte {at}");
        file.write_all_at(&byte, at).unwrap();
        assert_eq!(host.read(), 7);
    }
}

#[test]
fn another_file_in_its_place_is_opened() {
    let host = Host::with(6);
    let file = host.file();
    let aside = host.fixture.directory.path().join("aside");
    fs::copy(&file, &aside).unwrap();
    commit(&host.fixture.sandbox, 7);
    assert_eq!((host.read(), host.read(), host.reused()), (7, 7, 1));
    // As when a user restores a copy.
    fs::rename(&aside, &file).unwrap();
    assert_eq!((host.read(), host.reused()), (6, 1));
}

#[test]
fn stores_into_a_snapshot_are_not_seen_by_the_next_guest() {
    let host = Host::that_has_read(7);
    for _ in 0..3 {
        let mut guest = host.start();
        let base = guest.map_ok(0, SNAPSHOT);
        assert_eq!(guest.load(base + DATA), 7);
        guest.store(base + DATA, 99);
        guest.store(base + 88, 99);
        assert_eq!(guest.load(base + DATA), 99);
    }
    assert_eq!(host.reused(), 3);
}

#[test]
fn a_store_to_a_reused_read_only_mapping_faults() {
    let fixture = Fixture::with(SandboxOptions::new().read_only_pages(true));
    let base = commit(&fixture.sandbox, 7);
    let host = Host::of(fixture, base);
    for _ in 0..2 {
        let mut guest = host.start();
        let base = guest.map_ok(0, READ);
        assert_eq!(guest.load(base + DATA), 7);
        guest.call::<_, ()>("store", (base + DATA, 8u32)).unwrap_err();
    }
    assert_eq!((host.reused(), host.read()), (1, 7));
}

#[test]
fn a_reader_blocks_a_writers_checkpoint_only_while_it_is_open() {
    let host = Host::that_has_read(7);
    let log = host.file().with_extension("log");
    commit(&host.fixture.sandbox, 8);
    assert!(!log.exists(), "without readers the commit is in the file");
    assert_eq!((host.read(), host.read(), host.reused()), (8, 8, 1));
    commit(&host.fixture.sandbox, 7);
    assert!(!log.exists(), "without readers the commit is in the file");
    commit(&host.fixture.sandbox, 8);
    assert_eq!((host.read(), host.reused()), (8, 1));
    let (mut one, mut other) = (host.start(), host.start());
    for guest in [&mut one, &mut other] {
        guest.map_ok(0, SNAPSHOT);
    }
    assert_eq!(host.reused(), 3);
    drop(one);
    commit(&host.fixture.sandbox, 9);
    assert!(log.exists(), "the commit stays in the log");
    assert_eq!(
        other.load(host.base + DATA),
        8,
        "one of two guests with a shared lock is still open"
    );
    assert_eq!((host.read(), host.reused()), (9, 3));
    drop(other);
    commit(&host.fixture.sandbox, 10);
    assert!(!log.exists());
    assert_eq!(host.read(), 10);
}

#[test]
fn open_objects_are_limited_and_closed_with_the_sandbox() {
    const OBJECTS: u32 = 70;
    let fixture = Fixture::in_memory(SandboxOptions::new());
    let objects = fs::canonicalize(fixture.store()).unwrap().join("objects");
    let application = fixture.application("app");
    fixture.sandbox.access().set_quota(application.id(), 1 << 30).unwrap();
    let map_each = |level: u32| {
        let mut guest = fixture.start("app", "");
        for number in 0..OBJECTS as u8 {
            guest.put(0x5000_1000, &[b'a' + number / 10, b'0' + number % 10]);
            let base: i32 = guest.call("map_at", (0x5000_1000u32, 2u32, 0u32, level)).unwrap();
            assert!(base > 0, "{}", guest.message());
            assert_eq!(guest.unmap(base as u32), 0);
        }
    };
    map_each(WRITE);
    for _ in 0..2 {
        map_each(SNAPSHOT);
        assert_eq!(fixture.sandbox.readers().open_count(), 64);
        assert_eq!(open_below(&objects), 64);
    }
    let Fixture { directory: _directory, sandbox } = fixture;
    drop(sandbox);
    assert_eq!(open_below(&objects), 0);
}

/// Counts this process's open files in a folder.
fn open_below(folder: &Path) -> usize {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap();
    let paths = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    paths.filter(|path| path.starts_with(folder)).count()
}

/// Offset of the second number of an object, far from the first.
const FAR: u32 = 2 << 20;
const COMMITS: u32 = 150;
const READERS: usize = 3;

#[test]
fn concurrent_readers_see_whole_commits_in_increasing_order() {
    let host = Host::with(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..READERS {
            threads.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::Acquire) {
                    let mut guest = host.start();
                    let near = guest.map_ok(0, SNAPSHOT) + DATA;
                    let number = guest.load(near);
                    assert!(number >= last, "{number} after {last}");
                    // Before the first commit the object does not reach so far.
                    assert!(number == 0 || guest.load(near + FAR) == number);
                    std::thread::yield_now();
                    assert_eq!(guest.load(near), number);
                    last = number;
                }
            });
        }
        // Each commit by a new guest. At its end the file is updated if there is no reader.
        for number in 1..=COMMITS {
            let mut guest = host.start();
            let near = guest.map_ok(FAR + 65536, WRITE) + DATA;
            guest.store(near, number);
            guest.store(near + FAR, number);
            assert_eq!(guest.commit(near - DATA), 1);
        }
        done.store(true, Ordering::Release);
    });
    // The next writer applies a log that readers left.
    commit(&host.fixture.sandbox, COMMITS + 1);
    assert_eq!((host.read(), host.read()), (COMMITS + 1, COMMITS + 1));
    assert!(host.reused() > 0);
    host.fixture.assert_sound();
}
