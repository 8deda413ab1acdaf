//! Lazy verification of pages at their first use: damage there is found, damage elsewhere costs
//! nothing, and pages without a checksum are not reported as correct.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use common::{Random, TestStore, copy_store, object_file};
use evermap::tools::{CheckOptions, check};
use evermap::{Error, PVec, Snapshot, Store, from_iter};

const PAGE: usize = 4096;
const NUMBERS: u64 = 10_000;

fn flip(file: &File, bit: u64) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, bit / 8).unwrap();
    file.write_all_at(&[byte[0] ^ 1 << (bit % 8)], bit / 8).unwrap();
}

fn bytes_of(numbers: &Snapshot<PVec<u64>>) -> &[u8] {
    let numbers: &[u64] = numbers;
    // SAFETY: numbers are plain bytes, and they live as long as the snapshot.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}

/// Returns the offset of the numbers in the object's file.
fn first_number(path: &Path) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    let two = [[1, 0, 0, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0, 0, 0]].concat();
    bytes.windows(16).position(|bytes| bytes == two).unwrap() as u64 - 8
}

/// Returns the verdict for each page of the numbers.
fn verdicts(store: &Store) -> Vec<Result<bool, Error>> {
    let numbers = store.read::<PVec<u64>>("numbers").unwrap();
    bytes_of(&numbers).chunks(PAGE).map(|page| numbers.verify_bytes(page)).collect()
}

fn is_damage(verdict: &Result<bool, Error>) -> bool {
    matches!(verdict, Err(Error::Damaged { .. }))
}

#[test]
fn a_flipped_bit_is_found_in_its_page_and_in_no_other() {
    let test = TestStore::in_memory();
    test.create::<PVec<u64>, _>("numbers", from_iter(0..NUMBERS)).unwrap();
    let path = object_file(&test.path());
    let first = first_number(&path) as usize;
    let file = File::options().read(true).write(true).open(&path).unwrap();
    assert!(verdicts(&test).iter().all(|verdict| matches!(verdict, Ok(true))));
    let mut random = Random::from_environment("touched");
    for case in 0..400 {
        let at = random.below(NUMBERS * 8);
        let bit = (first as u64 + at) * 8 + random.below(8);
        flip(&file, bit);
        let pages = verdicts(&test);
        // Numbers begin inside a page, and so do these chunks.
        let page = (first + at as usize) / PAGE * PAGE;
        for (number, verdict) in pages.iter().enumerate() {
            let start = first + number * PAGE;
            let end = (start + PAGE).min(first + NUMBERS as usize * 8);
            let touches = start < page + PAGE && page < end;
            assert_eq!(is_damage(verdict), touches, "case {case}, byte {at}, page {number}");
        }
        flip(&file, bit);
    }
    assert!(verdicts(&test).iter().all(|verdict| matches!(verdict, Ok(true))));
}

#[test]
fn a_flipped_bit_of_a_root_or_of_a_table_of_checksums_is_found() {
    let test = TestStore::in_memory();
    test.create::<PVec<u64>, _>("numbers", from_iter(0..NUMBERS)).unwrap();
    let path = object_file(&test.path());
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let address = test.info("numbers").unwrap().base_address;
    let mut found = 0;
    for bit in 0..PAGE as u64 * 8 {
        flip(&file, bit);
        // The superblock itself is verified when the object is opened.
        if let Ok(raw) = test.read_raw("numbers") {
            let verdict = raw.verify_root();
            let root = raw.root();
            let bytes = root.address as u64 - address..root.address as u64 - address + root.bytes;
            if bytes.contains(&(bit / 8)) {
                assert!(is_damage(&verdict), "bit {bit}: {verdict:?}");
                found += 1;
            }
        }
        flip(&file, bit);
    }
    assert!(
        found == 0 || found == 24 * 8,
        "the root must be verified completely or not at all: {found}"
    );
    // A table of checksums at any position: each byte that the reader needs.
    let mut tables = 0;
    for page in 1..std::fs::metadata(&path).unwrap().len() / PAGE as u64 {
        for byte in (0..PAGE as u64).step_by(64) {
            let bit = (page * PAGE as u64 + byte) * 8;
            flip(&file, bit);
            let pages = test.read::<PVec<u64>>("numbers").map(|_| verdicts(&test));
            if let Ok(pages) = pages {
                let damaged = pages.iter().filter(|verdict| is_damage(verdict)).count();
                tables += u64::from(damaged > 2);
            }
            flip(&file, bit);
        }
    }
    assert!(tables > 0, "no line of a table was flipped");
}

#[test]
fn pages_without_checksums_are_not_reported_as_correct() {
    let test = TestStore::in_memory();
    test.create::<PVec<u64>, _>("numbers", from_iter(0..NUMBERS)).unwrap();
    let numbers = test.read::<PVec<u64>>("numbers").unwrap();
    assert!(numbers.verify_root().unwrap());
    assert!(numbers.verify_bytes(&[]).unwrap());
    assert!(!numbers.verify_bytes(b"elsewhere").unwrap());
    let all = bytes_of(&numbers);
    // SAFETY: only addresses are passed; `verify_bytes` reads only inside the object.
    let beyond = unsafe { std::slice::from_raw_parts(all.as_ptr(), isize::MAX as usize / 2) };
    assert!(!numbers.verify_bytes(beyond).unwrap());
}

/// The last commits are in the log, and the file has older pages and checksums.
#[test]
fn pages_of_commits_in_the_log_are_verified_when_read() {
    let test = TestStore::new();
    test.create::<PVec<u64>, _>("numbers", from_iter(0..NUMBERS)).unwrap();
    let mut session = test.write::<PVec<u64>>("numbers").unwrap();
    let mut copies = Vec::new();
    for round in 1..20_u64 {
        for at in 0..NUMBERS as usize / 500 {
            session.root_mut().as_mut_slice()[at * 500] = round * 1_000_000;
        }
        session.commit().unwrap();
        // The files as they are on the disk now, with the log.
        let copy = test.directory.path().join(format!("copy {round}"));
        copy_store(&test.path(), &copy);
        copies.push((round, copy));
    }
    session.close().unwrap();
    let (_path, _directory) = test.close();
    for (round, copy) in copies {
        let store = Store::open(&copy).unwrap();
        assert!(
            verdicts(&store).iter().all(|verdict| matches!(verdict, Ok(true))),
            "round {round}"
        );
        assert_eq!(store.read::<PVec<u64>>("numbers").unwrap()[500], round * 1_000_000);
    }
}

#[test]
fn each_mapping_verifies_a_page_once() {
    let test = TestStore::in_memory();
    test.create::<PVec<u64>, _>("numbers", from_iter(0..NUMBERS)).unwrap();
    let file = File::options().read(true).write(true).open(object_file(&test.path())).unwrap();
    let numbers = test.read::<PVec<u64>>("numbers").unwrap();
    let page = &bytes_of(&numbers)[PAGE..PAGE + 8];
    assert!(numbers.verify_bytes(page).unwrap());
    flip(&file, (first_number(&object_file(&test.path())) + PAGE as u64) * 8);
    assert!(numbers.verify_bytes(page).unwrap(), "the page was verified a second time");
    drop(numbers);
    let numbers = test.read::<PVec<u64>>("numbers").unwrap();
    assert!(is_damage(&numbers.verify_bytes(&bytes_of(&numbers)[PAGE..PAGE + 8])));
}

fn spoil(store: &Path, uuid: &str) {
    let path = store.join("objects").join(uuid);
    let bytes = std::fs::read(&path).unwrap();
    let last = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64;
    flip(&File::options().read(true).write(true).open(path).unwrap(), last * 8);
}

#[test]
fn a_repair_removes_damaged_caches_and_keeps_other_objects() {
    let test = TestStore::in_memory();
    for name in ["cache-damaged", "cache-good", "letter"] {
        test.create::<PVec<u64>, _>(name, from_iter(0..NUMBERS)).unwrap();
    }
    let uuid = |name: &str| test.info(name).unwrap().uuid;
    let damaged = ["cache-damaged", "letter"].map(uuid);
    let (path, _directory) = test.close();
    damaged.iter().for_each(|uuid| spoil(&path, uuid));
    let caches = || CheckOptions::new().caches(|name| name.starts_with("cache-"));
    // Without repair, nothing is removed.
    assert!(check(&path, &caches()).unwrap().is_damaged());
    assert_eq!(Store::open(&path).unwrap().list().unwrap().len(), 3);
    let report = check(&path, &caches().repair(true)).unwrap();
    assert!(report.is_damaged(), "the letter is still damaged: {report:#?}");
    let kept = report.kept_in.unwrap().join("objects").join(&damaged[0]);
    assert!(kept.is_file(), "{}", kept.display());
    let mut names = Store::open(&path).unwrap().list().unwrap();
    names.sort();
    assert_eq!(names, ["cache-good", "letter"]);
    // Without caches, a repair removes nothing.
    let report = check(&path, &CheckOptions::new().repair(true)).unwrap();
    assert!(report.is_damaged());
    let store = Store::open(&path).unwrap();
    assert_eq!(store.list().unwrap().len(), 2);
    drop(store);
}
