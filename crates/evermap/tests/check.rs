//! What a check finds: nothing in a sound store, and every kind of damage by its name.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::{Path, PathBuf};

use common::{TestStore, copy_store, object_file};
use evermap::tools::{CheckOptions, Finding, Report, Severity, check};
use evermap::{PMap, PString, PVec, Store, from_iter};

type Words = PMap<PString, PVec<u64>>;

/// Small blocks, large ones, a block freed in between.
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

/// A closed store with one object of many blocks.
fn closed_store() -> (PathBuf, tempfile::TempDir) {
    let test = TestStore::in_memory();
    fill(&test, "v");
    test.close()
}

fn look(path: &Path) -> Report {
    check(path, &CheckOptions::new()).unwrap()
}

fn repair(path: &Path) -> Report {
    check(path, &CheckOptions::new().repair(true)).unwrap()
}

/// Nothing worse than what a killed process leaves.
fn assert_sound(path: &Path) -> Report {
    let report = look(path);
    assert!(report.is_clean(), "{:#?}\n{:?}", report.findings, report.unchecked);
    report
}

/// Nothing at all.
fn assert_clean(path: &Path) -> Report {
    let report = assert_sound(path);
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
fn a_sound_store_is_clean_and_counted_as_its_owner_counts() {
    let test = TestStore::in_memory();
    assert_clean(&test.path());
    for name in ["a", "b", "c"] {
        fill(&test, name);
    }
    test.rename("b", "d").unwrap();
    test.remove("a").unwrap();
    // More than the catalog's first blocks hold.
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
        // What is not committed must not be seen.
        session.root_mut().insert("not yet", from_iter(0..n + 9)).unwrap();
        let copy = copies.path().join(n.to_string());
        copy_store(&test.path(), &copy);
        let report = assert_sound(&copy);
        // What the writer's growth left behind its last commit, and nothing else.
        assert!(report.findings.iter().all(|f| f.what == "the end of the file"));
        assert_eq!(report.objects[1].sequence, session.sequence());
        session.rollback().unwrap();
    }
}

#[test]
fn a_store_of_version_1_is_clean() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/format/v1");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    copy_store(&folder, &path);
    let report = assert_clean(&path);
    assert_eq!(report.objects.len(), 3);
    assert!(report.objects.iter().all(|object| object.pages_verified.is_none()));
    assert!(report.objects[2].log_commits > 0, "one of them was killed");
}

#[test]
fn a_store_is_checked_without_permission_to_write_and_while_it_is_open() {
    let test = TestStore::in_memory();
    fill(&test, "v");
    let snapshot = test.read::<Words>("v").unwrap();
    let before: Vec<_> = files_of(&test.path());
    assert_clean(&test.path());
    assert_eq!(files_of(&test.path()), before, "a check changed a file");
    drop(snapshot);
}

/// Every file with its bytes.
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
fn a_directory_that_is_no_store_is_told() {
    let directory = tempfile::tempdir().unwrap();
    for path in [directory.path().to_path_buf(), directory.path().join("none")] {
        let error = check(&path, &CheckOptions::new()).unwrap_err();
        assert!(matches!(error, evermap::Error::NoStore { .. }), "{error}");
    }
}

/// Where the metadata of an object's first region lies in its file.
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

/// The first chunk that `wanted` accepts, with its state.
fn chunk_where(bytes: &[u8], wanted: impl Fn(usize, u8) -> bool) -> usize {
    let places = places(bytes);
    let mut chunks = 0..places.records - places.map;
    chunks.find(|&chunk| wanted(chunk, bytes[places.map + chunk])).unwrap()
}

#[test]
fn damage_to_the_allocator_is_found_and_named() {
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
            "marked as full",
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
    // Noise, and noise all over: found, and not told a million times.
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
fn damage_to_files_as_a_whole_is_found_and_named() {
    let (path, _directory) = closed_store();
    let file = object_file(&path);
    let whole = std::fs::read(&file).unwrap();
    type Change = fn(&mut Vec<u8>);
    let cases: [(&str, Change); 8] = [
        ("an empty file", |b| b.clear()),
        ("cut short", |b| b.truncate(b.len() / 2)),
        ("cut short", |b| b.truncate(b.len() - 1)),
        ("it begins with", |b| b[..8].fill(7)),
        ("checksum", |b| b[97] ^= 4),
        ("checksum", |b| b[2048] ^= 4),
        ("no ", |b| b[248] = 1),
        ("the end of the file", |b| b.extend([0; 4096])),
    ];
    for (what, change) in cases {
        rewrite(&file, change);
        let report = look(&path);
        let finding = worst(&report);
        let text = format!("{} {} {}", finding.what, finding.found, finding.expected);
        assert!(text.contains(what), "{what}: {finding:#?}");
        assert_eq!(finding.severity == Severity::Leftover, what.starts_with("the end"));
        std::fs::write(&file, &whole).unwrap();
    }
    // Two files that changed places.
    let store = Store::open(&path).unwrap();
    fill(&store, "w");
    drop(store);
    let other = std::fs::read_dir(path.join("objects")).unwrap();
    let other = other.map(|e| e.unwrap().path()).find(|p| *p != file).unwrap();
    std::fs::rename(&file, path.join("x")).unwrap();
    std::fs::rename(&other, &file).unwrap();
    std::fs::rename(path.join("x"), &other).unwrap();
    let report = look(&path);
    assert_eq!(report.findings.len(), 2);
    assert!(report.findings.iter().all(|f| f.what == "the object id"), "{report:#?}");
}

#[test]
fn a_damaged_or_lost_catalog_is_found_whatever_the_damage() {
    let (path, _directory) = closed_store();
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
    // Every word of the root and of the blocks that it leads to, one after the other: what
    // changes the catalog's structure is found, and nothing ever panics.
    let data = places(&whole).data;
    let mut harmless = 0;
    for at in (3072..3072 + 88).chain(data..whole.len()).step_by(8) {
        rewrite(&catalog, |bytes| bytes[at..at + 8].fill(0x55));
        if look(&path).is_damaged() {
            restore();
            continue;
        }
        harmless += 1;
        restore();
    }
    let words = (whole.len() - data) / 8;
    assert!(harmless < words, "no word of the catalog matters");
}

#[test]
fn a_name_without_a_file_and_a_file_without_a_name_are_told_apart() {
    let (path, _directory) = closed_store();
    let file = object_file(&path);
    let other = path.join("objects").join("00112233445566778899aabbccddeeff");
    std::fs::rename(&file, &other).unwrap();
    let report = look(&path);
    let missing = report.findings.iter().find(|f| file.ends_with(&f.file)).unwrap();
    assert_eq!((missing.found.as_str(), missing.object.as_deref()), ("no such file", Some("v")));
    let stray = report.findings.iter().find(|f| other.ends_with(&f.file)).unwrap();
    assert_eq!(stray.what, "the object id", "a renamed file is not the object it is named for");
    std::fs::rename(&other, &file).unwrap();
    assert_clean(&path);
}
