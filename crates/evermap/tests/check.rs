//! A check finds nothing in an undamaged store, and reports every kind of damage by name.
#![allow(clippy::unwrap_used)]

#[path = "check/checksums.rs"]
mod checksums;
mod common;
#[path = "check/log.rs"]
mod log;
#[path = "check/noise.rs"]
mod noise;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{
    LOG_REQUIRED, TestStore, argument, child, copy_store, crc32c_of, lose_progress, object_file,
};
use evermap::tools::{CheckOptions, Finding, Report, Severity, check};
use evermap::{Durability, PMap, PString, PVec, Store, WriteOptions, from_iter};

type Words = PMap<PString, PVec<u64>>;

/// Small blocks, large ones, and one that is freed again.
fn fill(store: &Store, name: &str) {
    store.create::<Words, _>(name, PMap::new()).unwrap();
    let mut session = store.write::<Words>(name).unwrap();
    session.root_mut().insert("large", from_iter(0..50_000)).unwrap();
    for n in 0..300u64 {
        let word = format!("word {n}");
        session.root_mut().insert(word.as_str(), from_iter(0..n * 10)).unwrap();
    }
    for n in (0..300).step_by(7) {
        session.root_mut().remove(format!("word {n}").as_str());
    }
    session.commit().unwrap();
    session.close().unwrap();
}

/// Creates a closed store with one object of many blocks.
fn closed_store() -> (PathBuf, tempfile::TempDir) {
    let test = TestStore::in_memory();
    fill(&test, "v");
    test.close()
}

fn look(path: &Path) -> Report {
    check(path, &CheckOptions::new()).unwrap()
}

/// Asserts that there is nothing worse than the leftovers of a killed process.
fn assert_undamaged(path: &Path) -> Report {
    let report = look(path);
    assert!(report.is_clean(), "{:#?}\n{:?}", report.findings, report.unchecked);
    report
}

/// Asserts that there are no findings.
fn assert_clean(path: &Path) -> Report {
    let report = assert_undamaged(path);
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    report
}

fn rewrite(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(file).unwrap();
    change(&mut bytes);
    std::fs::write(file, bytes).unwrap();
}

fn worst(report: &Report) -> &Finding {
    report.findings.iter().max_by_key(|finding| finding.severity).unwrap()
}

#[test]
fn an_undamaged_store_is_clean_and_its_counts_match_the_writers() {
    let test = TestStore::in_memory();
    assert_clean(&test.path());
    for name in ["a", "b", "c"] {
        fill(&test, name);
    }
    test.rename("b", "d").unwrap();
    test.remove("a").unwrap();
    // More than the first blocks of the catalog hold.
    for n in 0..200 {
        test.create::<u64, _>(&format!("small {n}"), n).unwrap();
    }
    for n in 0..150 {
        test.remove(&format!("small {n}")).unwrap();
    }
    let report = assert_clean(&test.path());
    assert_eq!(report.objects.len(), 1 + test.list().unwrap().len());
    let catalog = &report.objects[0];
    assert_eq!(catalog.blocks_reached, Some(catalog.blocks));
    for object in &report.objects[1..] {
        let info = test.info(object.object.as_deref().unwrap()).unwrap();
        assert_eq!(object.blocks, info.heap.blocks);
        assert_eq!(object.allocated_bytes, info.heap.allocated_bytes);
        assert_eq!(object.sequence, info.sequence);
    }
}

#[test]
fn a_store_whose_writer_was_killed_is_clean() {
    let test = TestStore::in_memory();
    fill(&test, "v");
    let mut session = test.write::<Words>("v").unwrap();
    let copies = tempfile::tempdir().unwrap();
    for n in 0..5u64 {
        session.root_mut().insert(format!("new {n}").as_str(), from_iter(0..n)).unwrap();
        session.commit().unwrap();
        // Uncommitted data must not be visible.
        session.root_mut().insert("not yet", from_iter(0..n + 9)).unwrap();
        let copy = copies.path().join(n.to_string());
        copy_store(&test.path(), &copy);
        let report = assert_undamaged(&copy);
        // Exactly the growth after the writer's last commit.
        assert!(report.findings.iter().all(|f| f.what == "the end of the file"));
        assert_eq!(report.objects[1].sequence, session.sequence());
        session.rollback().unwrap();
    }
}

#[test]
fn stores_of_earlier_builds_are_clean() {
    let directory = tempfile::tempdir().unwrap();
    for (version, checksums) in [("v1", false), ("v1-checksums", true)] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/format").join(version);
        let path = directory.path().join(version);
        copy_store(&folder, &path);
        let report = assert_clean(&path);
        assert_eq!(report.objects.len(), 3);
        assert!(report.objects.iter().all(|object| object.pages_verified.is_some() == checksums));
        let killed = report.objects.iter().find(|o| o.object.as_deref() == Some("killed"));
        assert!(killed.unwrap().log_commits > 0);
    }
}

#[test]
fn a_store_is_checked_without_write_permission_and_while_it_is_open() {
    let test = TestStore::in_memory();
    fill(&test, "v");
    let snapshot = test.read::<Words>("v").unwrap();
    let before: Vec<_> = files_of(&test.path());
    assert_clean(&test.path());
    assert_eq!(files_of(&test.path()), before, "a check changed a file");
    drop(snapshot);
}

/// Returns every file with its bytes.
fn files_of(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_of(&path)),
            false => files.push((path.clone(), std::fs::read(&path).unwrap())),
        }
    }
    files.sort();
    files
}

#[test]
fn a_directory_that_is_not_a_store_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    for path in [directory.path().to_path_buf(), directory.path().join("none")] {
        let error = check(&path, &CheckOptions::new()).unwrap_err();
        assert!(matches!(error, evermap::Error::NoStore { .. }), "{error}");
    }
}

/// Returns the file offset of the metadata of an object's first region.
struct Places {
    map: usize,
    records: usize,
    data: usize,
}

fn places(bytes: &[u8]) -> Places {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (capacity, meta) = (word(520), word(544));
    let chunks = ((capacity - meta) / 65536) as usize;
    Places { map: 4096, records: 4096 + chunks.next_multiple_of(64), data: meta as usize }
}

/// Returns the first chunk that `wanted` accepts, with its state.
fn chunk_where(bytes: &[u8], wanted: impl Fn(usize, u8) -> bool) -> usize {
    let places = places(bytes);
    let mut chunks = 0..places.records - places.map;
    chunks.find(|&chunk| wanted(chunk, bytes[places.map + chunk])).unwrap()
}

#[test]
fn damage_to_the_allocators_metadata_is_reported_by_name() {
    let (path, _directory) = closed_store();
    let file = object_file(&path);
    let whole = std::fs::read(&file).unwrap();
    let record = |bytes: &[u8], chunk: usize| places(bytes).records + chunk * 576;
    let slab = |b: &[u8]| {
        chunk_where(b, |chunk, state| (1..=40).contains(&state) && b[record(b, chunk) + 4] > 0)
    };
    let large = |bytes: &[u8]| chunk_where(bytes, |_, state| state == 0x7e);
    type Change<'a> = Box<dyn Fn(&mut Vec<u8>) + 'a>;
    let cases: Vec<(&str, Change<'_>)> = vec![
        (
            "the count of used blocks",
            Box::new(|b| {
                let at = record(b, slab(b));
                b[at + 4] ^= 1;
            }),
        ),
        (
            "the blocks of chunk",
            Box::new(|b| {
                let at = record(b, slab(b));
                b[at] ^= 3;
            }),
        ),
        (
            "the bitmap of chunk",
            Box::new(|b| {
                let at = record(b, slab(b));
                b[at + 8..at + 12].fill(0);
            }),
        ),
        (
            "the count of used blocks",
            Box::new(|b| {
                let at = record(b, slab(b));
                b[at + 64] ^= 1;
            }),
        ),
        (
            "not offered for allocation",
            Box::new(|b| {
                let at = places(b).map + slab(b);
                b[at] |= 0x80;
            }),
        ),
        (
            "state 0x60",
            Box::new(|b| {
                let at = places(b).map + slab(b);
                b[at] = 0x60;
            }),
        ),
        (
            "a chunk of a large block without its first",
            Box::new(|b| {
                let at = places(b).map + slab(b);
                b[at] = 0x7f;
            }),
        ),
        (
            "the rest of a large block",
            Box::new(|b| {
                let at = places(b).map + large(b) + 1;
                b[at] = 0;
            }),
        ),
        (
            "the large block in chunk",
            Box::new(|b| {
                let at = record(b, large(b));
                b[at + 16..at + 24].copy_from_slice(&(1u64 << 40).to_le_bytes());
            }),
        ),
        (
            "the large block in chunk",
            Box::new(|b| {
                let at = record(b, large(b));
                b[at + 24..at + 32].copy_from_slice(&u64::MAX.to_le_bytes());
            }),
        ),
    ];
    for (what, change) in cases {
        rewrite(&file, |bytes| change(bytes));
        let report = look(&path);
        assert!(report.is_damaged(), "{what} was not found");
        let named = report.findings.iter().any(|f| {
            let text = format!("{} {} {}", f.what, f.found, f.expected);
            text.contains(what) && f.object.as_deref() == Some("v") && file.ends_with(&f.file)
        });
        assert!(named, "{what}: {:#?}", report.findings);
        std::fs::write(&file, &whole).unwrap();
    }
    // Noise at single positions and everywhere: it is found, but not reported a million times.
    for range in [4096..8192, 4096..places(&whole).data] {
        rewrite(&file, |bytes| {
            for (i, byte) in bytes[range.clone()].iter_mut().enumerate() {
                *byte = ((i * 2_654_435_761) >> 11) as u8;
            }
        });
        let report = look(&path);
        assert!(report.is_damaged());
        assert!(report.findings.len() <= 101);
    }
    std::fs::write(&file, &whole).unwrap();
    assert_clean(&path);
}

#[test]
fn damage_to_whole_files_is_reported_by_name() {
    let (path, _directory) = closed_store();
    let file = object_file(&path);
    let whole = std::fs::read(&file).unwrap();
    type Change = fn(&mut Vec<u8>);
    let cases: [(&str, Change); 10] = [
        ("an empty file", |b| b.clear()),
        ("truncated", |b| b.truncate(b.len() / 2)),
        ("truncated", |b| b.truncate(b.len() - 1)),
        ("it begins with", |b| b[..8].fill(7)),
        ("checksum", |b| b[97] ^= 4),
        ("checksum", |b| b[2048] ^= 4),
        ("the checksum of the root", |b| b[3072] ^= 4),
        ("the code that says whether the log is needed", |b| b[248] = 1),
        ("no ", |b| b[248..252].copy_from_slice(&LOG_REQUIRED)),
        ("the end of the file", |b| b.extend([0; 4096])),
    ];
    let _ = std::fs::remove_file(file.with_extension("log"));
    for (what, change) in cases {
        rewrite(&file, change);
        let report = look(&path);
        let finding = worst(&report);
        let text = format!("{} {} {}", finding.what, finding.found, finding.expected);
        assert!(text.contains(what), "{what}: {finding:#?}");
        assert_eq!(finding.severity == Severity::Leftover, what.starts_with("the end"));
        std::fs::write(&file, &whole).unwrap();
    }
    // Two files were swapped.
    let store = Store::open(&path).unwrap();
    fill(&store, "w");
    drop(store);
    let other = std::fs::read_dir(path.join("objects")).unwrap();
    let other =
        other.map(|e| e.unwrap().path()).find(|p| *p != file && p.extension().is_none()).unwrap();
    std::fs::rename(&file, path.join("x")).unwrap();
    std::fs::rename(&other, &file).unwrap();
    std::fs::rename(path.join("x"), &other).unwrap();
    let report = look(&path);
    assert_eq!(report.findings.len(), 2);
    assert!(report.findings.iter().all(|f| f.what == "the object id"), "{report:#?}");
}

#[test]
fn any_damage_to_the_catalog_is_found() {
    let test = TestStore::in_memory();
    for name in ["one", "two", "three"] {
        test.create::<u64, _>(name, 1).unwrap();
    }
    test.remove("two").unwrap();
    let (path, _directory) = test.close();
    let catalog = path.join("catalog");
    let log = path.join("catalog.log");
    let (whole, whole_log) = (std::fs::read(&catalog).unwrap(), std::fs::read(&log).unwrap());
    let restore = || {
        std::fs::write(&catalog, &whole).unwrap();
        std::fs::write(&log, &whole_log).unwrap();
    };
    let found = |what: &str| {
        let report = look(&path);
        let damage = report.findings.iter().find(|f| f.severity == Severity::Damage);
        let damage = damage.unwrap_or_else(|| panic!("{what} was not found: {report:#?}"));
        assert!(damage.file.starts_with("catalog"), "{what}: {damage:#?}");
        assert!(damage.repairable, "{what}");
        restore();
    };
    std::fs::remove_file(&catalog).unwrap();
    found("no catalog");
    std::fs::remove_file(&log).unwrap();
    found("no log");
    for cut in [0, 1, 4095, whole.len() / 2, whole.len() - 1] {
        rewrite(&catalog, |bytes| bytes.truncate(cut));
        found("a cut");
    }
    // Noise anywhere in it is found, because its pages have checksums.
    for at in (256..3072 + 88).chain(4096..whole.len()).step_by(61) {
        rewrite(&catalog, |bytes| bytes[at] ^= 0x21);
        found(&format!("a changed byte at {at}"));
    }
}

#[test]
fn an_inconsistent_catalog_with_correct_checksums_is_found() {
    let test = TestStore::in_memory();
    for name in ["one", "two", "three, with more than 23 bytes"] {
        test.create::<u64, _>(name, 1).unwrap();
    }
    let (path, _directory) = test.close();
    let catalog = path.join("catalog");
    let whole = std::fs::read(&catalog).unwrap();
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let base = word(&whole, 512);
    // The superblock's page contains the root: arenas, map of objects, doomed objects; see
    // `catalog`.
    let root = 3072;
    let entries = (word(&whole, root + 24) - base) as usize;
    let cells = (word(&whole, root + 32) - base) as usize;
    let arenas = (word(&whole, root) - base) as usize;
    type Change<'a> = Box<dyn Fn(&mut Vec<u8>) + 'a>;
    let put = |at: usize, value: u64| -> Change<'_> {
        Box::new(move |bytes| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes()))
    };
    let cases: Vec<(&str, Change<'_>)> = vec![
        ("the arenas", put(root, base + 8)),
        ("the arenas", put(root, 1)),
        ("the arenas", put(root, u64::MAX - 3)),
        ("the arenas", put(root + 8, u64::MAX)),
        ("the arenas", put(root + 16, u64::MAX / 8)),
        ("an arena", put(arenas + 16, 1)),
        ("an arena", put(arenas + 8, u64::MAX)),
        ("the map of objects", put(root + 24, base + (cells as u64))),
        ("the index of the map", put(root + 32, base + (entries as u64))),
        ("the hash of `one`", put(root + 40, 77)),
        ("the map of objects", put(root + 48, u64::MAX)),
        ("the map of objects", put(root + 56, 60)),
        ("the map of objects", put(root + 56, 2)),
        ("the map of objects", put(root + 56, 0)),
        ("the index of the map", put(cells, u64::MAX)),
        ("the index of the map", put(entries, 99)),
        ("the hash of `one`", put(entries, 99)),
        // A name in a block, and one in place.
        ("the name of ", put(entries + 160 + 8, base)),
        ("the name of ", put(entries + 160 + 16, 1 << 40)),
        ("the name of ", put(entries + 160 + 16, 0)),
        ("the name of ", put(entries + 24, 24 << 56)),
        ("the hash of `onf`", put(entries + 8, word(&whole, entries + 8) + (1 << 16))),
        ("the addresses of `one`", put(entries + 56, word(&whole, entries + 80 + 56))),
        (
            "the file of `two`",
            Box::new(|bytes| bytes.copy_within(entries + 32..entries + 48, entries + 80 + 32)),
        ),
        ("the objects to be removed", put(root + 64, base + 4096)),
    ];
    for (what, change) in cases {
        rewrite(&catalog, |bytes| {
            change(bytes);
            reseal(bytes);
        });
        let report = look(&path);
        let named =
            |f: &Finding| f.what.starts_with(what) || f.what.contains(&what.replace('`', ""));
        let found = report.findings.iter().any(|f| f.file == Path::new("catalog") && named(f));
        let shared = report.findings.iter().any(|f| f.found.contains("something else owns"));
        assert!(found || (shared && what.contains("addresses")), "{what}: {report:#?}");
        assert!(!report.findings.iter().any(|f| f.what.contains("checksum")), "{report:#?}");
        std::fs::write(&catalog, &whole).unwrap();
    }
    assert_clean(&path);
}

/// Corrects the checksums of page 0: the root's, and then the head's.
fn reseal_root(bytes: &mut [u8]) {
    let root = crc32c_of(&bytes[3072..4096]).to_le_bytes();
    bytes[208..212].copy_from_slice(&root);
    let mut head = bytes[..3072].to_vec();
    head[248..256].fill(0);
    bytes[252..256].copy_from_slice(&crc32c_of(&head).to_le_bytes());
}

/// Recalculates the checksums of a file with one region, as the format defines them.
fn reseal(bytes: &mut [u8]) {
    reseal_root(bytes);
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (base, table) = (word(bytes, 512), word(bytes, 552));
    if table == 0 {
        return;
    }
    let (first, end) = ((table - base) as usize / 4096, word(bytes, 544) as usize / 4096);
    let zero = crc32c_of(&[0; 4096]);
    for page in (0..bytes.len() / 4096).filter(|page| !(first..end).contains(page)) {
        let mut copy = bytes[page * 4096..][..4096].to_vec();
        if page == 0 {
            copy[..3072].fill(0);
        }
        let entry = crc32c_of(&copy) ^ zero;
        // A line is 15 entries and its own checksum, a page is 64 lines.
        let at = first * 4096 + page / 15 * 64 + page % 15 * 4;
        bytes[at..at + 4].copy_from_slice(&entry.to_le_bytes());
    }
    let nothing = crc32c_of(&[0; 60]);
    for line in bytes[first * 4096..end * 4096].chunks_exact_mut(64) {
        let seal = crc32c_of(&line[..60]) ^ nothing;
        line[60..].copy_from_slice(&seal.to_le_bytes());
    }
}

#[test]
fn missing_files_and_unknown_files_are_distinguished() {
    let (path, _directory) = closed_store();
    let file = object_file(&path);
    let other = path.join("objects").join("00112233445566778899aabbccddeeff");
    std::fs::rename(&file, &other).unwrap();
    let report = look(&path);
    let missing = report.findings.iter().find(|f| file.ends_with(&f.file)).unwrap();
    assert_eq!((missing.found.as_str(), missing.object.as_deref()), ("no such file", Some("v")));
    let stray = report.findings.iter().find(|f| other.ends_with(&f.file)).unwrap();
    assert_eq!(stray.what, "the object id", "a renamed file must not match its id");
    std::fs::rename(&other, &file).unwrap();
    assert_clean(&path);
}

#[test]
#[ignore = "a child of the test below"]
fn child_writes_while_it_is_checked() {
    let Some(path) = argument(0) else { return };
    let store = Store::open(&path).unwrap();
    for round in 0u64.. {
        let mut session = store.write::<Words>("v").unwrap();
        for n in 0..60 {
            let word = format!("word {}", (round * 61 + n * 7) % 500);
            session.root_mut().insert(word.as_str(), from_iter(0..n * round % 4000)).unwrap();
            session.commit().unwrap();
            store.replace::<u64, _>("other", n).unwrap();
        }
        session.close().unwrap();
        if round == 0 {
            println!("\nstarted");
        }
    }
}

#[test]
fn a_store_that_is_being_written_always_checks_clean() {
    let (path, _directory) = closed_store();
    let mut process = child("child_writes_while_it_is_checked", &[path.to_str().unwrap()]);
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    while line.trim() != "started" {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the process ended early");
    }
    let mut sequences = Vec::new();
    for _ in 0..60 {
        let report = assert_undamaged(&path);
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
        sequences.push(report.objects[1].sequence);
    }
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(sequences.is_sorted() && sequences[59] > sequences[0], "{sequences:?}");
    assert_undamaged(&path);
}

/// Runs in its own mount namespace with the store on a read-only file system.
#[test]
#[ignore = "a child of the test below"]
fn child_checks_a_read_only_store() {
    let (Some(path), Some(copy)) = (argument(0), argument(1)) else { return };
    let path = Path::new(&path);
    assert!(std::fs::write(path.join("new"), b"x").is_err(), "the file system is writable");
    assert_undamaged(path);
    evermap::tools::backup(path, &copy, &evermap::tools::BackupOptions::new()).unwrap();
    assert_clean(Path::new(&copy));
    let error = check(path, &CheckOptions::new().repair(true)).unwrap_err();
    assert!(matches!(error, evermap::Error::NotPermitted { .. }), "{error}");
    println!("\nchecked");
}

#[test]
fn a_store_on_a_read_only_file_system_can_be_checked_and_copied_even_after_a_kill() {
    let test = TestStore::in_memory();
    fill(&test, "v");
    let mut session = test.write::<Words>("v").unwrap();
    session.root_mut().insert("again", [1]).unwrap();
    session.commit().unwrap();
    let copies = tempfile::tempdir().unwrap();
    let (path, copy) = (copies.path().join("store"), copies.path().join("copy"));
    copy_store(&test.path(), &path);
    // Leftovers that a repair would remove if it could write.
    std::fs::write(path.join("building").join("00112233445566778899aabbccddeeff"), b"x").unwrap();
    drop(session);
    let script =
        "mount --bind \"$1\" \"$1\" && mount -o remount,ro,bind \"$1\" && shift && exec \"$@\"";
    let mut command = std::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]);
    command.arg(&path).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "child_checks_a_read_only_store", "--ignored", "--nocapture"]);
    command.env("EVERMAP_TEST_ARGUMENT_0", &path).env("EVERMAP_TEST_ARGUMENT_1", &copy);
    let Ok(output) = command.output() else {
        eprintln!("SKIPPED: no `unshare` here");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("unshare:") || said.contains("mount:") {
        eprintln!("SKIPPED: cannot mount here: {said}");
        return;
    }
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && out.contains("checked"), "{out}\n{said}");
}
