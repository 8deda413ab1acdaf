//! Decay: acknowledged data changes on the disk.
//!
//! A bit, a sector or a page of any file changes: the object, the catalog, or one of their logs.
//! Workloads stop after each promise, by a kill or a power failure. Then a file decays, and a
//! reader, a writer or a check opens the files. It must find the right state or return a typed
//! error. Data pages are verified only on request, and then their checksums must detect the decay.
//! [`ExcusedLoss`] defines the only exception.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::SimulatedDisk;
use super::excused_loss::ExcusedLoss;
use super::image::{Image, Operation};
use super::model::{End, Mark, Model, Stamp};
use super::names::Node;
use super::random::Random;
use super::runner::{Runner, Step, StepError};
use super::state::Edit;
use super::store;
use super::subject::{LOG, OBJECT, ReadSession, Worker};
use super::versions::Keep;
use super::workload::{WORKLOADS, Workload, follow, record};
use crate::checksum::crc32c;
use crate::commit::LogPolicy;
use crate::error::{Error, Result};
use crate::format::{
    FEATURE_LOG_2, LINE_BYTES, LOG_ALIGN, LOG_PROGRESS_OFFSET, LOG_REQUIRED_OFFSET, LOG_SLOT_BYTES,
    PAGE_BYTES, Superblock,
};
use crate::mutate::{Mutant, without};
use crate::storage::{File, OpenMode};
use crate::tools::{CheckOptions, check};

/// Cases per image of an object or a store.
const CASES_PER_IMAGE: usize = 40;

/// Counts of cases and results.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    cases: u64,
    /// Cases with a typed error, or with pages that do not match their checksums.
    noticed: u64,
    /// Cases of the documented exception.
    excused: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.cases += other.cases;
        self.noticed += other.noticed;
        self.excused += other.excused;
    }
}

/// The original contents of a file that decays.
struct Target {
    path: PathBuf,
    bytes: Vec<u8>,
    /// Only meaningful for a log.
    excused_loss: ExcusedLoss,
}

impl Target {
    fn of(disk: &SimulatedDisk, path: &Path) -> Option<Target> {
        let file = disk.storage().open(path, OpenMode::Read).ok()?;
        let mut bytes = vec![0; file.length().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        let excused_loss = ExcusedLoss::of(&[], disk.boot(), disk.medium());
        let mut target = Target { path: path.to_path_buf(), bytes, excused_loss };
        if target.is_log() {
            target.excused_loss = ExcusedLoss::of(&target.bytes, disk.boot(), disk.medium());
        }
        (!target.bytes.is_empty()).then_some(target)
    }

    fn is_log(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "log")
    }

    /// Chooses a position. Prefers page 0, headers, progress and record heads.
    fn place(&self, random: &mut Random) -> usize {
        let length = self.bytes.len();
        let starts = self.excused_loss.starts();
        let at = match random.below(4) {
            0 => random.below(length),
            _ if !self.is_log() || starts.is_empty() && random.chance(1, 2) => {
                let code = LOG_REQUIRED_OFFSET as usize;
                if random.chance(1, 8) { code + random.below(8) } else { random.below(4096) }
            }
            1 => {
                let progress = LOG_PROGRESS_OFFSET as usize * random.below(2);
                random.below(2) * LOG_SLOT_BYTES as usize + progress + random.below(64)
            }
            _ if starts.is_empty() => random.below(length),
            // No later head vouches for the last record.
            2 => starts[starts.len() - 1] + random.below(1024),
            _ => starts[random.below(starts.len())] + random.below(640),
        };
        at.min(length - 1)
    }

    fn decay(&self, random: &mut Random) -> Decay<'_> {
        let place = self.place(random);
        let length = match random.below(3) {
            0 => return Decay { target: self, at: place, bytes: self.flipped(place, random) },
            1 => LOG_ALIGN as usize,
            _ => PAGE_BYTES as usize,
        };
        let at = place / length * length;
        let end = (at + length).min(self.bytes.len());
        let from = random.below(self.bytes.len()) / length * length;
        // A line of a checksum table contains its own CRC32C, so the line's CRC32C equals that of a
        // line of zeros. No checksum detects a swap with zeros. The log may replace neighbouring
        // lines, so compare line by line.
        let is_hidden = |(new, old): (&[u8], &[u8])| new != old && crc32c(&[new]) == crc32c(&[old]);
        let differs = |bytes: &&[u8]| {
            let before = &self.bytes[at..end];
            let lines = bytes.chunks(LINE_BYTES).zip(before.chunks(LINE_BYTES));
            *bytes != before && !lines.into_iter().any(is_hidden)
        };
        let elsewhere = self.bytes.get(from..from + (end - at)).filter(differs);
        let bytes = match (random.below(4), elsewhere) {
            (0, _) => vec![0; end - at],
            (1, _) => vec![0xff; end - at],
            (2, Some(bytes)) => bytes.to_vec(),
            _ => (at..end).map(|_| random.next() as u8).collect(),
        };
        Decay { target: self, at, bytes }
    }

    fn flipped(&self, at: usize, random: &mut Random) -> Vec<u8> {
        vec![self.bytes[at] ^ 1 << random.below(8)]
    }
}

/// One change.
struct Decay<'t> {
    target: &'t Target,
    at: usize,
    bytes: Vec<u8>,
}

impl Decay<'_> {
    fn before(&self) -> &[u8] {
        &self.target.bytes[self.at..self.at + self.bytes.len()]
    }

    /// Returns true if this change may lose commits without an error.
    fn is_excused(&self) -> bool {
        // Only bytes that really changed count.
        let changed = |at: &usize| self.target.bytes[*at] != self.bytes[*at - self.at];
        let mut range = self.at..self.at + self.bytes.len();
        let Some(first) = range.find(changed) else { return false };
        let last = (first..self.at + self.bytes.len()).rfind(changed).unwrap_or(first);
        self.target.excused_loss.silent_end(&(first..last + 1), self.bytes.len() == 1).is_some()
    }

    /// Returns true if a data page changed. Data pages are verified on request, page 0 and logs
    /// always.
    fn is_of_data(&self) -> bool {
        !self.target.is_log() && self.at >= PAGE_BYTES as usize
    }

    fn image(&self, image: &Image) -> Image {
        let mut image = image.clone();
        if let Some(Node::File(file)) = image.names.find(&self.target.path) {
            let bytes = Arc::from(&self.bytes[..]);
            let (offset, durable) = (self.at as u64, true);
            image.apply(&Operation::Write { file, offset, bytes, durable });
        }
        image
    }
}

impl std::fmt::Display for Decay<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, length) = (self.target.path.display(), self.bytes.len());
        let (was, is) = (&self.before()[..length.min(8)], &self.bytes[..length.min(8)]);
        write!(f, "{length} bytes at {} of {path} changed from {was:02x?} to {is:02x?}", self.at)
    }
}

/// Returns true if the error reports damage to the files.
fn is_about_damage(error: &Error) -> bool {
    matches!(
        error,
        Error::Damaged { .. }
            | Error::Foreign { .. }
            | Error::NewerFormat { .. }
            | Error::LogMissing { .. }
    )
}

/// Result of opening a decayed object.
enum Found {
    Noticed,
    State(Stamp),
}

/// Opens the object for reading and verifies the state. With `verifies`, verifies the checksums of
/// all pages before.
fn read(worker: &Worker, disk: &SimulatedDisk, verifies: bool) -> Result<Found, String> {
    let opened = catch_unwind(AssertUnwindSafe(|| -> Result<_> {
        let look = ReadSession::open(worker, disk)?;
        if verifies {
            look.pages()?;
        }
        Ok(look.state())
    }));
    match opened.map_err(|_| "reading panics".to_string())? {
        Err(error) if is_about_damage(&error) => Ok(Found::Noticed),
        Err(error) => Err(format!("reading: the error does not report damage: {error}")),
        Ok(Err(mix)) => Err(format!("all checksums match, but the state is invalid: {mix}")),
        Ok(Ok(stamp)) => Ok(Found::State(stamp)),
    }
}

/// A workload that was stopped.
struct Stopped {
    image: Image,
    model: Model,
    end: End,
}

/// Stops a workload after each promise and returns the disks that this leaves.
fn stops(worker: &Worker, index: usize, random: &mut Random) -> Result<Vec<Stopped>, String> {
    let recorded = record(worker, &WORKLOADS[index])?;
    let (mut image, mut model) = (recorded.start.clone(), Model::default());
    let mut found = Vec::new();
    for operation in &recorded.operations {
        image.apply(operation);
        let Operation::Mark(mark) = operation else { continue };
        model.follow(*mark)?;
        if matches!(mark, Mark::Acknowledged(..) | Mark::Synced | Mark::Replayed) {
            found.extend(stops_of(&image, &model, random));
        }
    }
    Ok(found)
}

fn stops_of(image: &Image, model: &Model, random: &mut Random) -> Vec<Stopped> {
    let killed = (image.clone(), End::Kill);
    let failed = (image.power_failure(None, random), End::PowerFailure);
    let bare = (image.power_failure(Some(Keep::Nothing), random), End::PowerFailure);
    let all = [killed, failed, bare].into_iter().map(|(image, end)| {
        let mut model = model.clone();
        model.ended(end);
        Stopped { image, model, end }
    });
    all.filter(|stopped| stopped.model.has_object()).collect()
}

/// Returns true if object and log have this build's format. Earlier formats promise less.
fn are_of_this_format(targets: &[Target]) -> bool {
    targets.iter().all(|target| match target.is_log() {
        true => target.excused_loss.is_of_this_format(),
        false => {
            let page = &target.bytes[..PAGE_BYTES as usize];
            let superblock: Superblock = bytemuck::pod_read_unaligned(page);
            superblock.features_incompatible & FEATURE_LOG_2 != 0
        }
    })
}

/// Runs decay cases on the files of one disk.
fn decay_objects(
    worker: &Worker,
    stopped: &Stopped,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<(), String> {
    let disk = SimulatedDisk::new(stopped.image.clone());
    let targets: Vec<Target> =
        [OBJECT, LOG].iter().filter_map(|path| Target::of(&disk, path.as_ref())).collect();
    if targets.is_empty() || !are_of_this_format(&targets) {
        return Ok(());
    }
    let files: Vec<Arc<dyn File>> = targets
        .iter()
        .map(|target| disk.storage().open(&target.path, OpenMode::ReadWrite).unwrap())
        .collect();
    let Found::State(newest) = read(worker, &disk, true)? else {
        return Err("damage before anything decayed".to_string());
    };
    for case in 0..CASES_PER_IMAGE {
        let which = random.below(targets.len());
        let decay = targets[which].decay(random);
        files[which].write_at(&decay.bytes, decay.at as u64).map_err(|e| e.to_string())?;
        let is_excused = decay.is_excused() && stopped.end == End::PowerFailure;
        // If the last commit is lost, the file may already contain a part of it.
        let found = read(worker, &disk, decay.is_of_data() || is_excused);
        files[which].write_at(decay.before(), decay.at as u64).map_err(|e| e.to_string())?;
        tally.cases += 1;
        let context = |why: String| format!("{decay}: {why}; {}", stopped.model);
        match found.map_err(context)? {
            Found::Noticed => tally.noticed += 1,
            Found::State(stamp) if stamp == newest || stopped.model.allows(stamp) => {}
            Found::State(_) if is_excused => tally.excused += 1,
            Found::State(stamp) => return Err(context(format!("found {stamp} without an error"))),
        }
        if case % 8 == 0 && !is_excused {
            write(worker, &decay, stopped, random).map_err(context)?;
        }
    }
    Ok(())
}

/// Opens a decayed object for writing and commits to it.
fn write(
    worker: &Worker,
    decay: &Decay<'_>,
    stopped: &Stopped,
    random: &mut Random,
) -> Result<(), String> {
    const STEPS: &[&[Step]] = &[
        &[Step::Open, Step::Change(Edit::SameLine), Step::Commit, Step::Close, Step::Read],
        &[Step::Open, Step::Change(Edit::SameLine), Step::Commit, Step::Abandon, Step::Read],
    ];
    let image = decay.image(&stopped.image);
    let is_whole =
        matches!(read(worker, &SimulatedDisk::new(image.clone()), true)?, Found::State(_));
    let permanent = image.permanent_log;
    let mut runner = Runner::new(worker, image, random.next());
    if permanent {
        runner.policy = LogPolicy::Permanent { applied: false };
    }
    let steps = STEPS[random.below(STEPS.len())];
    let ran = catch_unwind(AssertUnwindSafe(|| runner.run(steps)));
    let trace = runner.disk.trace();
    drop(runner);
    match ran.map_err(|_| "writing panics".to_string())? {
        Ok(()) => {}
        Err(StepError::Engine(error)) if is_about_damage(&error) && !is_whole => {}
        // Data pages are verified on request, and the writer did not request it.
        Err(_) if !is_whole => return Ok(()),
        Err(error) => return Err(format!("writing: {error}")),
    }
    follow(&mut stopped.model.clone(), &trace.operations).map_err(|why| format!("writing: {why}"))
}

/// Runs decay cases on all workloads until `goes_on` returns false or there are `failures_max`
/// failures.
fn explore_objects(
    worker: &Worker,
    (seed, failures_max): (u64, usize),
    mut goes_on: impl FnMut(&Tally) -> bool,
    tally: &mut Tally,
) -> Result<(), String> {
    let mut failed: Vec<String> = Vec::new();
    for round in 0.. {
        for (index, Workload { name, .. }) in WORKLOADS.iter().enumerate() {
            let mut random = Random::of(&[seed, round, index as u64, 0xdeca]);
            for (number, stopped) in stops(worker, index, &mut random)?.iter().enumerate() {
                if !goes_on(tally) || failed.len() == failures_max {
                    return if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) };
                }
                if let Err(why) = decay_objects(worker, stopped, &mut random, tally) {
                    let end = stopped.end;
                    failed.push(format!("workload {name}, stop {number} ({end:?}), {why}"));
                }
            }
        }
    }
    Ok(())
}

/// Returns all non-empty files of a store.
fn files_of_a_store(disk: &SimulatedDisk) -> Vec<Target> {
    let mut targets = Vec::new();
    for directory in ["/s", "/s/objects"] {
        let names = disk.storage().list(directory.as_ref()).unwrap_or_default();
        let paths = names.iter().map(|name| Path::new(directory).join(name));
        targets.extend(paths.filter_map(|path| Target::of(disk, &path)));
    }
    targets
}

/// Checks a store with a decayed file and opens all its objects.
fn judge_store(
    window: crate::address::Window,
    decay: &Decay<'_>,
    stopped: &Stopped,
    states: &[(Stamp, store::Contents)],
    tally: &mut Tally,
) -> Result<(), String> {
    let image = decay.image(&stopped.image);
    let checked = SimulatedDisk::new(image.clone());
    let options = CheckOptions::new().on(checked.storage());
    let report = catch_unwind(AssertUnwindSafe(|| check("/s", &options)));
    let is_clean = match report.map_err(|_| "checking panics".to_string())? {
        Ok(report) => report.is_clean(),
        Err(error) if is_about_damage(&error) => false,
        Err(error) => return Err(format!("checking: {error}")),
    };
    let mut program = store::Program::new(image, window, states.to_vec());
    let looked = catch_unwind(AssertUnwindSafe(|| -> Result<(), String> {
        match program.open() {
            Err(error) if is_about_damage(&error) => Err(error.to_string()),
            Err(error) => panic!("the error does not report damage: {error}"),
            Ok(()) => program.look(&stopped.model),
        }
    }));
    let operations = program.disk.trace().operations;
    drop(program);
    let looked = looked.map_err(|_| "opening panics".to_string())?;
    tally.cases += 1;
    tally.noticed += u64::from(!is_clean || looked.is_err());
    let followed = follow(&mut stopped.model.clone(), &operations);
    let is_missed = is_clean && looked.is_err() || followed.is_err();
    if is_missed && decay.is_excused() && stopped.end == End::PowerFailure {
        tally.excused += 1;
        return Ok(());
    }
    if let (true, Err(why)) = (is_clean, &looked) {
        return Err(format!("the check finds nothing, but opening fails: {why}"));
    }
    followed.map_err(|why| format!("{why}, without an error; check: {is_clean}"))
}

/// Runs decay cases on stores until `goes_on` returns false.
fn explore_stores(
    seed: u64,
    mut goes_on: impl FnMut(&Tally) -> bool,
    tally: &mut Tally,
) -> Result<(), String> {
    let window = store::new_window();
    for round in 0.. {
        for (index, (name, steps)) in store::WORKLOADS.iter().enumerate() {
            let mut random = Random::of(&[seed, round, index as u64, 0xdecb]);
            let (trace, states) = store::record(name, steps, window)?;
            let (mut image, mut model) = (trace.start.clone(), Model::default());
            for operation in &trace.operations {
                image.apply(operation);
                let Operation::Mark(mark) = operation else { continue };
                model.follow(*mark)?;
                for stopped in stops_of(&image, &model, &mut random) {
                    let targets = files_of_a_store(&SimulatedDisk::new(stopped.image.clone()));
                    for _ in 0..CASES_PER_IMAGE {
                        if !goes_on(tally) {
                            return Ok(());
                        }
                        let decay = targets[random.below(targets.len())].decay(&mut random);
                        judge_store(window, &decay, &stopped, &states, tally).map_err(|why| {
                            format!("store {name} ({:?}), {decay}: {why}", stopped.end)
                        })?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// One case in this many uses a whole store and a check.
const STORES_ONE_IN: u64 = 10;

fn explore(cases: u64) {
    let seed = super::first_seed();
    println!("EVERMAP_SIM_SEED={seed}");
    let workers = super::threads() as u64;
    let results: Vec<Result<Tally, String>> = std::thread::scope(|scope| {
        let run = |own: u64| {
            let (of_stores, mut tally) = (cases / workers / STORES_ONE_IN + 1, Tally::default());
            explore_stores(seed + own, |tally| tally.cases < of_stores, &mut tally)?;
            let all = cases / workers + 1;
            explore_objects(
                &Worker::new(),
                (seed + own, 10),
                |tally| tally.cases < all,
                &mut tally,
            )?;
            Ok(tally)
        };
        let handles: Vec<_> = (0..workers).map(|own| scope.spawn(move || run(own))).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    let mut tally = Tally::default();
    for result in results {
        tally += result.unwrap_or_else(|why| panic!("{why}\n  EVERMAP_SIM_SEED={seed}"));
    }
    println!("{tally:?}");
    assert!(tally.cases >= cases);
    assert!(tally.noticed > cases / 4, "too little was detected: {tally:?}");
    // The share is high because two of three stops are a power failure right after a commit, and
    // many positions are in the last record.
    assert!(tally.excused < cases / 5, "too many cases are excused: {tally:?}");
}

#[test]
fn decay_is_detected_or_harmless() {
    explore(100_000);
}

#[test]
#[ignore = "takes many minutes; `make test-long` runs it"]
fn a_million_cases_of_decay_are_detected_or_harmless() {
    explore(1_000_000);
}

/// Safeguards that detect decay.
const CAUGHT_BY_DECAY: &[Mutant] = &[
    Mutant::ProgressIgnored,
    Mutant::ProgressNotWritten,
    Mutant::LaterHeadsIgnored,
    Mutant::DamagedHeadIsAnEnd,
    Mutant::RootChecksumIgnored,
    Mutant::LogRequiredCodesIgnored,
    Mutant::AgesIgnored,
    Mutant::RecordChecksumIgnored,
    Mutant::UsedHolesUnknown,
];

/// Maximum number of cases per mutant.
const CASES_FOR_A_MUTANT: u64 = 20_000;

#[test]
fn every_safeguard_against_decay_is_needed() {
    let worker = Worker::new();
    for mutant in CAUGHT_BY_DECAY {
        let mut tally = Tally::default();
        let caught = without(std::slice::from_ref(mutant), || {
            explore_objects(&worker, (1, 1), |tally| tally.cases < CASES_FOR_A_MUTANT, &mut tally)
        });
        match caught {
            Err(why) => println!("{mutant:?} caught after {} cases by {why}", tally.cases),
            Ok(()) => panic!("{mutant:?} is not detected in {} cases", tally.cases),
        }
    }
}
