//! Damaged, foreign and missing files, full disks and read-only disks. Each causes a typed error
//! that names the file and the remedy, and no data is lost.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{TestStore, argument, child, copy_store, crc32c_of, object_file};
use evermap::{Error, PMap, PString, PVec, Store, from_iter};

/// Creates a closed store with one object.
fn closed_store() -> (PathBuf, tempfile::TempDir) {
    let test = TestStore::new();
    test.create::<PVec<u64>, _>("v", from_iter(0..10_000)).unwrap();
    test.close()
}

/// Opens the object for reading and for writing. Both must fail with an error that `expected`
/// accepts.
fn both_fail(path: &Path, what: &str, expected: impl Fn(&Error) -> bool) {
    let store = Store::open(path).unwrap();
    let read = store.read::<PVec<u64>>("v").map(drop).unwrap_err();
    let write = store.write::<PVec<u64>>("v").map(drop).unwrap_err();
    for error in [read, write] {
        assert!(expected(&error), "{what}: {error}");
        let text = error.to_string();
        let named = text.contains("objects/") || text.contains("catalog") || text.contains("`v`");
        assert!(named, "{what}: {text} does not name the file");
    }
}

fn rewrite(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(file).unwrap();
    change(&mut bytes);
    std::fs::write(file, bytes).unwrap();
}

/// Position of the checksum in page 0.
const CHECKSUM: std::ops::Range<usize> = 252..256;

#[test]
fn damage_to_an_object_file_is_an_error_that_names_the_object() {
    type Change = fn(&mut Vec<u8>);
    type Check = fn(&Error) -> bool;
    let damaged: Check = |e| matches!(e, Error::Damaged { .. });
    let foreign: Check = |e| matches!(e, Error::Foreign { .. });
    let cases: [(&str, Change, Check); 15] = [
        ("empty", |b| b.clear(), damaged),
        ("cut to one byte", |b| b.truncate(1), damaged),
        ("cut inside the superblock", |b| b.truncate(2000), damaged),
        ("cut after the superblock", |b| b.truncate(4096), damaged),
        ("cut to half", |b| b.truncate(b.len() / 2), damaged),
        ("one byte less", |b| b.truncate(b.len() - 1), damaged),
        ("a PNG", |b| b[..8].copy_from_slice(b"\x89PNG\r\n\x1a\n"), foreign),
        ("zeros", |b| b.fill(0), foreign),
        ("a short text", |b| *b = b"hello".to_vec(), foreign),
        (
            "a newer format, which has its own checksum",
            |b| {
                b[8..12].copy_from_slice(&2u32.to_le_bytes());
                b[CHECKSUM].iter_mut().for_each(|byte| *byte ^= 0x5a);
            },
            |e| matches!(e, Error::NewerFormat { .. }),
        ),
        ("a flipped bit in the version", |b| b[8] ^= 2, damaged),
        ("a flipped bit in the lengths", |b| b[97] ^= 4, damaged),
        ("a flipped bit in the region table", |b| b[520] ^= 1, damaged),
        ("a flipped bit in the root's address", |b| b[107] ^= 1, damaged),
        (
            "a superblock of noise behind the magic",
            |b| {
                for (i, byte) in b[12..4096].iter_mut().enumerate() {
                    *byte = ((i * 2_654_435_761) >> 7) as u8;
                }
            },
            |e| !matches!(e, Error::Io { .. }),
        ),
    ];
    let (path, _directory) = closed_store();
    let file = object_file(&path);
    let whole = std::fs::read(&file).unwrap();
    for (what, change, check) in cases {
        rewrite(&file, change);
        both_fail(&path, what, check);
        std::fs::write(&file, &whole).unwrap();
    }
    assert_eq!(Store::open(&path).unwrap().read::<PVec<u64>>("v").unwrap().len(), 10_000);
}

#[test]
fn a_wrong_superblock_with_a_correct_checksum_is_an_error() {
    let (path, _directory) = closed_store();
    let file = object_file(&path);
    let whole = std::fs::read(&file).unwrap();
    // Offsets from the format description: every word of the fields that lead to other data.
    for offset in (96..160).step_by(8).chain((512..560).step_by(8)).chain([140]) {
        for value in [0u64, 1, 4095, 1 << 45, u64::MAX, u64::MAX - 4095] {
            rewrite(&file, |b| {
                if offset == 140 {
                    b[140..144].copy_from_slice(&(value as u32).to_le_bytes());
                } else {
                    b[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
                }
                b[248..256].fill(0);
                let checksum = crc32c_of(&b[..3072]);
                b[252..256].copy_from_slice(&checksum.to_le_bytes());
            });
            let store = Store::open(&path).unwrap();
            // Some values are harmless: in an object, the arena is only informative.
            if let Ok(v) = store.read::<PVec<u64>>("v") {
                assert_eq!(v.len(), 10_000, "offset {offset}, value {value:#x}");
            }
            let _ = store.write::<PVec<u64>>("v");
            std::fs::write(&file, &whole).unwrap();
        }
    }
}

#[test]
fn a_missing_object_file_is_distinguished_from_a_missing_object() {
    let (path, _directory) = closed_store();
    let file = object_file(&path);
    std::fs::rename(&file, path.join("elsewhere")).unwrap();
    both_fail(&path, "missing", |e| matches!(e, Error::Damaged { .. }));
    let store = Store::open(&path).unwrap();
    assert!(matches!(store.read::<u64>("w"), Err(Error::NotFound { .. })));
    // It can still be removed.
    store.remove("v").unwrap();
    assert!(store.list().unwrap().is_empty());
}

#[test]
fn files_swapped_between_objects_or_stores_are_detected() {
    let (path, _directory) = closed_store();
    let (other, _other_directory) = closed_store();
    let file = object_file(&path);
    std::fs::copy(object_file(&other), &file).unwrap();
    both_fail(&path, "another store's object", |e| matches!(e, Error::Damaged { .. }));
    std::fs::copy(path.join("catalog"), &file).unwrap();
    both_fail(&path, "the catalog", |e| {
        matches!(e, Error::Damaged { .. } | Error::LogMissing { .. })
    });
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
    both_fail(&path, "a symbolic link", |e| matches!(e, Error::Foreign { .. }));
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    both_fail(&path, "a directory", |e| matches!(e, Error::Foreign { .. }));
}

#[test]
fn damage_to_the_catalog_is_an_error_that_names_it() {
    let (path, _directory) = closed_store();
    let catalog = path.join("catalog");
    let whole = std::fs::read(&catalog).unwrap();
    for (what, length) in [("empty", 0), ("half", whole.len() / 2), ("cut", whole.len() - 1)] {
        rewrite(&catalog, |b| b.truncate(length));
        let error = Store::open(&path).map(drop).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{what}: {error}");
        std::fs::write(&catalog, &whole).unwrap();
    }
    rewrite(&catalog, |b| b[..4].copy_from_slice(b"\x7fELF"));
    assert!(matches!(Store::open(&path), Err(Error::Foreign { .. })));
    rewrite(&catalog, |b| {
        *b = whole.clone();
        b[8] = 9;
        b[CHECKSUM].iter_mut().for_each(|byte| *byte ^= 0x5a);
    });
    assert!(matches!(Store::open(&path), Err(Error::NewerFormat { .. })));
    // With the checksum of version 1, every other version is damage and not a newer build's file.
    for bit in 0..32 {
        rewrite(&catalog, |b| {
            *b = whole.clone();
            b[8 + bit / 8] ^= 1 << (bit % 8);
        });
        let error = Store::open(&path).map(drop).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "bit {bit}: {error}");
    }
    std::fs::write(&catalog, &whole).unwrap();
    let log = path.join("catalog.log");
    let kept = std::fs::read(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    assert!(matches!(Store::open(&path), Err(Error::LogMissing { .. })));
    for noise in [vec![], vec![0; 100], vec![0xff; 70_000]] {
        std::fs::write(&log, noise).unwrap();
        assert!(matches!(Store::open(&path), Err(Error::Damaged { .. })));
    }
    std::fs::write(&log, kept).unwrap();
    Store::open(&path).unwrap().read::<PVec<u64>>("v").unwrap();
}

/// Position of the base and length of the store's arena in the catalog's page 0.
const ARENA: std::ops::Range<usize> = 144..160;

/// The arena is reserved before the page's checksum can be verified, because the log may have a
/// newer page.
#[test]
fn a_damaged_arena_is_reported_as_damage_even_if_its_addresses_are_taken() {
    let (path, _directory) = closed_store();
    let catalog = path.join("catalog");
    let whole = std::fs::read(&catalog).unwrap();
    let on_the_stack = (&raw const path).addr() as u64 & !0xfff;
    let mut pages: Vec<Vec<u8>> = Vec::new();
    for bit in 0..8 * ARENA.len() {
        let mut page = whole.clone();
        page[ARENA.start + bit / 8] ^= 1 << (bit % 8);
        pages.push(page);
    }
    let mut page = whole.clone();
    page[ARENA].copy_from_slice(&[on_the_stack.to_le_bytes(), 4096u64.to_le_bytes()].concat());
    pages.push(page);
    for page in pages {
        std::fs::write(&catalog, &page).unwrap();
        let error = Store::open(&path).map(drop).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{:02x?}: {error}", &page[ARENA]);
    }
    std::fs::write(&catalog, &whole).unwrap();
    Store::open(&path).unwrap().read::<PVec<u64>>("v").unwrap();
}

#[test]
fn opening_a_copy_of_an_open_store_is_refused() {
    let test = TestStore::new();
    test.create::<u64, _>("n", 7).unwrap();
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy");
    copy_store(&test.path(), &copy);
    match Store::open(&copy).unwrap_err() {
        Error::AddressTaken { by, remedy, .. } => {
            assert!(by.contains(test.path().to_str().unwrap()), "{by}");
            assert!(remedy.contains("close"), "{remedy}");
        }
        other => panic!("{other}"),
    }
    drop(test);
    assert_eq!(*Store::open(&copy).unwrap().read::<u64>("n").unwrap(), 7);
}

/// A new file system for a test, unmounted when dropped. Returns `None` and prints a notice without
/// the permission to mount.
/// right to mount.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: &Path, arguments: &[&str]) -> Option<Mounted> {
        std::fs::create_dir_all(at).unwrap();
        let mount = Command::new("mount").args(arguments).arg(at).output();
        match mount {
            Ok(output) if output.status.success() => Some(Mounted(at.to_path_buf())),
            other => {
                let why = other.map(|o| String::from_utf8_lossy(&o.stderr).trim().to_string());
                eprintln!("SKIPPED: this user may not mount ({why:?})");
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_an_error_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().join("small");
    let Some(_mounted) = Mounted::new(&at, &["-t", "tmpfs", "-o", "size=4m", "tmpfs"]) else {
        return;
    };
    let path = at.join("store");
    let store = Store::create_new(&path).unwrap();
    store.create::<PVec<PVec<u64>>, _>("v", [vec![1, 2, 3]]).unwrap();
    let mut session = store.write::<PVec<PVec<u64>>>("v").unwrap();
    let mut commits = 1;
    let full = loop {
        let pushed = session.root_mut().push(from_iter(0..5000)).map(drop);
        match pushed.map_err(Error::from).and_then(|()| session.commit()) {
            Ok(_) => commits += 1,
            Err(error) => break error,
        }
        assert!(commits < 1000, "the disk does not get full");
    };
    assert!(matches!(full, Error::DiskFull { .. }), "{full}");
    assert!(full.to_string().contains("free some space"), "{full}");
    session.rollback().unwrap();
    assert_eq!(session.len(), commits);
    session.close().unwrap();
    // A new object that does not fit leaves nothing behind.
    let big = store.create::<PVec<u64>, _>("big", from_iter(0..1_000_000));
    assert!(matches!(big, Err(Error::DiskFull { .. })), "{big:?}");
    assert_eq!(store.list().unwrap(), ["v"]);
    assert_eq!(std::fs::read_dir(path.join("building")).unwrap().count(), 0);
    // Work continues once there is some space, in this process and in the next.
    drop(store);
    let store = Store::open(&path).unwrap();
    let v = store.read::<PVec<PVec<u64>>>("v").unwrap();
    assert_eq!(v.len(), commits);
    assert!(v[1..].iter().all(|inner| inner.len() == 5000 && inner[4999] == 4999));
    drop(v);
    store.remove("v").unwrap();
    store.create::<PVec<u64>, _>("big", from_iter(0..100_000)).unwrap();
}

#[test]
fn a_disk_that_is_full_from_the_start_leaves_no_partial_store() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().join("tiny");
    let Some(_mounted) = Mounted::new(&at, &["-t", "tmpfs", "-o", "size=32k", "tmpfs"]) else {
        return;
    };
    let path = at.join("store");
    let error = Store::create_new(&path).map(drop).unwrap_err();
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    assert!(matches!(Store::open(&path), Err(Error::NoStore { .. })));
}

#[test]
fn a_read_only_file_system_can_be_read_and_writing_names_the_reason() {
    let test = TestStore::new();
    test.create::<PMap<PString, u64>, _>("m", [("one", 1)]).unwrap();
    // An object as a killed writer leaves it: the last commit is only in the log.
    let mut session = test.write::<PMap<PString, u64>>("m").unwrap();
    session.root_mut().insert("two", 2).unwrap();
    session.commit().unwrap();
    let base = tempfile::tempdir().unwrap();
    let copy = base.path().join("copy");
    copy_store(&test.path(), &copy);
    drop(session);
    drop(test);
    let at = base.path().join("read-only");
    let bind = ["--bind", copy.to_str().unwrap()];
    let Some(mounted) = Mounted::new(&at, &bind) else { return };
    let remount = Command::new("mount").args(["-o", "remount,ro,bind"]).arg(&mounted.0).status();
    if !remount.is_ok_and(|s| s.success()) {
        eprintln!("SKIPPED: a bind mount cannot be made read-only here");
        return;
    }
    let store = Store::open(&at).unwrap();
    let map = store.read::<PMap<PString, u64>>("m").unwrap();
    assert_eq!((map.get("one"), map.get("two")), (Some(&1), Some(&2)));
    drop(map);
    let refused = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::NotPermitted { .. }), "{error}");
        assert!(error.to_string().contains("read-only"), "{error}");
    };
    refused(store.write::<PMap<PString, u64>>("m").map(drop));
    refused(store.create::<u64, _>("n", 1));
    refused(store.remove("m"));
    refused(store.rename("m", "n"));
    refused(Store::create_new(at.join("new")).map(drop));
}

#[test]
#[ignore = "a child"]
fn child_holds_a_session() {
    let Some(path) = argument(0) else { return };
    let store = Store::open(&path).unwrap();
    let _session = store.write::<PVec<u64>>("v").unwrap();
    println!("holding");
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn two_processes_cannot_write_one_object_and_a_kill_releases_it() {
    let (path, _directory) = closed_store();
    let store = Store::open(&path).unwrap();
    for die in [false, true] {
        let mut holder = child("child_holds_a_session", &[path.to_str().unwrap()]);
        let mut output = BufReader::new(holder.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("holding") {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0);
        }
        for error in
            [store.write::<PVec<u64>>("v").map(drop).unwrap_err(), store.remove("v").unwrap_err()]
        {
            assert!(matches!(error, Error::Busy { .. }), "{error}");
            assert!(error.to_string().contains("`v`"), "{error}");
        }
        assert!(store.read::<PVec<u64>>("v").is_ok(), "a writer does not prevent reading");
        if die {
            holder.kill().unwrap();
        } else {
            holder.stdin.take().unwrap().write_all(b"\n").unwrap();
        }
        holder.wait().unwrap();
        store.write::<PVec<u64>>("v").unwrap().close().unwrap();
    }
}
