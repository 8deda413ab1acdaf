//! A session that reads its object commits every store, whatever pages it read, stored to,
//! committed and dropped before.
//!
//! `EVERMAP_READING_SESSIONS` sets the number of sessions.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs::File;
use std::io::Read;

use common::{Random, TestStore};
use evermap::{PVec, WriteOptions};

type Bytes = PVec<u8>;
const PAGE: u64 = 4096;

fn sessions(default: u64) -> u64 {
    let given = std::env::var("EVERMAP_READING_SESSIONS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// One session with random steps. `committed` is the object as of the last commit.
fn session(test: &TestStore, random: &mut Random, committed: &mut Vec<u8>, resize: bool) {
    let mut options = WriteOptions::new();
    if random.one_in(2) {
        options = options.hot_bytes_max(PAGE << random.below(8));
    }
    let mut session = test.write_with::<Bytes>("bytes", &options).unwrap();
    // A store that the last session's commits missed is lost by now.
    assert!(session.as_slice() == committed, "the session starts with another state");
    let mut now = committed.clone();
    for _ in 0..random.below(30) {
        let length = now.len() as u64;
        let first = random.below(length);
        let pages = if random.one_in(3) { random.below(length) / PAGE } else { random.below(8) };
        let range = first as usize..(first + 1 + pages * PAGE).min(length) as usize;
        let step = random.below(12);
        match step {
            0..3 => assert!(session[range.clone()] == now[range]),
            3..6 => {
                let mut root = session.root_mut();
                for page in range.step_by(PAGE as usize) {
                    now[page] = random.number() as u8;
                    root.as_mut_slice()[page] = now[page];
                }
            }
            6 => {
                let mut root = session.root_mut();
                let stored = &mut root.as_mut_slice()[range.clone()];
                File::open("/dev/urandom").unwrap().read_exact(stored).unwrap();
                now[range].copy_from_slice(stored);
            }
            7 if resize => {
                let length = 1 + random.below(6 << 20) as usize;
                session.root_mut().resize(length, 7).unwrap();
                now.resize(length, 7);
            }
            8 => {
                session.rollback().unwrap();
                now.clone_from(committed);
                assert!(session.as_slice() == now, "after a rollback");
            }
            9 => drop(session.checkpoint().unwrap()),
            _ => {
                session.commit().unwrap();
                committed.clone_from(&now);
            }
        }
    }
    match random.one_in(3) {
        true => session.close().unwrap(),
        false => drop(session),
    }
}

fn run(length: usize, count: u64, resize: bool) {
    let mut random = Random::from_environment("reading");
    let test = TestStore::new();
    let mut bytes = vec![1; length];
    random.fill(&mut bytes[..1 << 16]);
    test.create::<Bytes, _>("bytes", &bytes).unwrap();
    for _ in 0..count {
        session(&test, &mut random, &mut bytes, resize);
    }
    let report = evermap::tools::check(test.path(), &Default::default()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn every_store_is_committed_in_an_object_that_is_read() {
    run(3 << 20, sessions(60), true);
}

#[test]
fn every_store_is_committed_in_a_large_object_that_is_read() {
    run(65 << 20, sessions(60) / 15, false);
}
