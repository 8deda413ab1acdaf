//! Guarantees of each durability level when a process is killed, and damage that verification
//! finds. (Power failures are tested on the simulated disk.)
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{TestStore, argument, child, object_file};
use evermap::{Durability, Error, Options, PVec, Store, Verify, WriteOptions};

fn level(name: &str) -> WriteOptions {
    let durability = match name {
        "commit" => Durability::Commit,
        // Longer than the test: nothing is flushed before the end.
        "interval" => Durability::Interval(Duration::from_secs(3600)),
        _ => Durability::Close,
    };
    WriteOptions::new().durability(durability)
}

#[test]
#[ignore = "a child"]
fn child_commits_syncs_commits_and_waits() {
    let (Some(path), Some(name)) = (argument(0), argument(1)) else { return };
    let store = Store::open(&path).unwrap();
    let mut session = store.write_with::<PVec<u64>>("v", &level(&name)).unwrap();
    for number in 1..=10 {
        session.root_mut().push(number).unwrap();
        assert!(session.commit().unwrap());
        if number == 4 {
            session.sync().unwrap();
        }
    }
    session.root_mut().push(11).unwrap();
    println!("\nready");
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Returns the number of commits that remain after the child was killed.
fn commits_after_a_kill(path: &Path, level: &str) -> usize {
    let mut process =
        child("child_commits_syncs_commits_and_waits", &[path.to_str().unwrap(), level]);
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    while line.trim() != "ready" {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the child ended early");
    }
    let before_the_kill = Store::open(path).unwrap().read::<PVec<u64>>("v").unwrap().len();
    process.kill().unwrap();
    process.wait().unwrap();
    let store = Store::open(path).unwrap();
    let v = store.write::<PVec<u64>>("v").unwrap();
    assert!(v.iter().copied().eq(1..=v.len() as u64), "not a commit: {:?}", &v[..]);
    assert_eq!(v.len(), before_the_kill, "a state that a reader saw was lost");
    v.len()
}

#[test]
fn a_kill_loses_no_commit_except_those_since_the_last_sync_at_level_close() {
    for (name, expected) in [("commit", 10), ("interval", 10), ("close", 4)] {
        let test = TestStore::new();
        test.create::<PVec<u64>, _>("v", PVec::new()).unwrap();
        let (path, _directory) = test.close();
        assert_eq!(commits_after_a_kill(&path, name), expected, "level {name}");
    }
}

#[test]
fn a_log_full_of_earlier_commits_also_takes_those_of_level_close() {
    let test = TestStore::new();
    test.create::<PVec<u64>, _>("v", vec![0; 100_000]).unwrap();
    let options = level("close").log_bytes_max(64 << 10);
    let mut session = test.write_with::<PVec<u64>>("v", &options).unwrap();
    for round in 1..=19 {
        session.root_mut().as_mut_slice()[..4000].fill(round);
        assert!(session.commit().unwrap());
        session.sync().unwrap();
        let first = 4000 * (round as usize % 20);
        session.root_mut().as_mut_slice()[first..first + 4000].fill(round);
        assert!(session.commit().unwrap());
        session.checkpoint().unwrap();
    }
    session.close().unwrap();
    assert_eq!(test.read::<PVec<u64>>("v").unwrap()[79_999], 19);
}

#[test]
fn at_every_level_rollback_returns_to_the_last_commit_and_close_makes_it_durable() {
    for name in ["commit", "interval", "close"] {
        let test = TestStore::new();
        test.create::<PVec<u64>, _>("v", PVec::new()).unwrap();
        let mut session = test.write_with::<PVec<u64>>("v", &level(name)).unwrap();
        for number in 0..2000_u64 {
            session.root_mut().push(number).unwrap();
            session.commit().unwrap();
            session.root_mut().as_mut_slice().fill(u64::MAX);
            // Growth too.
            session.root_mut().resize(5000, 1).unwrap();
            session.rollback().unwrap();
            assert_eq!(session.len() as u64, number + 1);
            assert_eq!(session[number as usize], number);
        }
        assert!(session.iter().copied().eq(0..2000), "level {name}");
        session.close().unwrap();
        let verified = Options::new().verify(Verify::Full);
        let (path, _directory) = test.close();
        let store = verified.open(&path).unwrap();
        assert!(store.read::<PVec<u64>>("v").unwrap().iter().copied().eq(0..2000));
    }
}

#[test]
fn an_interval_commit_is_flushed_by_a_thread_and_not_by_the_commit() {
    let test = TestStore::new();
    test.create::<PVec<u64>, _>("v", vec![0; 1000]).unwrap();
    let options = WriteOptions::new().durability(Durability::Interval(Duration::from_millis(1)));
    let mut session = test.write_with::<PVec<u64>>("v", &options).unwrap();
    for number in 0..500 {
        session.root_mut().as_mut_slice().fill(number);
        session.commit().unwrap();
    }
    session.sync().unwrap();
    session.close().unwrap();
    assert_eq!(test.read::<PVec<u64>>("v").unwrap()[999], 499);
}

/// Creates a closed store with one object of about 2 MiB. Returns an offset in its data.
fn closed_store_with_data() -> (std::path::PathBuf, tempfile::TempDir) {
    let test = TestStore::new();
    let numbers: Vec<u64> =
        (0..250_000).map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    // The size is known in advance: one region, without a hole after it.
    let mut batch = test.batch().unwrap();
    batch.replace_sized::<PVec<u64>, _>("v", numbers, 8 * 250_000).unwrap();
    batch.commit().unwrap();
    test.close()
}

/// Flips a bit of the file at this offset.
fn flip(file: &Path, offset: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

#[test]
fn full_verification_finds_any_flipped_bit_and_a_healthy_object_passes() {
    let (path, _directory) = closed_store_with_data();
    let verified = Options::new().verify(Verify::Full);
    {
        let store = verified.open(&path).unwrap();
        assert!(store.read::<PVec<u64>>("v").unwrap().verified().unwrap());
    }
    let file = object_file(&path);
    let length = file.metadata().unwrap().len();
    let mut offset = 4096;
    while offset < length {
        flip(&file, offset);
        {
            let store = verified.open(&path).unwrap();
            let damaged = |result: Result<(), Error>| match result {
                Err(Error::Damaged { .. }) => {}
                other => panic!("byte {offset} of {length}: {other:?}"),
            };
            damaged(store.read::<PVec<u64>>("v").map(drop));
            damaged(store.write::<PVec<u64>>("v").map(drop));
        }
        flip(&file, offset);
        offset += 4096 * 7 + 131;
    }
    let store = verified.open(&path).unwrap();
    assert_eq!(store.read::<PVec<u64>>("v").unwrap().len(), 250_000);
}

#[test]
fn background_verification_reports_damage_to_the_next_commit_and_refresh() {
    let (path, _directory) = closed_store_with_data();
    let background = Options::new().verify(Verify::Background);
    let wait = |verified: &dyn Fn() -> Result<bool, Error>| {
        let since = Instant::now();
        loop {
            match verified() {
                Ok(false) if since.elapsed() < Duration::from_secs(60) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                other => return other,
            }
        }
    };
    {
        let store = background.open(&path).unwrap();
        let snapshot = store.read::<PVec<u64>>("v").unwrap();
        assert!(wait(&|| snapshot.verified()).unwrap());
    }
    flip(&object_file(&path), 1_000_000);
    let store = background.open(&path).unwrap();
    let snapshot = store.read::<PVec<u64>>("v").unwrap();
    assert!(matches!(wait(&|| snapshot.verified()), Err(Error::Damaged { .. })));
    assert!(matches!(snapshot.refresh().map(drop), Err(Error::Damaged { .. })));
    let mut session = store.write::<PVec<u64>>("v").unwrap();
    session.root_mut().push(1).unwrap();
    assert!(matches!(wait(&|| session.verified()), Err(Error::Damaged { .. })));
    assert!(matches!(session.commit(), Err(Error::Damaged { .. })));
}

#[test]
fn background_verification_during_commits_reports_no_damage() {
    let (path, _directory) = closed_store_with_data();
    let background = Options::new().verify(Verify::Background);
    let store = background.open(&path).unwrap();
    // Every commit is applied at once, so pages change all the time during the verification.
    let options = WriteOptions::new().hot_bytes_max(0);
    for _ in 0..5 {
        let mut session = store.write_with::<PVec<u64>>("v", &options).unwrap();
        let mut number = 0;
        while !session.verified().unwrap() || number < 20 {
            number += 1;
            session.root_mut().as_mut_slice().iter_mut().step_by(500).for_each(|n| *n ^= number);
            session.commit().unwrap();
        }
        session.close().unwrap();
    }
}

#[test]
fn full_page_logging_and_no_retained_pages_yield_the_same_object() {
    for options in [
        WriteOptions::new().log_full_pages(true),
        WriteOptions::new().hot_bytes_max(0),
        WriteOptions::new().hot_bytes_max(40 * 4096),
        WriteOptions::new().log_bytes_max(0),
        WriteOptions::new().checkpoint_after(Duration::ZERO),
    ] {
        let test = TestStore::new();
        test.create::<PVec<u64>, _>("v", vec![0; 100_000]).unwrap();
        let mut session = test.write_with::<PVec<u64>>("v", &options).unwrap();
        let mut model = vec![0_u64; 100_000];
        let mut random = 1_u64;
        for round in 0..200 {
            for _ in 0..=round % 60 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (random >> 40) as usize % model.len();
                model[at] = random;
                session.root_mut().as_mut_slice()[at] = random;
            }
            if round % 7 == 3 {
                session.rollback().unwrap();
                model.copy_from_slice(&session);
            }
            session.commit().unwrap();
            if round % 40 == 11 {
                session.root_mut().push(round).unwrap();
                model.push(round);
                session.commit().unwrap();
            }
        }
        assert!(session[..] == model[..], "{options:?}");
        session.close().unwrap();
        let verified = Options::new().verify(Verify::Full);
        let (path, _directory) = test.close();
        let store = verified.open(&path).unwrap();
        assert!(store.read::<PVec<u64>>("v").unwrap()[..] == model[..], "{options:?}");
    }
}
