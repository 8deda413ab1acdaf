//! Hosts killed with SIGKILL while their guests commit and grow. The next guest must find one whole
//! commit: the last one reported as durable, or the one in progress.
//!
//! The host is a child process of this test program. It prints a line for each commit and is killed
//! some time after the first one. `EVERMAP_KILLS` sets the number of kills, `EVERMAP_SEED` the
//! seed.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::random::{Random, number};
use common::{DATA, Fixture, Machine, key_of, module};
use evermap_wasm::{GuestOptions, Sandbox};

const STORE: &str = "EVERMAP_KILLS_STORE";
/// Bytes by which the child grows the object every few commits.
const GROWTH: &str = "EVERMAP_KILLS_GROWTH_BYTES";
const KILLS: u64 = 25;
/// Number of kills after which the test uses a new store, so that growth from a small object is
/// tested, too.
const KILLS_A_STORE: u64 = 5;
const WRITE: u32 = 3;
const SNAPSHOT: u32 = 1;
/// Offset of the second counter, and the bytes up to its end.
const FAR: u32 = 3 << 20;
const DATA_BYTES: u32 = FAR + 65536;
/// Default number of kills.
const COMMITS_A_GROWTH: u32 = 5;
/// Size at which a guest stops growing its object.
const DATA_BYTES_MAX: u32 = 40 << 20;

/// One step: stores its number in both counters and in some pages between them.
const BODY: &str = r#"
    (func (export "step") (param $near i32) (param $far i32) (result i32) (local $count i32) (local $at i32)
        (local.set $count (i32.add (i32.load (local.get $near)) (i32.const 1)))
        (i32.store (local.get $near) (local.get $count))
        (local.set $at (i32.add (local.get $near) (i32.const 4096)))
        (loop $next
            (i32.store (local.get $at) (local.get $count))
            (local.set $at (i32.add (local.get $at) (i32.const 4096)))
            (br_if $next (i32.lt_u (local.get $at)
                (i32.add (local.get $near) (i32.mul (i32.const 4096)
                    (i32.add (i32.const 2) (i32.rem_u (local.get $count) (i32.const 40))))))))
        (i32.store (local.get $far) (local.get $count))
        (local.get $count))"#;

/// A guest with the mapped object.
struct Counter {
    machine: Machine,
    base: u32,
}

impl Counter {
    fn open(sandbox: &Sandbox, level: u32) -> Counter {
        let application = sandbox.application("app".parse().unwrap(), key_of("app")).unwrap();
        let module = sandbox.compile("counter", module(BODY).as_bytes()).unwrap();
        let guest = sandbox.start(&module, &application, &GuestOptions::new()).unwrap();
        let mut machine = Machine(guest);
        let base = machine.map_ok(if level == WRITE { DATA_BYTES } else { 0 }, level);
        Counter { machine, base }
    }

    fn near(&self) -> u32 {
        self.base + DATA
    }

    fn step(&mut self) -> u32 {
        let near = self.near();
        self.machine.call("step", (near, near + FAR)).unwrap()
    }

    /// Returns the number of the commit that it sees, and asserts that the commit is whole.
    fn number(&mut self) -> u32 {
        let near = self.near();
        let count = self.machine.load(near);
        assert_eq!(
            self.machine.load(near + FAR),
            count,
            "the two ends belong to different commits"
        );
        if count > 0 {
            for page in 1..2 + count % 40 {
                let found = self.machine.load(near + page * 4096);
                assert_eq!(found, count, "page {page} belongs to another commit");
            }
        }
        count
    }
}

/// The host to be killed: commits numbers in an endless loop.
#[test]
fn a_host_that_counts_until_it_is_killed() {
    let Some(store) = std::env::var_os(STORE) else { return };
    let growth_bytes = number(GROWTH).unwrap() as u32;
    let sandbox = Sandbox::open(store).unwrap();
    let mut counter = Counter::open(&sandbox, WRITE);
    let mut bytes = DATA_BYTES;
    loop {
        let count = counter.step();
        if growth_bytes > 0 && count.is_multiple_of(COMMITS_A_GROWTH) && bytes < DATA_BYTES_MAX {
            bytes += growth_bytes;
            let base = counter.base;
            assert_eq!(counter.machine.map_ok(bytes, WRITE), base);
        }
        assert_eq!(counter.machine.commit(counter.base), 1);
        // A single write, so that a kill never leaves half a line.
        std::io::stdout().write_all(format!("\ncommitted {count}\n").as_bytes()).unwrap();
        std::io::stdout().flush().unwrap();
    }
}

fn start_host(store: &Path, growth_bytes: u32) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_host_that_counts_until_it_is_killed", "--nocapture"])
        .env(STORE, store)
        .env(GROWTH, growth_bytes.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Kills the host at a random time after a random line. Returns the last number that it printed.
fn kill(mut host: Child, random: &mut Random) -> Option<u32> {
    let mut output = BufReader::new(host.stdout.take().unwrap());
    let mut last = None;
    let mut read_line = |last: &mut Option<u32>| {
        let mut line = String::new();
        let more = output.read_line(&mut line).unwrap() > 0;
        if let Some(count) = line.strip_prefix("committed ") {
            *last = Some(count.trim().parse().unwrap());
        }
        more
    };
    // Sometimes during the opening.
    let lines = if random.one_in(6) { 0 } else { 1 + random.below(60) };
    for _ in 0..lines {
        assert!(read_line(&mut last), "the host ended on its own after {last:?}");
    }
    let pause_us = if lines == 0 { random.below(60_000) } else { random.below(3_000) };
    std::thread::sleep(Duration::from_micros(pause_us));
    host.kill().unwrap();
    while read_line(&mut last) {}
    let status = host.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGKILL), "the host ended on its own");
    last
}

fn kill_many(what: &str, growth_bytes: u32) {
    let mut random = Random::from_environment(what);
    let mut left = number("EVERMAP_KILLS").unwrap_or(KILLS);
    while left > 0 {
        let kills = left.min(KILLS_A_STORE);
        kill_in_a_store(&mut random, growth_bytes, kills);
        left -= kills;
    }
}

fn kill_in_a_store(random: &mut Random, growth_bytes: u32, kills: u64) {
    let fixture = Fixture::new();
    let (mut said, mut commits_unsaid) = (0, 0);
    Counter::open(&fixture.sandbox, WRITE);
    for _ in 0..kills {
        let host = start_host(fixture.store(), growth_bytes);
        said = kill(host, random).unwrap_or(said);
        // A reader sees it too, before a writer has recovered the object.
        let levels = if random.one_in(2) { [SNAPSHOT, WRITE] } else { [WRITE, SNAPSHOT] };
        for level in levels {
            let found = Counter::open(&fixture.sandbox, level).number();
            // At most the commit in progress at the kill.
            assert!(found == said || found == said + 1, "found {found}, reported {said}");
            commits_unsaid += found - said;
            said = found;
        }
        fixture.assert_sound();
    }
    println!("{said} commits, {commits_unsaid} of them not reported before the kill");
    let mut counter = Counter::open(&fixture.sandbox, WRITE);
    assert_eq!(counter.step(), said + 1);
    assert_eq!(counter.machine.commit(counter.base), 1);
    drop(counter);
    fixture.assert_sound();
}

#[test]
fn the_last_commit_survives_a_kill_of_its_host() {
    kill_many("kills", 0);
}

#[test]
fn the_last_commit_survives_a_kill_during_growth() {
    kill_many("kills while growing", 1 << 20);
}
