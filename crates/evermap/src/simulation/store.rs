//! A whole store on the simulated disk: names appear, change and disappear atomically.
//!
//! The state of a store is its names and the values of their objects. Each operation leads from one
//! state to the next. After a crash the store is in the last acknowledged state, or in one that was
//! attempted since.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::disk::{Failure, Fault, SimulatedDisk, Trace};
use super::explore::Tally;
use super::image::{Image, Operation};
use super::model::{End, Mark, Model, Stamp, Survives};
use super::random::Random;
use super::runner::describe;
use super::versions::{Keep, Medium};
use super::workload::follow;
use crate::address::Window;
use crate::error::{Error, Result};
use crate::{Migrations, Options, PVec, Store};
use evermap_derive::Persist;

/// A step of a program that uses a store.
#[derive(Clone, Copy, Debug)]
pub(super) enum StoreStep {
    Make,
    Create(&'static str),
    Replace(&'static str),
    Batch(&'static [&'static str]),
    Rename(&'static str, &'static str),
    Remove(&'static str),
    /// A session of two commits.
    Write(&'static str),
    /// Opens the object with a root of the other type, migrating the existing root.
    Migrate(&'static str),
    Reopen,
}

use StoreStep::*;

pub(super) const WORKLOADS: &[(&str, &[StoreStep])] = &[
    ("a_new_store", &[Make, Create("a"), Reopen, Create("b")]),
    (
        "names_come_and_go",
        &[
            Make,
            Create("a"),
            Create("b"),
            Replace("a"),
            Rename("b", "c"),
            Remove("a"),
            Create("a"),
            Remove("c"),
        ],
    ),
    (
        "batches_appear_together",
        &[Make, Batch(&["a", "b", "c"]), Batch(&["b", "d"]), Reopen, Batch(&["a", "e"])],
    ),
    (
        "sessions_and_names",
        &[
            Make,
            Create("a"),
            Write("a"),
            Rename("a", "b"),
            Write("b"),
            Replace("b"),
            Reopen,
            Write("b"),
            Remove("b"),
        ],
    ),
    (
        "roots_change_their_type",
        &[Make, Create("a"), Migrate("a"), Reopen, Create("b"), Migrate("a"), Write("a")],
    ),
];

const FOLLOW_UPS: &[&[StoreStep]] = &[
    &[],
    &[Batch(&["a", "z"]), Remove("z")],
    &[Batch(&["a"]), Write("a"), Reopen, Replace("a")],
    &[Reopen, Batch(&["y", "z"]), Reopen],
    &[Migrate("a"), Migrate("a"), Reopen],
];

/// Names, and the value of each object's elements. [`MOVED`] is set if the root is a [`Moved`].
pub(super) type Contents = BTreeMap<String, u64>;

const MOVED: u64 = 1 << 60;

/// The other root type of migrations.
#[derive(Persist)]
#[repr(C)]
struct Moved {
    elements: PVec<u64>,
    sum: u64,
}

/// Number of windows taken: each thread gets its own part of the address space.
static WINDOWS: AtomicU64 = AtomicU64::new(0);
const WINDOWS_BASE: u64 = 0x1800_0000_0000;
const WINDOW_BYTES: u64 = 64 << 30;

pub(super) fn new_window() -> Window {
    let base = WINDOWS_BASE + WINDOWS.fetch_add(1, Ordering::Relaxed) * WINDOW_BYTES;
    Window::new(base, base + WINDOW_BYTES).unwrap()
}

/// A program that uses a store.
pub(super) struct Program {
    pub(super) disk: SimulatedDisk,
    options: Options,
    store: Option<Store>,
    /// All states that were attempted.
    pub(super) states: Vec<(Stamp, Contents)>,
    pub(super) now: Contents,
}

fn elements(value: u64) -> impl Iterator<Item = u64> {
    (0..300).map(move |n| value.wrapping_mul(n + 1))
}

impl Program {
    pub(super) fn new(image: Image, window: Window, states: Vec<(Stamp, Contents)>) -> Program {
        let disk = SimulatedDisk::new(image);
        let options = Options { storage: Arc::new(disk.clone()), ..Options::new() };
        let options = options.window(window).arena_bytes(1);
        Program { disk, options, store: None, states, now: Contents::new() }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    /// Returns a value that no earlier state has.
    fn fresh(&self) -> u64 {
        self.states.len() as u64 * 1000 + 1
    }

    /// Runs one step, and records its attempt and its acknowledgement.
    fn try_for(&mut self, next: Contents, step: impl FnOnce(&Store) -> Result<()>) -> Result<()> {
        let number = self.states.len() as u64;
        let stamp = Stamp { number, nonce: number };
        self.states.push((stamp, next.clone()));
        self.disk.mark(Mark::Attempt(stamp));
        step(self.store())?;
        self.disk.mark(Mark::Acknowledged(stamp, Survives::PowerFailure));
        self.now = next;
        Ok(())
    }

    pub(super) fn step(&mut self, step: StoreStep) -> Result<()> {
        let value = self.fresh();
        let mut next = self.now.clone();
        match step {
            Make => {
                let stamp = Stamp { number: 0, nonce: 0 };
                self.states.push((stamp, Contents::new()));
                self.disk.mark(Mark::Attempt(stamp));
                self.store = Some(self.options.create_new("/s")?);
                self.disk.mark(Mark::Acknowledged(stamp, Survives::PowerFailure));
                Ok(())
            }
            Create(name) => {
                next.insert(name.to_string(), value);
                self.try_for(next, |s| {
                    s.create::<PVec<u64>, _>(name, crate::from_iter(elements(value)))
                })
            }
            Replace(name) => {
                next.insert(name.to_string(), value);
                self.try_for(next, |s| {
                    s.replace::<PVec<u64>, _>(name, crate::from_iter(elements(value)))
                })
            }
            Batch(names) => {
                next.extend(names.iter().map(|name| (name.to_string(), value)));
                self.try_for(next, |store| {
                    let mut batch = store.batch()?;
                    for name in names {
                        batch.replace::<PVec<u64>, _>(name, crate::from_iter(elements(value)))?;
                    }
                    batch.commit()
                })
            }
            Rename(from, to) => {
                if let Some(value) = next.remove(from) {
                    next.insert(to.to_string(), value);
                }
                self.try_for(next, |store| store.rename(from, to))
            }
            Remove(name) => {
                next.remove(name);
                self.try_for(next, |store| store.remove(name))
            }
            Write(name) => self.write(name),
            Migrate(name) => self.migrate(name),
            Reopen => {
                self.store = None;
                self.open()
            }
        }
    }

    fn write(&mut self, name: &str) -> Result<()> {
        let mut session = self.store().write::<PVec<u64>>(name)?;
        for _ in 0..2 {
            let value = self.fresh();
            let mut next = self.now.clone();
            next.insert(name.to_string(), value);
            let mut root = session.root_mut();
            root.clear();
            elements(value).try_for_each(|element| root.push(element).map(drop))?;
            self.try_for(next, |_| session.commit().map(drop))?;
        }
        session.close()
    }

    fn migrate(&mut self, name: &str) -> Result<()> {
        let migrations = Migrations::new()
            .step::<PVec<u64>, Moved>(|old, slot| {
                let sum = old.iter().fold(0, |sum, element| element.wrapping_add(sum));
                slot.build(MovedInit { elements: old.detach(), sum })
            })
            .step::<Moved, PVec<u64>>(|old, slot| {
                let elements: Vec<u64> = old.elements.iter().copied().collect();
                slot.build(elements)
            });
        let mut next = self.now.clone();
        let value = next.entry(name.to_string()).or_default();
        *value ^= MOVED;
        let there = *value & MOVED != 0;
        self.try_for(next, |store| match there {
            true => store.write_migrating::<Moved>(name, &migrations)?.close(),
            false => store.write_migrating::<PVec<u64>>(name, &migrations)?.close(),
        })
    }

    /// Returns the value of an object's elements, and true if they are consistent.
    fn value_of(&self, name: &str) -> Result<(u64, bool)> {
        let (elements, moved, sums_agree) = match self.store().read::<PVec<u64>>(name) {
            Ok(list) => (list.to_vec(), 0, true),
            Err(Error::SchemaMismatch { .. }) => {
                let moved = self.store().read::<Moved>(name)?;
                let sum =
                    moved.elements.iter().fold(0u64, |sum, element| sum.wrapping_add(*element));
                (moved.elements.to_vec(), MOVED, sum == moved.sum)
            }
            Err(e) => return Err(e),
        };
        let value = elements.first().copied().unwrap_or_default();
        let whole = sums_agree && elements.into_iter().eq(self::elements(value));
        Ok((value | moved, whole))
    }

    pub(super) fn open(&mut self) -> Result<()> {
        self.store = Some(self.options.open("/s")?);
        Ok(())
    }

    /// Reads the whole store and finds the state that it is in.
    pub(super) fn look(&mut self, model: &Model) -> Result<(), String> {
        let mut found = Contents::new();
        for name in self.store().list().map_err(|e| e.to_string())? {
            let (value, whole) = self.value_of(&name).map_err(|e| format!("{name}: {e}"))?;
            if !whole {
                return Err(format!("{name} mixes states"));
            }
            found.insert(name, value);
        }
        // A store may have the same names and values more than once.
        let alike = || self.states.iter().filter(|(_, contents)| *contents == found);
        let state = alike().find(|(stamp, _)| model.allows(*stamp)).or(alike().next());
        let (stamp, _) = state.ok_or_else(|| format!("{found:?} never existed"))?;
        self.disk.mark(Mark::Seen(*stamp));
        self.now = found;
        Ok(())
    }
}

/// Opens the store after a crash, judges it, and crashes that program in turn.
fn recover_and_judge(
    window: Window,
    image: Image,
    (mut model, states): (Model, Vec<(Stamp, Contents)>),
    depth: usize,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<(), String> {
    tally.crash_points += 1;
    let steps = FOLLOW_UPS[random.below(FOLLOW_UPS.len())];
    let mut program = Program::new(image, window, states);
    let ran = catch_unwind(AssertUnwindSafe(|| -> Result<(), String> {
        match program.open() {
            Err(Error::NoStore { .. }) if !model.has_object() => {
                // Leftovers of a creation do not prevent a new one.
                program.states.clear();
                model = Model::default();
                program.step(Make).map_err(|e| format!("creating it again: {e}"))?;
            }
            other => {
                other.map_err(|e| e.to_string())?;
                program.look(&model)?;
            }
        }
        steps.iter().try_for_each(|step| match step {
            Remove(name) | Write(name) | Replace(name) | Migrate(name)
                if !program.now.contains_key(*name) =>
            {
                Ok(())
            }
            Write(name) if program.now[*name] & MOVED != 0 => Ok(()),
            step => program.step(*step).map_err(|e| format!("{step:?}: {e}")),
        })
    }));
    let trace = program.disk.trace();
    let states = program.states.clone();
    drop(program);
    let context = |why: String| format!("crash {}, then {steps:?}: {why}", depth + 1);
    ran.unwrap_or_else(|_| Err("a panic".to_string()))
        .map_err(|why| context(format!("{why}; {model}")))?;
    follow(&mut model.clone(), &trace.operations).map_err(context)?;
    if depth == 2 || !random.chance(1, 2) {
        return Ok(());
    }
    let crash_point = random.below(trace.operations.len() + 1);
    let mut before = trace.start.clone();
    for operation in &trace.operations[..crash_point] {
        before.apply(operation);
    }
    follow(&mut model, &trace.operations[..crash_point]).map_err(context)?;
    let (next, end) = stop(&before, trace.operations.get(crash_point), None, random);
    model.ended(end);
    recover_and_judge(window, next, (model, states), depth + 1, random, tally).map_err(|why| {
        let at = trace.operations.get(crash_point).map_or("the end".to_string(), describe);
        format!(
            "crash {}, then {steps:?} crashed ({end:?}) at {crash_point}, {at};\n  {why}",
            depth + 1
        )
    })
}

pub(super) fn stop(
    before: &Image,
    next: Option<&Operation>,
    keep: Option<Keep>,
    random: &mut Random,
) -> (Image, End) {
    let mut image = before.clone();
    let end = if keep.is_none() && random.chance(1, 3) { End::Kill } else { End::PowerFailure };
    if let Some(next) = next.filter(|_| random.chance(1, 2)) {
        image.apply_partly(next, end == End::Kill, random);
    }
    match end {
        End::Kill => (image, end),
        End::PowerFailure => (image.power_failure(keep, random), end),
    }
}

/// Runs a workload of a store. Returns the trace and the states.
pub(super) fn record(
    name: &str,
    steps: &[StoreStep],
    window: Window,
) -> Result<(Trace, Vec<(Stamp, Contents)>), String> {
    let mut program = Program::new(Image::new(Medium::DISK), window, Vec::new());
    let ran = steps.iter().try_for_each(|step| program.step(*step));
    let (trace, states) = (program.disk.trace(), program.states.clone());
    drop(program);
    ran.map_err(|e| format!("workload {name}: {e}"))?;
    Ok((trace, states))
}

/// Explores all crash points of all workloads of a store, with each of these seeds.
pub(super) fn explore_stores(seeds: std::ops::Range<u64>, tally: &mut Tally) -> Result<(), String> {
    let window = new_window();
    for (index, (name, steps)) in WORKLOADS.iter().enumerate() {
        let (trace, states) = record(name, steps, window)?;
        let (mut before, mut model) = (trace.start.clone(), Model::default());
        for crash_point in 0..=trace.operations.len() {
            let next = trace.operations.get(crash_point);
            for seed in seeds.clone().filter(|_| next.is_none_or(Operation::matters)) {
                let mut random = Random::of(&[index as u64, crash_point as u64, seed]);
                let keep = match seed {
                    0 => Some(Keep::Nothing),
                    1 => Some(Keep::Everything),
                    _ => None,
                };
                let (image, end) = stop(&before, next, keep, &mut random);
                let mut model = model.clone();
                model.ended(end);
                let tried = (model, states.clone());
                recover_and_judge(window, image, tried, 0, &mut random, tally).map_err(|why| {
                    let at = next.map_or("the end".to_string(), describe);
                    format!("store workload={name} crash_point={crash_point} seed={seed} ({end:?} at {at})\n  {why}")
                })?;
            }
            if let Some(next) = next {
                before.apply(next);
                if let Operation::Mark(mark) = next {
                    model.follow(*mark)?;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn operations_on_names_are_atomic_after_any_crash() {
    let first = super::first_seed();
    println!("EVERMAP_SIM_SEED={first}");
    let mut tally = Tally::default();
    if let Err(why) = explore_stores(first..first + 6, &mut tally) {
        panic!("{why}\n  EVERMAP_SIM_SEED={first} reproduces it");
    }
    println!("{} crash points of stores, all correct", tally.crash_points);
    assert!(tally.crash_points > 1000);
}

/// Returns a program with a store whose catalog log is just short of a checkpoint: the next batch
/// causes one.
fn before_a_checkpoint(window: Window) -> Program {
    let batch = Batch(&["a", "b"]);
    let run = |batches: usize| {
        let mut program = Program::new(Image::new(Medium::DISK), window, Vec::new());
        program.step(Make).unwrap();
        let mut calls = Vec::new();
        for _ in 0..batches {
            let before = program.disk.calls().len();
            program.step(batch).unwrap();
            calls.push(program.disk.calls().len() - before);
        }
        (program, calls)
    };
    let (program, calls) = run(60);
    drop(program);
    // The first batch also sweeps.
    let costliest = (1..calls.len()).max_by_key(|batch| (calls[*batch], calls.len() - batch));
    run(costliest.unwrap()).0
}

#[test]
fn an_error_at_any_call_of_a_batch_leaves_no_name_without_its_file() {
    let window = new_window();
    let program = before_a_checkpoint(window);
    let (start, earlier) = (program.disk.image(), program.disk.trace());
    let (states, now) = (program.states.clone(), program.now.clone());
    drop(program);
    let run = |fault: Option<Fault>| {
        let mut program = Program::new(start.clone(), window, states.clone());
        program.now = now.clone();
        program.open().unwrap();
        let opened = program.disk.calls().len();
        program.disk.fail(fault);
        let result = program.step(Batch(&["a", "c"]));
        program.disk.fail(None);
        (program, opened, result)
    };
    let (program, opened, _) = run(None);
    let calls = program.disk.calls().len();
    drop(program);
    let (mut tally, mut unknown) = (Tally::default(), 0);
    for at_call in opened..calls {
        let fault = Fault { at_call, failure: Failure::Device, persistent: false };
        for seed in 0..4 {
            let (program, _, result) = run(Some(fault));
            unknown += u32::from(matches!(result, Err(Error::DurabilityUnknown { .. })));
            let (image, trace) = (program.disk.image(), program.disk.trace());
            let (faults, states) = (program.disk.faults().join(", "), program.states.clone());
            drop(program);
            let mut model = Model::default();
            follow(&mut model, &earlier.operations).unwrap();
            follow(&mut model, &trace.operations).unwrap();
            let mut random = Random::of(&[at_call as u64, seed]);
            let keep = match seed {
                1 => Some(Keep::Nothing),
                2 => Some(Keep::Everything),
                _ => None,
            };
            let (image, end) = match seed {
                0 => (image, End::Kill),
                _ => (image.power_failure(keep, &mut random), End::PowerFailure),
            };
            model.ended(end);
            recover_and_judge(window, image, (model, states), 2, &mut random, &mut tally)
                .unwrap_or_else(|why| panic!("`{faults}` failed ({result:?}), {end:?}: {why}"));
        }
    }
    assert!(tally.crash_points > 50 && unknown > 0, "{} {unknown}", tally.crash_points);
}
