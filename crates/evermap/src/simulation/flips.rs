//! Every flipped bit of page 0 and of a log is an error, or changes nothing.
//!
//! Each scene is an object with its log, as its last user left it. A bit is flipped, the object is
//! opened as every reader and every check does, and the bit is flipped back. What comes out is the
//! newest state or a typed error. The one exception is the one that [`Vouched`] states.

use std::sync::Arc;

use bytemuck::{bytes_of, pod_read_unaligned};

use super::platter::Medium;
use super::random::Random;
use super::runner::Step::{self, *};
use super::runner::{Choice, Runner, fresh_image};
use super::state::Edit;
use super::subject::{LOG, OBJECT, Worker};
use super::vouched::{Vouched, progress_at};
use crate::commit::seal_progress;
use crate::error::Error;
use crate::format::{
    KIND_CATALOG, KIND_OBJECT, LOG_RECORDS_OFFSET, LOG_REQUIRED, LOG_REQUIRED_OFFSET, LogProgress,
    PAGE_BYTES, Superblock,
};
use crate::fuzzing::memory::MemoryFile;
use crate::mutate::{Mutant, without};
use crate::object::{Identity, Loaded, LogSource, read_superblock};
use crate::storage::{Boot, File, OpenMode};
use crate::{PVec, Store};

/// An object and its log.
struct Scene {
    name: &'static str,
    object: Vec<u8>,
    /// Empty when there is none.
    log: Vec<u8>,
    kind: u32,
}

/// When the object is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// In the run of the machine in which the log was written.
    SameRun,
    /// In another one, with the log as it was.
    AfterRestart,
    /// In another one, and the power cut took the progress.
    ProgressLost,
}

const WHENS: [When; 3] = [When::SameRun, When::AfterRestart, When::ProgressLost];
const OTHER_RUN: Boot = Boot([0xb0; 16]);

/// What an opening found: page 0 and the lines that the log adds.
type State = (Vec<u8>, Vec<(u64, u64, Vec<u8>)>);

/// Files of a scene that a flip changes and changes back.
struct Opened<'s> {
    scene: &'s Scene,
    when: When,
    object: Arc<MemoryFile>,
    log: Arc<MemoryFile>,
    newest: State,
    vouched: Vouched,
    records: Vec<usize>,
    /// By the number of records that a power cut may have left, the state then. An error where the
    /// object file has more.
    older: Vec<Option<State>>,
}

impl Opened<'_> {
    fn new(scene: &Scene, when: When) -> Opened<'_> {
        let mut log = scene.log.clone();
        let at = progress_at(&log);
        let own = at.map(|at| pod_read_unaligned::<LogProgress>(&log[at..at + 64]));
        let boot = match (when, own) {
            (When::SameRun, Some(progress)) => Boot(progress.boot),
            _ => OTHER_RUN,
        };
        if let (When::ProgressLost, Some(at), Some(own)) = (when, at, own) {
            let lost = seal_progress(own.salt, Boot(own.boot), 0, 0);
            log[at..at + 64].copy_from_slice(bytes_of(&lost));
        }
        let vouched = Vouched::of(&log, boot, Medium::DISK);
        let records = vouched.starts();
        let object = MemoryFile::of_run("object", &scene.object, boot);
        let log = MemoryFile::of_run("log", &log, boot);
        let (newest, older) = ((Vec::new(), Vec::new()), Vec::new());
        let mut opened = Opened { scene, when, object, log, newest, vouched, records, older };
        opened.newest = opened.open().unwrap();
        if when == When::ProgressLost {
            opened.older = opened.records.iter().map(|at| opened.ending_at(*at)).collect();
            let is_needed = !opened.newest.1.is_empty();
            assert!(!is_needed || !opened.older.contains(&Some(opened.newest.clone())));
        }
        opened
    }

    /// The state when the log ends there.
    fn ending_at(&self, at: usize) -> Option<State> {
        let length = self.log.length().unwrap() as usize;
        let kept = self.log.replace(at as u64, &vec![0; length - at]);
        let state = self.open().ok();
        self.log.replace(at as u64, &kept);
        state
    }

    /// Opens the object, as reading, writing and checking it begin.
    fn open(&self) -> Result<State, Error> {
        let log: Arc<dyn File> = self.log.clone();
        let identity = Identity { store_uuid: None, object_uuid: None, kind: self.scene.kind };
        let Loaded { superblock, overlay, .. } =
            read_superblock(&*self.object, LogSource::File(&log), &identity)?;
        let lines = overlay.page_numbers().into_iter().map(|number| {
            let (mask, lines) = overlay.lines(number).unwrap();
            (number, mask, lines.to_vec())
        });
        Ok((bytes_of(&*superblock).to_vec(), lines.collect()))
    }

    /// Judges what an opening found.
    fn judge(&self, damaged: &Damage) -> Result<(), String> {
        let says = |what: &str| {
            let (name, when) = (self.scene.name, self.when);
            Err(format!("{name}, {when:?}, {damaged:?}: {what}"))
        };
        match self.open() {
            Err(Error::Damaged { .. } | Error::Foreign { .. } | Error::NewerFormat { .. }) => {
                Ok(())
            }
            Err(Error::LogMissing { .. }) => Ok(()),
            Err(other) => says(&format!("an error that does not speak of damage: {other}")),
            Ok(state) if state == self.newest => Ok(()),
            Ok(state) if self.is_excused(damaged, &state) => Ok(()),
            Ok(_) => says("another state, without an error"),
        }
    }

    /// Is it the state that the exception leaves?
    fn is_excused(&self, damaged: &Damage, state: &State) -> bool {
        let Damage::Log { at, bytes, is_bit } = damaged else { return false };
        let kept = self.vouched.silent_end(&(*at..at + bytes), *is_bit);
        kept.is_some_and(|kept| self.older.get(kept).is_some_and(|s| s.as_ref() == Some(state)))
    }

    fn flip(&self, flip: &Flip) -> Result<(), String> {
        let (file, at) = match flip.damage {
            Damage::Object { at } => (&self.object, at),
            Damage::Log { at, .. } => (&self.log, at),
            Damage::Several => return Ok(()),
        };
        let mut byte = [0];
        file.read_at(&mut byte, at as u64).unwrap();
        file.write_at(&[byte[0] ^ (1 << flip.bit)], at as u64).unwrap();
        let judged = self.judge(&flip.damage);
        file.write_at(&byte, at as u64).unwrap();
        judged.map_err(|why| format!("bit {}: {why}", flip.bit))
    }

    /// Damages a part of the log, judges, and mends it.
    fn overwrite(&self, at: usize, bytes: &[u8]) -> Result<(), String> {
        let kept = self.log.replace(at as u64, bytes);
        let judged = self.judge(&Damage::Log { at, bytes: bytes.len(), is_bit: false });
        self.log.replace(at as u64, &kept);
        judged.map_err(|why| format!("{} bytes: {why}", bytes.len()))
    }
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Object {
        at: usize,
    },
    Log {
        at: usize,
        bytes: usize,
        is_bit: bool,
    },
    /// A bit in each of several records.
    Several,
}

#[derive(Clone, Copy, Debug)]
struct Flip {
    damage: Damage,
    bit: u8,
}

/// Where the records of the newest generation are.
fn records_of(log: &[u8]) -> Vec<usize> {
    Vouched::of(log, OTHER_RUN, Medium::DISK).starts()
}

/// Bits to flip: of page 0 every one; of a log every one of headers, heads, padding, and of the first
/// and last 4 KiB of records; one of every other 64 bytes.
fn flips_of(scene: &Scene) -> Vec<Flip> {
    let mut flips = Vec::new();
    let all = |damage: Damage, flips: &mut Vec<Flip>| {
        flips.extend((0..8).map(|bit| Flip { damage, bit }));
    };
    (0..PAGE_BYTES as usize).for_each(|at| all(Damage::Object { at }, &mut flips));
    let records = records_of(&scene.log);
    let ends = records.iter().skip(1).copied().chain([scene.log.len()]);
    let mut close = vec![(0, LOG_RECORDS_OFFSET as usize)];
    for (start, end) in records.iter().copied().zip(ends) {
        close.extend([(start, start + 4096 + 128), (end.saturating_sub(4096), end)]);
    }
    for at in 0..scene.log.len() {
        let damage = Damage::Log { at, bytes: 1, is_bit: true };
        if close.iter().any(|(start, end)| (*start..*end).contains(&at)) {
            all(damage, &mut flips);
        } else if at % 64 == 0 {
            flips.push(Flip { damage, bit: (at / 64 % 8) as u8 });
        }
    }
    flips
}

/// A scene out of a simulated program.
fn simulated(name: &'static str, steps: &[Step]) -> Scene {
    let worker = Worker::new();
    let mut runner = Runner::new(&worker, fresh_image(Medium::DISK), 5);
    runner.run(steps).unwrap();
    let (object, log) = files_of(&runner);
    Scene { name, object, log, kind: KIND_OBJECT }
}

/// The object and its log.
fn files_of(runner: &Runner<'_>) -> (Vec<u8>, Vec<u8>) {
    let storage = runner.disk.storage();
    let read = |path: &str| {
        let opened = storage.open(path.as_ref(), OpenMode::Read);
        opened.map_or_else(|_| Vec::new(), |file| contents(&*file))
    };
    (read(OBJECT), read(LOG))
}

fn contents(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// Scenes out of a store's files: its catalog, a guest object, one without a root.
fn stored() -> Vec<Scene> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = Store::create_new(&path).unwrap();
    store.create_raw("raw").unwrap();
    store.create::<PVec<u64>, _>("numbers", [1, 2, 3]).unwrap();
    let window = crate::guest::GuestWindow::default();
    let addresses: Arc<dyn crate::guest::GuestAddresses> = Arc::new(FirstAddresses);
    store.create_guest("guest", window, &addresses, 0).unwrap();
    let mut session = store.write::<PVec<u64>>("numbers").unwrap();
    for number in 0..5 {
        session.root_mut().push(number).unwrap();
        session.commit().unwrap();
    }
    let read = |path: &std::path::Path| std::fs::read(path).unwrap_or_default();
    let mut scenes = vec![Scene {
        name: "catalog",
        object: read(&path.join("catalog")),
        log: read(&path.join("catalog.log")),
        kind: KIND_CATALOG,
    }];
    for entry in std::fs::read_dir(path.join("objects")).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some() {
            continue;
        }
        let object = read(&file);
        let superblock: Superblock = pod_read_unaligned(&object[..PAGE_BYTES as usize]);
        let name = match superblock.name().as_str() {
            "raw" => "object without a root",
            "guest" => "guest object",
            _ => "object with a vector",
        };
        scenes.push(Scene {
            name,
            object,
            log: read(&file.with_extension("log")),
            kind: KIND_OBJECT,
        });
    }
    assert_eq!(scenes.len(), 4);
    scenes
}

struct FirstAddresses;

impl crate::guest::GuestAddresses for FirstAddresses {
    fn lease(&self, _bytes: u64) -> crate::Result<u64> {
        Ok(0x1000_0000)
    }
}

const MAKE: Step = Make { room: 64 * 1024 };
const SAME: Step = Change(Edit::SameLine);
const FEW: Step = Change(Edit::Lines { blocks: 2, lines: 2 });
const ALL: Step = Change(Edit::Everything);

fn closed() -> Scene {
    let steps = [MAKE, OpenWith(Choice::KeepLog), FEW, Commit, Close];
    simulated("closed object with a kept log", &steps)
}

fn small_records() -> Scene {
    let steps = [
        MAKE, Open, FEW, Commit, FEW, Commit, Checkpoint, SAME, Commit, FEW, Commit, SAME, Commit,
        FEW, Commit,
    ];
    simulated("small records", &steps)
}

fn large_records() -> Scene {
    let gain = Change(Edit::Gain { blocks: 24, bytes: 100 * 1024 });
    let make = Make { room: 4 << 20 };
    let steps = [make, Open, gain, Commit, ALL, Commit, ALL, Commit, ALL, Commit];
    simulated("records of 2.4 MB", &steps)
}

/// A log that an earlier build made and this one emptied and wrote to, beside a file of which a power
/// cut left the state before.
fn emptied_by_this_build() -> Scene {
    let worker = Worker::new();
    let mut runner = Runner::new(&worker, fresh_image(Medium::DISK), 5);
    let steps = [MakePermanent { room: 64 * 1024 }];
    without(&[Mutant::EarlierFormat], || runner.run(&steps)).unwrap();
    let mut runner = runner.moved_to_another_process();
    let (mut object, _) = files_of(&runner);
    runner.run(&[Open, SAME, Commit]).unwrap();
    let (_, log) = files_of(&runner);
    let code_at = LOG_REQUIRED_OFFSET as usize;
    object[code_at..code_at + 4].copy_from_slice(&LOG_REQUIRED.to_le_bytes());
    Scene { name: "emptied by this build", object, log, kind: KIND_OBJECT }
}

/// Six kinds of objects, and logs of small records and of records of 2.4 MB.
fn scenes() -> Vec<Scene> {
    let mut scenes = vec![closed(), small_records(), large_records(), emptied_by_this_build()];
    scenes.extend(stored());
    assert!(scenes.iter().any(|scene| scene.log.len() > 7 << 20));
    scenes
}

/// Tries a share of all flips, evenly spread: of scenes with large logs fewer, for each opening reads
/// all of them.
fn try_flips(wanted: Option<usize>) -> usize {
    let seed = super::first_seed();
    println!("EVERMAP_SIM_SEED={seed}");
    let mut random = Random::of(&[seed, 0xf11b]);
    let scenes = scenes();
    let is_large = |scene: &Scene| scene.log.len() > 1 << 20;
    let small = scenes.iter().filter(|scene| !is_large(scene)).count() * WHENS.len();
    let mut tried = 0;
    for scene in &scenes {
        let flips = flips_of(scene);
        for when in WHENS {
            let opened = Opened::new(scene, when);
            let share = wanted.map_or(flips.len(), |all| match is_large(scene) {
                true => all / 200,
                false => all.div_ceil(small),
            });
            let step = (flips.len() / share.max(1)).max(1);
            for flip in flips.iter().skip(random.below(step)).step_by(step) {
                opened.flip(flip).unwrap();
                tried += 1;
            }
        }
    }
    println!("{tried} flips");
    tried
}

#[test]
fn a_flipped_bit_of_page_0_or_a_log_is_an_error_or_changes_nothing() {
    assert!(try_flips(Some(100_000)) >= 100_000);
}

#[test]
#[ignore = "takes many minutes; `make test-long` runs it"]
fn every_flipped_bit_of_page_0_and_of_logs_is_an_error_or_changes_nothing() {
    assert!(try_flips(None) > 1_000_000);
}

/// Damage of many bits to one record, and one bit in each of several.
#[test]
fn noise_and_zeros_on_heads_and_bits_in_several_records_are_errors() {
    let mut random = Random::of(&[super::first_seed(), 0x4015e]);
    let scenes = scenes();
    for scene in scenes.iter().filter(|scene| !records_of(&scene.log).is_empty()) {
        for when in WHENS {
            let opened = Opened::new(scene, when);
            for (number, at) in opened.records.iter().enumerate() {
                for bytes in [512, 4096] {
                    let bytes = bytes.min(scene.log.len() - at);
                    let noise: Vec<u8> = (0..bytes).map(|_| random.next() as u8).collect();
                    opened.overwrite(*at, &noise).unwrap();
                    opened.overwrite(*at, &vec![0; bytes]).unwrap();
                }
                // One bit in each record from here on, the last one excepted.
                let several = &opened.records[number..opened.records.len() - 1];
                for behind in [8, 41, 520] {
                    let flip = |at: usize| {
                        let mut byte = [0];
                        opened.log.read_at(&mut byte, at as u64).unwrap();
                        opened.log.write_at(&[byte[0] ^ 0x10], at as u64).unwrap();
                    };
                    let inside = several.iter().map(|at| at + behind);
                    inside.clone().for_each(flip);
                    let judged = opened.judge(&Damage::Several);
                    inside.for_each(flip);
                    judged.unwrap();
                }
            }
        }
    }
}

/// Damage to the log of a closed object harms nobody: it is not needed.
#[test]
fn a_kept_log_of_a_closed_object_is_never_damage() {
    let scenes = scenes();
    let scene = scenes.iter().find(|scene| scene.name.contains("kept log")).unwrap();
    assert!(!records_of(&scene.log).is_empty());
    let opened = Opened::new(scene, When::SameRun);
    for flip in flips_of(scene).iter().step_by(97) {
        if let Damage::Log { at, .. } = flip.damage {
            let at = at.min(scene.log.len() - 64);
            let kept = opened.log.replace(at as u64, &[0xff; 64]);
            assert!(opened.open().unwrap() == opened.newest, "byte {at}");
            opened.log.replace(at as u64, &kept);
        }
    }
}

/// Safeguards of which a flip tells that they are missing.
const OF_FLIPS: &[Mutant] = &[
    Mutant::ProgressIgnored,
    Mutant::ProgressNotWritten,
    Mutant::LaterHeadsIgnored,
    Mutant::DamagedHeadIsAnEnd,
    Mutant::RootChecksumIgnored,
    Mutant::LogRequiredCodesIgnored,
    Mutant::OldHeaderKept,
];

#[test]
fn every_safeguard_against_flips_is_missed_by_a_flip() {
    for mutant in OF_FLIPS {
        let missed = without(std::slice::from_ref(mutant), || {
            [closed(), small_records(), emptied_by_this_build()].iter().any(|scene| {
                WHENS.iter().any(|when| {
                    let opened = Opened::new(scene, *when);
                    flips_of(scene).iter().any(|flip| opened.flip(flip).is_err())
                })
            })
        });
        assert!(missed, "{mutant:?} is not missed");
    }
}
