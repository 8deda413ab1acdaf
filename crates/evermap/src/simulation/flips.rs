//! Each flipped bit of page 0 or of a log causes an error or changes nothing.
//!
//! Each scene is an object with its log, as its last process left it. The test flips a bit, opens
//! the object like a reader or a check, and flips the bit back. The result must be the newest state
//! or a typed error. [`ExcusedLoss`] defines the only exception.

use std::sync::Arc;

use bytemuck::{bytes_of, pod_read_unaligned};

use super::excused_loss::{ExcusedLoss, progress_at};
use super::random::Random;
use super::runner::Step::{self, *};
use super::runner::{Choice, Runner, fresh_image};
use super::state::Edit;
use super::subject::{LOG, OBJECT, Worker};
use super::versions::Medium;
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
    /// Empty if there is no log.
    log: Vec<u8>,
    kind: u32,
}

/// Boot in which the object is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BootState {
    /// The boot in which the log was written.
    SameRun,
    /// A later boot, with the log unchanged.
    AfterRestart,
    /// A later boot after a power failure that lost the progress.
    ProgressLost,
}

const BOOTS: [BootState; 3] =
    [BootState::SameRun, BootState::AfterRestart, BootState::ProgressLost];
const OTHER_RUN: Boot = Boot([0xb0; 16]);

/// Result of opening: page 0, and the lines that the log adds.
type State = (Vec<u8>, Vec<(u64, u64, Vec<u8>)>);

/// Files of a scene. A flip changes them and changes them back.
struct Opened<'s> {
    scene: &'s Scene,
    boot_state: BootState,
    object: Arc<MemoryFile>,
    log: Arc<MemoryFile>,
    newest: State,
    excused_loss: ExcusedLoss,
    records: Vec<usize>,
    /// State for each number of records that a power failure may have left. `None` if the object
    /// file contains later commits.
    older: Vec<Option<State>>,
}

impl Opened<'_> {
    fn new(scene: &Scene, boot_state: BootState) -> Opened<'_> {
        let mut log = scene.log.clone();
        let at = progress_at(&log);
        let own = at.map(|at| pod_read_unaligned::<LogProgress>(&log[at..at + 64]));
        let boot = match (boot_state, own) {
            (BootState::SameRun, Some(progress)) => Boot(progress.boot),
            _ => OTHER_RUN,
        };
        if let (BootState::ProgressLost, Some(at), Some(own)) = (boot_state, at, own) {
            let lost = seal_progress(own.salt, Boot(own.boot), 0, 0);
            log[at..at + 64].copy_from_slice(bytes_of(&lost));
        }
        let excused_loss = ExcusedLoss::of(&log, boot, Medium::DISK);
        let records = excused_loss.starts();
        let object = MemoryFile::of_run("object", &scene.object, boot);
        let log = MemoryFile::of_run("log", &log, boot);
        let (newest, older) = ((Vec::new(), Vec::new()), Vec::new());
        let mut opened =
            Opened { scene, boot_state, object, log, newest, excused_loss, records, older };
        opened.newest = opened.open().unwrap();
        if boot_state == BootState::ProgressLost {
            opened.older = opened.records.iter().map(|at| opened.ending_at(*at)).collect();
            let is_needed = !opened.newest.1.is_empty();
            assert!(!is_needed || !opened.older.contains(&Some(opened.newest.clone())));
        }
        opened
    }

    /// Returns the state when the log ends at `at`.
    fn ending_at(&self, at: usize) -> Option<State> {
        let length = self.log.length().unwrap() as usize;
        let kept = self.log.replace(at as u64, &vec![0; length - at]);
        let state = self.open().ok();
        self.log.replace(at as u64, &kept);
        state
    }

    /// Runs the part of opening that reading, writing and checking share.
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

    /// Judges the result of opening.
    fn judge(&self, damaged: &Damage) -> Result<(), String> {
        let says = |what: &str| {
            let (name, boot_state) = (self.scene.name, self.boot_state);
            Err(format!("{name}, {boot_state:?}, {damaged:?}: {what}"))
        };
        match self.open() {
            Err(Error::Damaged { .. } | Error::Foreign { .. } | Error::NewerFormat { .. }) => {
                Ok(())
            }
            Err(Error::LogMissing { .. }) => Ok(()),
            Err(other) => says(&format!("the error does not report damage: {other}")),
            Ok(state) if state == self.newest => Ok(()),
            Ok(state) if self.is_excused(damaged, &state) => Ok(()),
            Ok(_) => says("another state, without an error"),
        }
    }

    /// Returns true if the exception allows this state.
    fn is_excused(&self, damaged: &Damage, state: &State) -> bool {
        let Damage::Log { at, bytes, is_bit } = damaged else { return false };
        let kept = self.excused_loss.silent_end(&(*at..at + bytes), *is_bit);
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

    /// Overwrites a part of the log, judges the result, and restores the bytes.
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
    /// One bit in each of several records.
    Several,
}

#[derive(Clone, Copy, Debug)]
struct Flip {
    damage: Damage,
    bit: u8,
}

/// Returns the positions of the records of the newest generation.
fn records_of(log: &[u8]) -> Vec<usize> {
    ExcusedLoss::of(log, OTHER_RUN, Medium::DISK).starts()
}

/// Lists the bits to flip: all of page 0; in a log, all bits of headers, heads, padding, and the
/// first and last 4 KiB of each record, and otherwise one bit per 64 bytes.
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

/// Creates a scene with a simulated program.
fn simulated(name: &'static str, steps: &[Step]) -> Scene {
    let worker = Worker::new();
    let mut runner = Runner::new(&worker, fresh_image(Medium::DISK), 5);
    runner.run(steps).unwrap();
    let (object, log) = files_of(&runner);
    Scene { name, object, log, kind: KIND_OBJECT }
}

/// Returns the object and its log.
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

/// Creates scenes from a store's files: the catalog, a guest object, an object without a root, and
/// one with a vector.
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

/// A log of an earlier build that this build emptied and wrote to. A power failure left the object
/// file in its previous state.
fn emptied_by_this_build() -> Scene {
    let worker = Worker::new();
    let mut runner = Runner::new(&worker, fresh_image(Medium::DISK), 5);
    let steps = [MakePermanent { room: 64 * 1024 }];
    without(&[Mutant::EarlierFormat], || runner.run(&steps)).unwrap();
    let mut runner = runner.into_another_process();
    let (mut object, _) = files_of(&runner);
    runner.run(&[Open, SAME, Commit]).unwrap();
    let (_, log) = files_of(&runner);
    let code_at = LOG_REQUIRED_OFFSET as usize;
    object[code_at..code_at + 4].copy_from_slice(&LOG_REQUIRED.to_le_bytes());
    Scene { name: "emptied by this build", object, log, kind: KIND_OBJECT }
}

/// Six kinds of objects, and logs with small records and with records of 2.4 MB.
fn scenes() -> Vec<Scene> {
    let mut scenes = vec![closed(), small_records(), large_records(), emptied_by_this_build()];
    scenes.extend(stored());
    assert!(scenes.iter().any(|scene| scene.log.len() > 7 << 20));
    scenes
}

/// Tries a share of all flips, evenly spread. Large logs get fewer, because each open reads the
/// whole log.
fn try_flips(wanted: Option<usize>) -> usize {
    let seed = super::first_seed();
    println!("EVERMAP_SIM_SEED={seed}");
    let mut random = Random::of(&[seed, 0xf11b]);
    let scenes = scenes();
    let is_large = |scene: &Scene| scene.log.len() > 1 << 20;
    let small = scenes.iter().filter(|scene| !is_large(scene)).count() * BOOTS.len();
    let mut tried = 0;
    for scene in &scenes {
        let flips = flips_of(scene);
        for boot_state in BOOTS {
            let opened = Opened::new(scene, boot_state);
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

/// Damages many bits of one record, and one bit in each of several records.
#[test]
fn noise_zeros_and_flips_in_several_records_are_detected() {
    let mut random = Random::of(&[super::first_seed(), 0x4015e]);
    let scenes = scenes();
    for scene in scenes.iter().filter(|scene| !records_of(&scene.log).is_empty()) {
        for boot_state in BOOTS {
            let opened = Opened::new(scene, boot_state);
            for (number, at) in opened.records.iter().enumerate() {
                for bytes in [512, 4096] {
                    let bytes = bytes.min(scene.log.len() - at);
                    let noise: Vec<u8> = (0..bytes).map(|_| random.next() as u8).collect();
                    opened.overwrite(*at, &noise).unwrap();
                    opened.overwrite(*at, &vec![0; bytes]).unwrap();
                }
                // Flip one bit in each record from here on, except the last one.
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

/// The log of a closed object is not needed, so damage to it has no effect.
#[test]
fn damage_to_the_log_of_a_closed_object_is_harmless() {
    let scenes = scenes();
    let scene = scenes.iter().find(|scene| scene.name.contains("kept log")).unwrap();
    assert!(!records_of(&scene.log).is_empty());
    let opened = Opened::new(scene, BootState::SameRun);
    for flip in flips_of(scene).iter().step_by(97) {
        if let Damage::Log { at, .. } = flip.damage {
            let at = at.min(scene.log.len() - 64);
            let kept = opened.log.replace(at as u64, &[0xff; 64]);
            assert!(opened.open().unwrap() == opened.newest, "byte {at}");
            opened.log.replace(at as u64, &kept);
        }
    }
}

/// Safeguards that detect flips.
const CAUGHT_BY_FLIPS: &[Mutant] = &[
    Mutant::ProgressIgnored,
    Mutant::ProgressNotWritten,
    Mutant::LaterHeadsIgnored,
    Mutant::DamagedHeadIsAnEnd,
    Mutant::RootChecksumIgnored,
    Mutant::LogRequiredCodesIgnored,
    Mutant::OldHeaderKept,
];

#[test]
fn every_safeguard_against_flips_is_needed() {
    for mutant in CAUGHT_BY_FLIPS {
        let missed = without(std::slice::from_ref(mutant), || {
            [closed(), small_records(), emptied_by_this_build()].iter().any(|scene| {
                BOOTS.iter().any(|boot_state| {
                    let opened = Opened::new(scene, *boot_state);
                    flips_of(scene).iter().any(|flip| opened.flip(flip).is_err())
                })
            })
        });
        assert!(missed, "{mutant:?} is not detected");
    }
}
