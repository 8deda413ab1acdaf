//! Hosts that are killed (SIGKILL) while their guests commit and grow: the next guest finds a commit, the
//! last one that was said to be durable or the one that was being made, whole at both ends.
//!
//! The host is a process of its own, this test's program started again. It writes a line for each commit;
//! some time after the first of these it is killed. `EVERMAP_KILLS` says how often, `EVERMAP_SEED` takes a seed.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::chance::{Random, number};
use common::{DATA, Fixture, Machine, key_of, module};
use evermap_wasm::{GuestOptions, Sandbox};

const STORE: &str = "EVERMAP_KILLS_STORE";
/// Every some commits the child asks for this much more each time.
const GROWTH: &str = "EVERMAP_KILLS_GROWTH_BYTES";
const KILLS: u64 = 25;
/// After these a test goes on with a new store: growth from little is a part of what is tested.
const KILLS_A_STORE: u64 = 5;
const WRITE: u32 = 3;
const SNAPSHOT: u32 = 1;
/// The second counter, and the bytes that reach as far.
const FAR: u32 = 3 << 20;
const DATA_BYTES: u32 = FAR + 65536;
/// That often.
const COMMITS_A_GROWTH: u32 = 5;
/// So far a guest lets its object grow.
const DATA_BYTES_MAX: u32 = 40 << 20;

/// One step: both counters and, between them, some pages whose number is the step's.
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

/// A guest that has the object mapped.
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
        let base = machine.map_well(if level == WRITE { DATA_BYTES } else { 0 }, level);
        Counter { machine, base }
    }

    fn near(&self) -> u32 {
        self.base + DATA
    }

    fn step(&mut self) -> u32 {
        let near = self.near();
        self.machine.call("step", (near, near + FAR)).unwrap()
    }

    /// The number of the commit that it has, whole.
    fn number(&mut self) -> u32 {
        let near = self.near();
        let count = self.machine.load(near);
        assert_eq!(self.machine.load(near + FAR), count, "the two ends are of two commits");
        if count > 0 {
            for page in 1..2 + count % 40 {
                let found = self.machine.load(near + page * 4096);
                assert_eq!(found, count, "page {page} is of another commit");
            }
        }
        count
    }
}

/// The host that will be killed: counts for ever.
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
            assert_eq!(counter.machine.map_well(bytes, WRITE), base);
        }
        assert_eq!(counter.machine.commit(counter.base), 1);
        // One write of one line, so that no kill leaves half of it.
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

/// Kills the host at some time after some line: the last number that it said.
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
    // Sometimes while it still opens.
    let lines = if random.one_in(6) { 0 } else { 1 + random.below(60) };
    for _ in 0..lines {
        assert!(read_line(&mut last), "the host ended by itself after {last:?}");
    }
    let pause_us = if lines == 0 { random.below(60_000) } else { random.below(3_000) };
    std::thread::sleep(Duration::from_micros(pause_us));
    host.kill().unwrap();
    while read_line(&mut last) {}
    let status = host.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGKILL), "the host ended by itself");
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
        // Who only looks sees it too, before anybody has recovered it.
        let levels = if random.one_in(2) { [SNAPSHOT, WRITE] } else { [WRITE, SNAPSHOT] };
        for level in levels {
            let found = Counter::open(&fixture.sandbox, level).number();
            // The one that was being made when it was killed, at most.
            assert!(found == said || found == said + 1, "{found} where {said} was said");
            commits_unsaid += found - said;
            said = found;
        }
        fixture.assert_sound();
    }
    println!("{said} commits; of {commits_unsaid} nobody had been told");
    let mut counter = Counter::open(&fixture.sandbox, WRITE);
    assert_eq!(counter.step(), said + 1);
    assert_eq!(counter.machine.commit(counter.base), 1);
    drop(counter);
    fixture.assert_sound();
}

#[test]
fn the_last_commit_outlives_its_host() {
    kill_many("kills", 0);
}

#[test]
fn the_last_commit_outlives_a_host_that_is_killed_while_its_guest_grows() {
    kill_many("kills while growing", 1 << 20);
}
