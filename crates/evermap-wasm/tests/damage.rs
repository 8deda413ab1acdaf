//! Damaged object files, and objects that their guest has overwritten with noise. A guest that
//! opens one gets a code or some memory, the host continues, and other guests are unaffected.
//!
//! Each case runs many rounds in a child process of this test program, so that a signal is seen
//! together with the round's seed. `EVERMAP_SEED` sets the first seed, `EVERMAP_ROUNDS` the number
//! of rounds; the seed increases by one per round.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "damage/mutation.rs"]
mod mutation;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::random::{Random, number};
use common::{DATA, Fixture, Machine, key_of, module};
use evermap::tools::{CheckOptions, check};
use evermap_wasm::{Application, Code, GuestOptions, Module, SandboxOptions};

const CASE: &str = "EVERMAP_DAMAGE_CASE";
const TABLE: &str = "sandbox.access";
const ROUNDS: u64 = 120;
const SNAPSHOT: u32 = 1;
const READ: u32 = 2;
const WRITE: u32 = 3;
const OUT: u32 = 0x5000_1000;
/// Offsets in page 0 of the root's address and bytes, and of the lengths of name and description.
const ROOT_AT: u32 = 104;
const LENGTHS_AT: u32 = 168;

const BODY: &str = r#"
    (func (export "sum") (param $at i32) (param $bytes i32) (result i64)
        (local $end i32) (local $sum i64)
        (local.set $end (i32.add (local.get $at) (local.get $bytes)))
        (block $out (loop $next
            (br_if $out (i32.ge_u (local.get $at) (local.get $end)))
            (local.set $sum (i64.add (local.get $sum) (i64.load (local.get $at))))
            (local.set $at (i32.add (local.get $at) (i32.const 8)))
            (br $next)))
        (local.get $sum))
    ;; Noise from a seed.
    (func (export "scribble") (param $at i32) (param $bytes i32) (param $seed i64)
        (local $end i32)
        (local.set $end (i32.add (local.get $at) (local.get $bytes)))
        (block $out (loop $next
            (br_if $out (i32.ge_u (local.get $at) (local.get $end)))
            (local.set $seed (i64.xor (local.get $seed) (i64.shl (local.get $seed) (i64.const 13))))
            (local.set $seed (i64.xor (local.get $seed) (i64.shr_u (local.get $seed) (i64.const 7))))
            (local.set $seed (i64.xor (local.get $seed) (i64.shl (local.get $seed) (i64.const 17))))
            (i64.store (local.get $at) (local.get $seed))
            (local.set $at (i32.add (local.get $at) (i32.const 8)))
            (br $next))))"#;

fn refused(code: Code) -> i32 {
    -(code as i32)
}

/// An object's files: the object, and its log if a killed writer left one.
#[derive(Clone)]
struct Files {
    object: Vec<u8>,
    log: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Region {
    base: u32,
    bytes: u32,
    metadata_bytes: u32,
    checksums: u32,
}

/// A store with an object of two regions to damage, and a guest that has mapped another object.
struct Scene {
    fixture: Fixture,
    application: Application,
    module: Module,
    path: PathBuf,
    /// The access table, restored in each round: addresses are assigned for good, and thousands of
    /// rounds would use them up.
    table: Vec<u8>,
    bystander: Machine,
    bystanders_base: u32,
    closed: Files,
    killed: Files,
    /// Results of guests' calls, and how often each occurred.
    told: BTreeMap<String, u32>,
}

impl Scene {
    fn new(options: SandboxOptions) -> Scene {
        let fixture = Fixture::in_memory(options);
        let application = fixture.application("app");
        let module = fixture.sandbox.compile("damage", module(BODY).as_bytes()).unwrap();
        let other = fixture.sandbox.application("other".parse().unwrap(), key_of("other")).unwrap();
        let start = |application| {
            let guest = fixture.sandbox.start(&module, application, &GuestOptions::new());
            Machine(guest.unwrap())
        };
        let mut maker = start(&application);
        let base = maker.map_ok(65536, WRITE);
        assert_eq!(maker.map_ok(5 << 20, WRITE), base);
        let regions = regions_of(&mut maker, base);
        assert!(regions.len() > 1);
        for (seed, region) in (1i64..).zip(&regions) {
            let data = (region.base + region.metadata_bytes, 200_000u32, seed);
            maker.call::<_, ()>("scribble", data).unwrap();
            assert_eq!(maker.commit(base), 1);
        }
        let path = fixture.file_of("app:heap");
        let killed = Files::of(&path);
        assert!(killed.log.is_some());
        drop(maker);
        let closed = Files::of(&path);
        assert!(closed.log.is_none());
        let mut bystander = start(&other);
        let bystanders_base = bystander.map_ok(65536, WRITE);
        let told = BTreeMap::new();
        let table = fs::read(fixture.store().join(TABLE)).unwrap();
        Scene {
            fixture,
            application,
            module,
            path,
            table,
            bystander,
            bystanders_base,
            closed,
            killed,
            told,
        }
    }

    fn start(&self) -> Machine {
        let options = GuestOptions::new();
        Machine(self.fixture.sandbox.start(&self.module, &self.application, &options).unwrap())
    }

    /// Replaces the object's files by new ones, as a restored backup does.
    fn put(&self, files: &Files) {
        for (path, bytes) in [
            (self.path.clone(), Some(&files.object)),
            (self.path.with_extension("log"), files.log.as_ref()),
            (self.fixture.store().join(TABLE), Some(&self.table)),
        ] {
            let _ = fs::remove_file(&path);
            bytes.inspect(|bytes| fs::write(&path, bytes).unwrap());
        }
    }

    fn count(&mut self, what: impl Into<String>) {
        *self.told.entry(what.into()).or_default() += 1;
    }

    /// Maps the object in a guest, reads all of it and, at level *write*, changes it.
    fn open(&mut self, level: u32) {
        let mut guest = self.start();
        let base = guest.map(0, level);
        if base < 0 {
            let expected = [Code::Damaged, Code::OtherKind, Code::Denied];
            let words = guest.message();
            assert!(expected.map(refused).contains(&base), "level {level}: {base}: {words}");
            assert!(!words.is_empty());
            self.count(format!("map at level {level}: {base}"));
            return;
        }
        self.count(format!("map at level {level}: ok"));
        let base = base as u32;
        let regions = regions_of(&mut guest, base);
        for region in &regions {
            guest.call::<_, i64>("sum", (region.base, region.bytes)).unwrap();
        }
        // A log that lost records ends with an older commit. The first commit has no data.
        let with_data = regions.iter().rfind(|region| region.bytes > region.metadata_bytes);
        if let (WRITE, Some(last)) = (level, with_data) {
            self.change(&mut guest, base, last);
        }
        assert_eq!(guest.unmap(base), 0);
    }

    fn change(&mut self, guest: &mut Machine, base: u32, last: &Region) {
        let at = last.base + last.bytes - 4;
        let value = guest.load(at);
        guest.store(at, !value);
        let committed = guest.commit(base);
        // A commit reports damage that it finds, and an invalid root.
        let expected = [1, refused(Code::Damaged), refused(Code::InvalidArgument)];
        assert!(expected.contains(&committed), "commit: {committed}: {}", guest.message());
        self.count(format!("commit: {committed}"));
        let grown = guest.map(20 << 20, WRITE);
        let expected = [base as i32, refused(Code::OutOfAddresses), refused(Code::Damaged)];
        assert!(expected.contains(&grown), "growth: {grown}: {}", guest.message());
        self.count(format!("growth: {}", grown.min(0)));
        let committed = guest.commit(base);
        assert!(committed > refused(Code::Io), "commit: {committed}: {}", guest.message());
        if committed == 1 {
            assert_eq!(guest.unmap(base), 0);
            assert_eq!(guest.map(0, WRITE), base as i32, "the committed object cannot be mapped");
            if grown > 0 {
                assert_eq!(guest.load(at), !value);
            }
        }
    }

    /// Opens the object at every level, checks it with the tools, and runs a guest of another
    /// application.
    fn try_everything(&mut self, random: &mut Random) {
        let mut levels = [SNAPSHOT, READ, WRITE];
        levels.swap(0, random.below(3) as usize);
        for level in levels {
            self.open(level);
            if random.one_in(2) {
                let report = check(self.fixture.store(), &CheckOptions::new());
                let said = report.map_or_else(
                    |error| format!("check: {error}").split(':').take(2).collect(),
                    |report| format!("check: damaged {}", report.is_damaged()),
                );
                self.count(said);
            }
        }
        let _ = self.fixture.sandbox.store().info("app:heap");
        let at = self.bystanders_base + DATA;
        let before = self.bystander.load(at);
        self.bystander.store(at, before + 1);
        assert_eq!(self.bystander.commit(self.bystanders_base), 1);
        let mut reader = self.start();
        assert_eq!(reader.load(at), 0, "data of another application are visible");
    }
}

impl Files {
    fn of(path: &Path) -> Files {
        let log = fs::read(path.with_extension("log")).ok();
        Files { object: fs::read(path).unwrap(), log }
    }
}

fn regions_of(guest: &mut Machine, base: u32) -> Vec<Region> {
    let bytes: i32 = guest.call("stat", (base, OUT, 4096u32)).unwrap();
    assert!(bytes >= 64 + 48, "{bytes}");
    let count = guest.load(OUT + 12);
    let at = |index| OUT + 64 + 48 * index;
    let mut word = |at: u32| guest.load(at);
    (0..count)
        .map(|index| Region {
            base: word(at(index)),
            bytes: word(at(index) + 16),
            metadata_bytes: word(at(index) + 32),
            checksums: word(at(index) + 40),
        })
        .collect()
}

/// Damages the object's files.
fn damage_files(options: SandboxOptions) {
    let mut scene = Scene::new(options);
    for_each_round(|random| {
        let mut files = if random.one_in(2) { scene.closed.clone() } else { scene.killed.clone() };
        let said = match &mut files.log {
            Some(_) if random.one_in(16) => {
                files.log = None;
                "log removed"
            }
            Some(log) if random.one_in(2) => mutation::damage_log(random, log),
            _ => mutation::damage_object(random, &mut files.object),
        };
        scene.count(said);
        scene.put(&files);
        scene.try_everything(random);
    });
    // The restored object works again.
    scene.put(&scene.closed);
    scene.open(WRITE);
    scene.fixture.assert_sound();
    println!("{:#?}", scene.told);
}

/// Runs guests that overwrite their object with noise and commit it.
fn scribble() {
    let mut scene = Scene::new(SandboxOptions::new());
    for_each_round(|random| {
        scene.put(&scene.closed);
        // Overwrites the result of the previous round.
        for _ in 0..=random.below(3) {
            let mut guest = scene.start();
            let base = guest.map(0, WRITE);
            if base == refused(Code::Damaged) {
                break;
            }
            assert!(base > 0, "{base}: {}", guest.message());
            scribble_once(random, &mut guest, base as u32);
            let committed = guest.commit(base as u32);
            let expected = [0, 1, refused(Code::Damaged), refused(Code::InvalidArgument)];
            assert!(expected.contains(&committed), "{committed}: {}", guest.message());
            scene.count(format!("scribbled: {committed}"));
            drop(guest);
        }
        scene.try_everything(random);
    });
    scene.put(&scene.closed);
    scene.open(WRITE);
    scene.fixture.assert_sound();
    println!("{:#?}", scene.told);
}

/// Overwrites a part of an object, or all of it, with noise.
fn scribble_once(random: &mut Random, guest: &mut Machine, base: u32) {
    let regions = regions_of(guest, base);
    let root = [ROOT_AT, ROOT_AT + 4, ROOT_AT + 8, ROOT_AT + 12, LENGTHS_AT].map(|at| base + at);
    let kept = root.map(|at| guest.load(at));
    let what = random.below(5);
    for region in &regions {
        let Region { base, bytes, metadata_bytes, checksums } = *region;
        let (at, bytes) = match what {
            0 => (base, 4096),
            1 => (base, metadata_bytes),
            2 if checksums != 0 => (checksums, base + metadata_bytes - checksums),
            3 => (base + metadata_bytes, bytes - metadata_bytes),
            _ => (base, bytes),
        };
        guest.call::<_, ()>("scribble", (at, bytes, random.number() as i64 | 1)).unwrap();
    }
    // An invalid root prevents the commit, so the root is mostly restored.
    if !random.one_in(4) {
        for (at, value) in root.into_iter().zip(kept) {
            guest.store(at, value);
        }
    }
}

fn for_each_round(mut round: impl FnMut(&mut Random)) {
    let seed = number("EVERMAP_SEED").unwrap();
    for index in 0..number("EVERMAP_ROUNDS").unwrap_or(ROUNDS) {
        println!("EVERMAP_SEED={}", seed + index);
        round(&mut Random::new(seed + index));
    }
}

#[test]
fn one_case_in_a_child_process() {
    let Ok(case) = std::env::var(CASE) else { return };
    match case.as_str() {
        "copies" => damage_files(SandboxOptions::new()),
        "pages" => damage_files(SandboxOptions::new().read_only_pages(true)),
        "scribble" => scribble(),
        other => panic!("{other}"),
    }
}

fn in_child_process(case: &str) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = number("EVERMAP_SEED").unwrap_or(now.as_micros() as u64);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "one_case_in_a_child_process", "--nocapture"])
        .env(CASE, case)
        .env("EVERMAP_SEED", seed.to_string())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let last_seed = out.lines().rfind(|line| line.contains("EVERMAP_SEED")).unwrap_or("none");
    assert!(output.status.success(), "{case}, {last_seed}: {}\n{out}\n{err}", output.status);
    println!("{out}");
}

#[test]
fn the_host_survives_damaged_objects() {
    in_child_process("copies");
}

#[test]
fn the_host_survives_damaged_objects_in_read_only_pages() {
    in_child_process("pages");
}

#[test]
fn a_guest_that_overwrites_its_object_harms_no_other() {
    in_child_process("scribble");
}
