//! Objects that grow, shrink, release space and are reopened in any order stay intact and can
//! always grow, also with concurrent readers and killed writers.
//!
//! `EVERMAP_LIVES` sets the number of lives.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::Duration;

use common::{Random, TestStore, argument, child};
use evermap::{PMap, PString, PVec, Persist, Session, Store, WriteOptions};

/// A root that can be verified.
#[derive(Persist)]
#[repr(C)]
struct Life {
    sum: u64,
    big: PVec<u8>,
    words: PMap<u64, PString>,
}

fn sum_of(life: &Life) -> u64 {
    let words = life.words.iter().map(|(key, word)| key.wrapping_mul(31) + word.len() as u64);
    let bytes = life
        .big
        .iter()
        .fold(7u64, |sum, byte| sum.wrapping_mul(0x100_0000_01b3).wrapping_add(u64::from(*byte)));
    words.fold(bytes, u64::wrapping_add)
}

fn create(store: &Store) {
    let empty = LifeInit { sum: 0_u64, big: PVec::new(), words: PMap::new() };
    store.create::<Life, _>("life", empty).unwrap();
    let mut session = store.write::<Life>("life").unwrap();
    commit(&mut session);
    session.close().unwrap();
}

fn commit(session: &mut Session<Life>) {
    let sum = sum_of(session);
    *session.root_mut().fields().sum = sum;
    session.commit().unwrap();
}

fn change(session: &mut Session<Life>, random: &mut Random) {
    let mut root = session.root_mut();
    let LifeFields { mut big, mut words, .. } = root.fields();
    match random.below(6) {
        0 | 1 => big.resize(random.below(3_000_000) as usize, random.number() as u8).unwrap(),
        2 => {
            for byte in big.as_mut_slice().iter_mut().step_by(1 + random.below(9_000) as usize) {
                *byte = byte.wrapping_add(1);
            }
        }
        3 => big.truncate(0),
        _ => {
            for _ in 0..random.below(60) {
                let word = "w".repeat(random.below(300) as usize);
                words.insert(random.below(400), &*word).unwrap();
                words.remove(&random.below(400));
            }
        }
    }
}

fn options(random: &mut Random) -> WriteOptions {
    let mut options = WriteOptions::new();
    if random.one_in(2) {
        options = options.log_bytes_max(1 << (14 + random.below(10)));
    }
    if random.one_in(3) {
        options = options.hot_bytes_max(1 << (12 + random.below(12)));
    }
    options.log_full_pages(random.one_in(6))
}

/// One session with some steps.
fn live(store: &Store, random: &mut Random) {
    let mut session = store.write_with::<Life>("life", &options(random)).unwrap();
    assert_eq!(session.sum, sum_of(&session), "the session starts with a torn state");
    for _ in 0..1 + random.below(12) {
        change(&mut session, random);
        if random.one_in(8) {
            session.rollback().unwrap();
            assert_eq!(session.sum, sum_of(&session), "a rollback leaves a torn state");
            continue;
        }
        commit(&mut session);
        match random.below(12) {
            0 => drop(session.checkpoint().unwrap()),
            1 => drop(session.shrink().unwrap()),
            2 => drop(session.release(random.below(4_000_000)).unwrap()),
            3 => session.reserve(random.below(2_000_000)).unwrap(),
            _ => {}
        }
    }
    if random.one_in(4) {
        drop(session);
    } else {
        session.close().unwrap();
    }
}

fn assert_undamaged(path: &Path, what: &str) {
    let report = evermap::tools::check(path, &Default::default()).unwrap();
    assert!(report.is_clean(), "{what}: {report:?}");
    let store = Store::open(path).unwrap();
    let life = store.read::<Life>("life").unwrap();
    assert_eq!(life.sum, sum_of(&life), "{what}");
}

/// A process that reads the object on request.
struct Reader {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    is_reading: bool,
}

impl Reader {
    fn start(path: &Path) -> Reader {
        let mut process = child("child_reads_on_demand", &[path.to_str().unwrap()]);
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Reader { process, input, output, is_reading: false }
    }

    fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
        let mut line = String::new();
        while line.trim() != format!("> {command}") {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the reader ended early");
        }
        self.is_reading = command == "read";
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
#[ignore = "a child"]
fn child_reads_on_demand() {
    let Some(path) = argument(0) else { return };
    let store = Store::open(path).unwrap();
    let mut snapshot = None;
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        snapshot = (line == "read").then(|| store.read::<Life>("life").unwrap());
        if let Some(life) = &snapshot {
            assert_eq!(life.sum, sum_of(life), "a reader sees a torn state");
        }
        println!("\n> {line}");
    }
    drop(snapshot);
}

#[test]
#[ignore = "a child"]
fn child_lives_until_it_is_killed() {
    let (Some(path), Some(seed)) = (argument(0), argument(1)) else { return };
    let store = Store::open(path).unwrap();
    let mut random = Random::new(seed.parse().unwrap());
    loop {
        live(&store, &mut random);
    }
}

fn lives() -> u64 {
    std::env::var("EVERMAP_LIVES").map_or(8, |lives| lives.parse().unwrap())
}

#[test]
fn an_object_that_grows_and_shrinks_with_readers_stays_intact_and_can_always_grow() {
    let mut random = Random::from_environment("lives beside readers");
    for life in 0..lives() {
        let test = TestStore::in_memory();
        create(&test);
        let mut reader = Reader::start(&test.path());
        for _ in 0..12 {
            if random.one_in(2) {
                reader.tell(if reader.is_reading { "drop" } else { "read" });
            }
            live(&test, &mut random);
        }
        drop(reader);
        let (path, _directory) = test.close();
        assert_undamaged(&path, &format!("life {life}"));
    }
}

#[test]
fn an_object_whose_writers_are_killed_stays_intact() {
    let mut random = Random::from_environment("lives with kills");
    for life in 0..lives() {
        let test = TestStore::in_memory();
        create(&test);
        let (path, _directory) = test.close();
        let mut reader = Reader::start(&path);
        for kill in 0..5 {
            if random.one_in(2) {
                reader.tell(if reader.is_reading { "drop" } else { "read" });
            }
            let seed = random.number().to_string();
            let mut writer =
                child("child_lives_until_it_is_killed", &[path.to_str().unwrap(), &seed]);
            std::thread::sleep(Duration::from_millis(10 + random.below(150)));
            writer.kill().unwrap();
            writer.wait().unwrap();
            assert_undamaged(&path, &format!("life {life}, kill {kill}"));
        }
    }
}

/// When the space is finally released, the chunk map already has the chunk as a hole. Only the
/// checksums change in that commit.
#[test]
fn space_kept_for_a_reader_is_released_later_with_its_checksums() {
    let test = TestStore::in_memory();
    test.create_raw("heap").unwrap();
    let mut session = test.write_raw("heap").unwrap();
    let fill = |block: std::ptr::NonNull<u8>, bytes: usize, with: u8| {
        // SAFETY: the block was allocated with these bytes.
        unsafe { block.as_ptr().write_bytes(with, bytes) };
    };
    let kept = session.heap().allocate(5_000, 16).unwrap();
    fill(kept, 5_000, 1);
    // SAFETY: the tag belongs to no Rust type.
    unsafe { session.set_root(Some(kept), 5_000, [0; 16], "") }.unwrap();
    let block = session.heap().allocate(200_000, 16).unwrap();
    fill(block, 200_000, 2);
    let last = session.heap().allocate(200_000, 16).unwrap();
    fill(last, 200_000, 3);
    session.commit().unwrap();
    fill(block, 200_000, 4);
    session.commit().unwrap();

    let path = test.path();
    let mut process = child("child_holds_the_heap", &[path.to_str().unwrap()]);
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    while line.trim() != "> reading" {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the reader ended early");
    }
    // SAFETY: nothing refers to the block.
    unsafe { session.heap().try_free(block) }.unwrap();
    session.shrink().unwrap();
    // The next session keeps the commits in private pages, because they cannot be applied yet.
    session.close().unwrap();
    let mut session = test.write_raw("heap").unwrap();
    fill(kept, 5_000, 5);
    session.commit().unwrap();
    drop(process.stdin.take());
    assert!(process.wait().unwrap().success());
    session.shrink().unwrap();
    session.close().unwrap();
    let (path, _directory) = test.close();
    let report = evermap::tools::check(&path, &Default::default()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

#[test]
#[ignore = "a child"]
fn child_holds_the_heap() {
    let Some(path) = argument(0) else { return };
    let store = Store::open(path).unwrap();
    let snapshot = store.read_raw("heap").unwrap();
    println!("\n> reading");
    let _ = std::io::stdin().lines().next();
    drop(snapshot);
}
