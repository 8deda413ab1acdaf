//! A whole store on the simulated disk: names appear, change and go at once or not at all.
//!
//! The state of a store is what a user can find out: names, and what lies under them. Each operation
//! makes one state of another; after a cut the store is in the last one that was acknowledged, or in
//! one that was tried since.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::disk::{SimulatedDisk, Trace};
use super::explore::Tally;
use super::history::follow;
use super::image::{Image, Operation};
use super::model::{End, Mark, Model, Outlives, Stamp};
use super::platter::{Keep, Medium};
use super::random::Random;
use super::runner::describe;
use crate::address::Window;
use crate::error::{Error, Result};
use crate::{Migrations, Options, PVec, Store};
use evermap_derive::Persist;

/// What a program does with a store.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Make,
    Create(&'static str),
    Replace(&'static str),
    Batch(&'static [&'static str]),
    Rename(&'static str, &'static str),
    Remove(&'static str),
    /// A session of two commits.
    Write(&'static str),
    /// Opens with a root of the other type, which is built from the one there is.
    Migrate(&'static str),
    Reopen,
}

use Act::*;

pub(super) const HISTORIES: &[(&str, &[Act])] = &[
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

const AFTERWARDS: &[&[Act]] = &[
    &[],
    &[Batch(&["a", "z"]), Remove("z")],
    &[Batch(&["a"]), Write("a"), Reopen, Replace("a")],
    &[Reopen, Batch(&["y", "z"]), Reopen],
    &[Migrate("a"), Migrate("a"), Reopen],
];

/// Names, and which elements lie under them, as a list or, with [`MOVED`] on top, in a [`Moved`].
pub(super) type Contents = BTreeMap<String, u64>;

const MOVED: u64 = 1 << 60;

/// What an object is migrated to, and back from.
#[derive(Persist)]
#[repr(C)]
struct Moved {
    elements: PVec<u64>,
    sum: u64,
}

/// A part of the address space for each thread.
static WINDOWS: AtomicU64 = AtomicU64::new(0);
const WINDOWS_BASE: u64 = 0x1800_0000_0000;
const WINDOW_BYTES: u64 = 64 << 30;

pub(super) fn new_window() -> Window {
    let base = WINDOWS_BASE + WINDOWS.fetch_add(1, Ordering::Relaxed) * WINDOW_BYTES;
    Window::new(base, base + WINDOW_BYTES).unwrap()
}

/// A program with a store.
pub(super) struct Program {
    pub(super) disk: SimulatedDisk,
    options: Options,
    store: Option<Store>,
    /// Every state that was ever tried.
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

    /// A value that no state had before.
    fn fresh(&self) -> u64 {
        self.states.len() as u64 * 1000 + 1
    }

    /// Says what is tried, tries it, and says that it was done.
    fn try_for(&mut self, next: Contents, act: impl FnOnce(&Store) -> Result<()>) -> Result<()> {
        let number = self.states.len() as u64;
        let stamp = Stamp { number, nonce: number };
        self.states.push((stamp, next.clone()));
        self.disk.mark(Mark::Attempt(stamp));
        act(self.store())?;
        self.disk.mark(Mark::Acknowledged(stamp, Outlives::PowerCut));
        self.now = next;
        Ok(())
    }

    pub(super) fn act(&mut self, act: Act) -> Result<()> {
        let value = self.fresh();
        let mut next = self.now.clone();
        match act {
            Make => {
                let stamp = Stamp { number: 0, nonce: 0 };
                self.states.push((stamp, Contents::new()));
                self.disk.mark(Mark::Attempt(stamp));
                self.store = Some(self.options.create_new("/s")?);
                self.disk.mark(Mark::Acknowledged(stamp, Outlives::PowerCut));
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

    /// The elements of an object as a value, and whether they are whole.
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

    /// Everything that can be found out, as one of the states there were.
    pub(super) fn look(&mut self, model: &Model) -> Result<(), String> {
        let mut found = Contents::new();
        for name in self.store().list().map_err(|e| e.to_string())? {
            let (value, whole) = self.value_of(&name).map_err(|e| format!("{name}: {e}"))?;
            if !whole {
                return Err(format!("{name} is a mix"));
            }
            found.insert(name, value);
        }
        // A store may have the same names and values twice in its life.
        let alike = || self.states.iter().filter(|(_, contents)| *contents == found);
        let state = alike().find(|(stamp, _)| model.allows(*stamp)).or(alike().next());
        let (stamp, _) = state.ok_or_else(|| format!("{found:?} never was"))?;
        self.disk.mark(Mark::Seen(*stamp));
        self.now = found;
        Ok(())
    }
}

/// Opens the store on what a cut left, judges, and cuts what that did in turn.
fn descend(
    window: Window,
    image: Image,
    (mut model, states): (Model, Vec<(Stamp, Contents)>),
    depth: usize,
    random: &mut Random,
    tally: &mut Tally,
) -> Result<(), String> {
    tally.cuts += 1;
    let acts = AFTERWARDS[random.below(AFTERWARDS.len())];
    let mut program = Program::new(image, window, states);
    let ran = catch_unwind(AssertUnwindSafe(|| -> Result<(), String> {
        match program.open() {
            Err(Error::NoStore { .. }) if !model.has_object() => {
                // What a creation left behind is in nobody's way.
                program.states.clear();
                model = Model::default();
                program.act(Make).map_err(|e| format!("making it again: {e}"))?;
            }
            other => {
                other.map_err(|e| e.to_string())?;
                program.look(&model)?;
            }
        }
        acts.iter().try_for_each(|act| match act {
            Remove(name) | Write(name) | Replace(name) | Migrate(name)
                if !program.now.contains_key(*name) =>
            {
                Ok(())
            }
            Write(name) if program.now[*name] & MOVED != 0 => Ok(()),
            act => program.act(*act).map_err(|e| format!("{act:?}: {e}")),
        })
    }));
    let trace = program.disk.trace();
    let states = program.states.clone();
    drop(program);
    let story = |why: String| format!("cut {}, then {acts:?}: {why}", depth + 1);
    ran.unwrap_or_else(|_| Err("a panic".to_string()))
        .map_err(|why| story(format!("{why}; {model}")))?;
    follow(&mut model.clone(), &trace.operations).map_err(story)?;
    if depth == 2 || !random.chance(1, 2) {
        return Ok(());
    }
    let cut = random.below(trace.operations.len() + 1);
    let mut before = trace.start.clone();
    for operation in &trace.operations[..cut] {
        before.happen(operation);
    }
    follow(&mut model, &trace.operations[..cut]).map_err(story)?;
    let (next, end) = stop(&before, trace.operations.get(cut), None, random);
    model.ended(end);
    descend(window, next, (model, states), depth + 1, random, tally).map_err(|why| {
        let at = trace.operations.get(cut).map_or("the end".to_string(), describe);
        format!("cut {}, then {acts:?} cut ({end:?}) at {cut}, {at};\n  {why}", depth + 1)
    })
}

pub(super) fn stop(
    before: &Image,
    next: Option<&Operation>,
    keep: Option<Keep>,
    random: &mut Random,
) -> (Image, End) {
    let mut image = before.clone();
    let end = if keep.is_none() && random.chance(1, 3) { End::Kill } else { End::PowerCut };
    if let Some(next) = next.filter(|_| random.chance(1, 2)) {
        image.happen_in_part(next, end == End::Kill, random);
    }
    match end {
        End::Kill => (image, end),
        End::PowerCut => (image.power_cut(keep, random), end),
    }
}

/// Runs a history of a store to its end: what happened, and the states there were.
pub(super) fn record(
    name: &str,
    acts: &[Act],
    window: Window,
) -> Result<(Trace, Vec<(Stamp, Contents)>), String> {
    let mut program = Program::new(Image::new(Medium::DISK), window, Vec::new());
    let ran = acts.iter().try_for_each(|act| program.act(*act));
    let (trace, states) = (program.disk.trace(), program.states.clone());
    drop(program);
    ran.map_err(|e| format!("history {name}: {e}"))?;
    Ok((trace, states))
}

/// Cuts every history of a store everywhere, with each of these seeds.
pub(super) fn explore_stores(seeds: std::ops::Range<u64>, tally: &mut Tally) -> Result<(), String> {
    let window = new_window();
    for (index, (name, acts)) in HISTORIES.iter().enumerate() {
        let (trace, states) = record(name, acts, window)?;
        let (mut before, mut model) = (trace.start.clone(), Model::default());
        for cut in 0..=trace.operations.len() {
            let next = trace.operations.get(cut);
            for seed in seeds.clone().filter(|_| next.is_none_or(Operation::matters)) {
                let mut random = Random::of(&[index as u64, cut as u64, seed]);
                let keep = match seed {
                    0 => Some(Keep::Nothing),
                    1 => Some(Keep::Everything),
                    _ => None,
                };
                let (image, end) = stop(&before, next, keep, &mut random);
                let mut model = model.clone();
                model.ended(end);
                let tried = (model, states.clone());
                descend(window, image, tried, 0, &mut random, tally).map_err(|why| {
                    let at = next.map_or("the end".to_string(), describe);
                    format!("store history={name} cut={cut} seed={seed} ({end:?} at {at})\n  {why}")
                })?;
            }
            if let Some(next) = next {
                before.happen(next);
                if let Operation::Mark(mark) = next {
                    model.follow(*mark)?;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn names_of_a_store_are_there_or_not_after_any_cut() {
    let first = super::first_seed();
    println!("EVERMAP_SIM_SEED={first}");
    let mut tally = Tally::default();
    if let Err(why) = explore_stores(first..first + 6, &mut tally) {
        panic!("{why}\n  EVERMAP_SIM_SEED={first} gives it back");
    }
    println!("{} cuts of stores, none judged wrong", tally.cuts);
    assert!(tally.cuts > 1000);
}
