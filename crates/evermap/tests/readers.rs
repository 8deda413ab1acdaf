//! Readers with a concurrent writer in another process: each sees exactly one commit, and no
//! process waits.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::Duration;

use common::{TestStore, argument, child, object_file};
use evermap::{Durability, Error, Options, PVec, Store, Verify, WhenLogFull, WriteOptions};

/// Commit `n` stores `n` into all of these, on many pages.
const NUMBERS: usize = 20_000;

/// A writer in another process that executes commands line by line.
struct Writer {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Writer {
    fn start(path: &Path, settings: &str) -> Writer {
        let mut process = child("child_writes_on_demand", &[path.to_str().unwrap(), settings]);
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut writer = Writer { process, input, output };
        assert_eq!(writer.answer(), "ready");
        writer
    }

    /// Sends a command and waits for the answer.
    fn tell(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the writer ended early");
            if let Some(answer) = line.trim().strip_prefix("> ") {
                return answer.to_string();
            }
        }
    }

    fn close(mut self) {
        assert_eq!(self.tell("close"), "closed");
        assert!(self.process.wait().unwrap().success());
    }

    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn settings_named(name: &str) -> WriteOptions {
    let options = WriteOptions::new();
    match name {
        "small log" => options.log_bytes_max(64 * 1024),
        "refuse" => options.log_bytes_max(64 * 1024).when_log_full(WhenLogFull::Refuse),
        "keep nothing" => options.hot_bytes_max(0),
        "interval" => options.durability(Durability::Interval(Duration::from_millis(2))),
        _ => options,
    }
}

#[test]
#[ignore = "a child"]
fn child_writes_on_demand() {
    let (Some(path), Some(settings)) = (argument(0), argument(1)) else { return };
    let store = Store::open(&path).unwrap();
    let mut session = store.write_with::<PVec<u64>>("v", &settings_named(&settings)).unwrap();
    println!("\n> ready");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (command, number) = line.split_once(' ').unwrap_or((&line, "0"));
        let number: u64 = number.parse().unwrap();
        let answer = match command {
            "commit" => {
                session.root_mut().as_mut_slice().fill(number);
                session.commit().map(|_| "committed".to_string())
            }
            "store" => {
                session.root_mut().as_mut_slice().fill(number);
                Ok("stored".to_string())
            }
            "grow" => {
                let length = session.len() + number as usize;
                let value = session[0];
                session.root_mut().resize(length, value).unwrap();
                session.commit().map(|_| "committed".to_string())
            }
            "rollback" => session.rollback().map(|()| session[0].to_string()),
            "checkpoint" => session.checkpoint().map(|done| done.to_string()),
            "close" => {
                session.close().unwrap();
                println!("> closed");
                return;
            }
            other => panic!("{other}"),
        };
        match answer {
            Ok(answer) => println!("> {answer}"),
            Err(Error::LogFull { .. }) => println!("> log full"),
            Err(error) => println!("> error: {error}"),
        }
    }
}

/// Creates a closed store with the object at commit 0.
fn store_of_zeros() -> (PathBuf, tempfile::TempDir) {
    let test = TestStore::new();
    test.create::<PVec<u64>, _>("v", vec![0; NUMBERS]).unwrap();
    test.close()
}

fn assert_is(v: &[u64], number: u64) {
    assert!(v.iter().all(|n| *n == number), "not exactly commit {number}");
}

#[test]
fn a_snapshot_is_stable_while_a_writer_commits_and_a_new_one_sees_the_last_commit() {
    let (path, _directory) = store_of_zeros();
    for settings in ["", "keep nothing", "interval"] {
        let mut writer = Writer::start(&path, settings);
        let store = Store::open(&path).unwrap();
        writer.tell("commit 1");
        let mut snapshot = store.read::<PVec<u64>>("v").unwrap();
        assert_is(&snapshot, 1);
        for number in 2..30 {
            assert_eq!(writer.tell(&format!("commit {number}")), "committed");
            assert_is(&snapshot, number - 1);
            assert!(!snapshot.is_current().unwrap());
            snapshot = snapshot.refresh().unwrap();
            assert_is(&snapshot, number);
            assert!(snapshot.is_current().unwrap());
        }
        let sequence = snapshot.sequence();
        writer.tell("store 99");
        snapshot = snapshot.refresh().unwrap();
        assert_eq!(snapshot.sequence(), sequence, "nothing was committed");
        assert_is(&snapshot, 29);
        assert_eq!(writer.tell("rollback"), "29");
        writer.close();
        assert_is(&snapshot, 29);
        snapshot = snapshot.refresh().unwrap();
        assert_is(&snapshot, 29);
        drop(snapshot);
        let mut session = store.write::<PVec<u64>>("v").unwrap();
        assert_is(&session, 29);
        session.root_mut().as_mut_slice().fill(0);
        session.commit().unwrap();
        session.close().unwrap();
        assert!(!object_file(&path).with_extension("log").exists());
    }
}

#[test]
fn growth_is_seen_by_new_snapshots_only() {
    let (path, _directory) = store_of_zeros();
    let mut writer = Writer::start(&path, "");
    let store = Store::open(&path).unwrap();
    writer.tell("commit 1");
    let snapshot = store.read::<PVec<u64>>("v").unwrap();
    // First in place, then past the region into a new one.
    for step in [1000, 300_000, 2_000_000] {
        assert_eq!(writer.tell(&format!("grow {step}")), "committed");
    }
    assert_eq!(snapshot.len(), NUMBERS);
    assert_is(&snapshot, 1);
    let snapshot = snapshot.refresh().unwrap();
    assert_eq!(snapshot.len(), NUMBERS + 2_301_000);
    assert_is(&snapshot, 1);
    writer.tell("commit 2");
    assert_is(&snapshot, 1);
    writer.close();
    assert_is(&snapshot, 1);
    assert_is(&snapshot.refresh().unwrap(), 2);
}

#[test]
fn after_a_writer_is_killed_under_readers_the_next_one_continues_its_log() {
    let (path, _directory) = store_of_zeros();
    for _ in 0..3 {
        let mut writer = Writer::start(&path, "");
        writer.tell("commit 1");
        let store = Store::open(&path).unwrap();
        let snapshot = store.read::<PVec<u64>>("v").unwrap();
        writer.tell("commit 2");
        writer.tell("store 3");
        writer.kill();
        assert_is(&snapshot, 1);
        // The reader prevents the next writer from applying: that writer patches its own pages from
        // the log.
        let mut writer = Writer::start(&path, "");
        assert_eq!(writer.tell("checkpoint"), "false");
        assert_eq!(writer.tell("rollback"), "2");
        writer.tell("commit 4");
        writer.tell("grow 100000");
        assert_is(&snapshot, 1);
        writer.kill();
        assert_is(&snapshot, 1);
        let snapshot = snapshot.refresh().unwrap();
        assert_is(&snapshot, 4);
        let length = snapshot.len();
        drop(snapshot);
        let mut session = store.write::<PVec<u64>>("v").unwrap();
        assert_eq!(session.len(), length);
        assert_is(&session, 4);
        session.root_mut().truncate(NUMBERS);
        session.commit().unwrap();
        session.close().unwrap();
    }
}

#[test]
fn a_full_log_with_a_reader_is_emptied_into_a_copy_and_the_reader_keeps_the_old_file() {
    let (path, _directory) = store_of_zeros();
    let file = object_file(&path);
    let log = file.with_extension("log");
    let mut writer = Writer::start(&path, "small log");
    let store = Store::open(&path).unwrap();
    writer.tell("commit 1");
    let mut snapshot = store.read::<PVec<u64>>("v").unwrap();
    let first = snapshot.sequence();
    for number in 2..20 {
        assert_eq!(writer.tell(&format!("commit {number}")), "committed");
        assert_is(&snapshot, (number - 1) / 5 * 5 + u64::from(number <= 5));
        if number % 5 == 0 {
            snapshot = snapshot.refresh().unwrap();
            assert_is(&snapshot, number);
        }
    }
    assert!(snapshot.sequence() > first);
    let bytes = std::fs::metadata(&log).unwrap().len();
    assert!(bytes < 2 << 20, "a log of {bytes} bytes was not emptied");
    writer.kill();
    assert_is(&snapshot.refresh().unwrap(), 19);
    let session = store.write::<PVec<u64>>("v").unwrap();
    assert_is(&session, 19);
    session.close().unwrap();
    assert_eq!(std::fs::read_dir(path.join("objects")).unwrap().count(), 1, "a copy was left");
    let verified = Options::new().verify(Verify::Full);
    drop(store);
    assert_is(&verified.open(&path).unwrap().read::<PVec<u64>>("v").unwrap(), 19);
}

#[test]
fn a_full_log_with_a_reader_can_be_refused_and_nothing_is_lost() {
    let (path, _directory) = store_of_zeros();
    let mut writer = Writer::start(&path, "refuse");
    let store = Store::open(&path).unwrap();
    writer.tell("commit 1");
    let snapshot = store.read::<PVec<u64>>("v").unwrap();
    let full = (2..20).find(|n| writer.tell(&format!("commit {n}")) == "log full").unwrap();
    assert_eq!(writer.tell(&format!("commit {full}")), "log full");
    assert_is(&snapshot, 1);
    let snapshot = snapshot.refresh().unwrap();
    assert_is(&snapshot, full - 1);
    drop(snapshot);
    // The changes are still there, and can be committed now that there is no reader.
    assert_eq!(writer.tell(&format!("commit {full}")), "committed");
    let snapshot = store.read::<PVec<u64>>("v").unwrap();
    assert_is(&snapshot, full);
    writer.close();
}

#[test]
#[ignore = "a child"]
fn child_commits_as_fast_as_it_can() {
    let (Some(path), Some(settings)) = (argument(0), argument(1)) else { return };
    let store = Store::open(&path).unwrap();
    let mut number = 0;
    loop {
        let mut session = store.write_with::<PVec<u64>>("v", &settings_named(&settings)).unwrap();
        for _ in 0..25 {
            number += 1;
            session.root_mut().as_mut_slice().fill(number);
            session.commit().unwrap();
            if number == 1 {
                println!("\n> started");
            }
        }
        session.close().unwrap();
    }
}

#[test]
fn readers_that_arrive_at_any_moment_see_one_commit_and_never_an_older_one() {
    for settings in ["", "small log", "keep nothing", "interval"] {
        let (path, _directory) = store_of_zeros();
        let mut process =
            child("child_commits_as_fast_as_it_can", &[path.to_str().unwrap(), settings]);
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        while line.trim() != "> started" {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "the writer ended early");
        }
        let store = Store::open(&path).unwrap();
        let mut seen = 0;
        for round in 0..60 {
            let mut snapshot = store.read::<PVec<u64>>("v").unwrap();
            assert_is(&snapshot, snapshot[0]);
            assert!(snapshot[0] >= seen, "{} after {seen}", snapshot[0]);
            if round % 3 == 0 {
                std::thread::sleep(Duration::from_millis(1));
                assert_is(&snapshot, snapshot[0]);
                snapshot = snapshot.refresh().unwrap();
                assert_is(&snapshot, snapshot[0]);
            }
            seen = snapshot[0];
        }
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(seen > 0, "the writer made no commit");
        let session = store.write::<PVec<u64>>("v").unwrap();
        assert_is(&session, session[0]);
        assert!(session[0] >= seen);
    }
}

/// Returns the number of page faults of this thread until now.
fn faults() -> i64 {
    // SAFETY: the call fills the value before it is read.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    usage.ru_minflt + usage.ru_majflt
}

#[test]
fn a_warm_snapshot_is_read_without_page_faults() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create_new(directory.path().join("store")).unwrap();
    let numbers = 2 << 20;
    store.create::<PVec<u64>, _>("v", (0..numbers).collect::<Vec<u64>>()).unwrap();
    drop(store);
    let store = Store::open(directory.path().join("store")).unwrap();
    let snapshot = store.read::<PVec<u64>>("v").unwrap();
    snapshot.warm().unwrap();
    let before = faults();
    assert_eq!(snapshot.iter().sum::<u64>(), numbers * (numbers - 1) / 2);
    let taken = faults() - before;
    // 4096 pages; if each fault mapped sixteen of them, there would be 256 faults.
    assert!(taken < 16, "{taken} page faults");
    drop(snapshot);
    // Later commits of a writer, which are only in its log, are prefaulted too.
    let mut writer = Writer::start(&directory.path().join("store"), "");
    writer.tell("commit 7");
    let snapshot = store.read::<PVec<u64>>("v").unwrap();
    snapshot.warm().unwrap();
    let before = faults();
    assert_is(&snapshot, 7);
    let taken = faults() - before;
    assert!(taken < 16, "{taken} page faults");
    drop(snapshot);
    writer.close();
}
