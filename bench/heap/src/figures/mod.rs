//! Compares operations on whole objects with plain files: figures 8 and 9 of "Improving I/O
//! Performance in Smart TVs" (Lee, Hwang and Won), redrawn, on the disk and on `tmpfs`.
//!
//! The paper compares its library with `open`, `ftruncate`, `mmap` and `fsync`. That promises less
//! than an object does: the file's blocks are not reserved, so that a full disk causes a signal at
//! a later store. So files with `fallocate`, and with a flush of the folder when a name is added or
//! removed, are measured as well. All ways take turns.

mod chart;
mod objects;

use std::ffi::CString;
use std::path::Path;
use std::time::Instant;

use crate::Scale;
use chart::{Chart, Panel};
use harness::Outcome;
use harness::children;
use harness::files::Folder;
use harness::goals::Goals;
use harness::quiet::Awake;
use harness::samples::{Samples, figure, head, row};
use objects::{Files, Object, Objects};

const MIB: u64 = 1 << 20;
const SIZES_MIB: [u64; 4] = [1, 16, 64, 256];
const ROUNDS: usize = 21;
/// Goal for the median of the rounds, relative to plain files.
const GOAL: f64 = 1.2;
const MEMORY: &str = "/dev/shm";

/// Measured steps, in the order in which they happen to one object. It is created with the given
/// size and extended by the same size; nothing is stored in it. Reducing undoes the extension.
const STEPS: [&str; 9] = [
    "create",
    "unmap after creating",
    "map",
    "unmap",
    "map again",
    "extend",
    "reduce",
    "unmap after reducing",
    "delete",
];
/// Steps and titles of the figures. The other steps are in the table only: an object may defer work
/// until it is unmapped.
const FIGURES: [(&str, &str, &[&str]); 2] = [
    ("figure-8", "create, delete, extend, reduce", &["create", "delete", "extend", "reduce"]),
    ("figure-9", "map, unmap", &["map", "unmap"]),
];

/// Ways to measure; Evermap is the last.
const WAYS: [(&str, &str); 3] = [
    ("file", "file: open, ftruncate, mmap, fsync"),
    ("file-durable", "file: fallocate, folder flushed too"),
    ("evermap", "Evermap"),
];

fn way(name: &str, folder: &Path) -> Outcome<Box<dyn Object>> {
    Ok(match name {
        "file" => Box::new(Files::new(folder, false)?),
        "file-durable" => Box::new(Files::new(folder, true)?),
        "evermap" => Box::new(Objects::new(folder)?),
        _ => return Err(format!("unknown way: {name}").into()),
    })
}

/// Times of one place by size, way and step, in microseconds.
type Times = Vec<Vec<Vec<Samples>>>;

pub fn report(disk: &Folder, images: &Path, scale: Scale, goals: &mut Goals) -> Outcome {
    println!("\n### Operations on whole objects and on plain files\n");
    let memory = Path::new(MEMORY).join(format!("evermap-bench-{}", std::process::id()));
    let _memory = Folder::at(memory.clone())?;
    let _awake = Awake::new()?;
    let sizes: Vec<u64> = match scale.divisor {
        1 => SIZES_MIB.to_vec(),
        _ => vec![1, 4],
    };
    let places = [("disk", disk.join("figures")), ("tmpfs", memory)];
    let mut all = Vec::new();
    for (place, folder) in &places {
        std::fs::create_dir_all(folder)?;
        let times = measure(folder, &sizes, scale.rounds(ROUNDS))?;
        print(place, &sizes, &times);
        judge(place, &sizes, &times, goals);
        all.push((*place, times));
    }
    draw(images, &sizes, &all)
}

fn measure(folder: &Path, sizes: &[u64], rounds: usize) -> Outcome<Times> {
    let mut times: Times = vec![vec![vec![Samples::new(); STEPS.len()]; WAYS.len()]; sizes.len()];
    for (size, times) in sizes.iter().zip(&mut times) {
        let mut ways = Vec::new();
        for (name, _) in WAYS {
            ways.push(way(name, folder)?);
        }
        // Round 0 covers first-time costs, such as code and folders that are touched first.
        for round in 0..=rounds {
            for (way, times) in ways.iter_mut().zip(times.iter_mut()) {
                let mut length = 0;
                for (step, samples) in STEPS.iter().zip(times.iter_mut()) {
                    let start = Instant::now();
                    way.step(step, size * MIB)?;
                    let spent = start.elapsed();
                    if round > 0 {
                        samples.push_us(spent);
                    }
                    after(&mut **way, step, size * MIB, &mut length)?;
                }
            }
        }
        for way in &mut ways {
            way.end()?;
        }
    }
    Ok(times)
}

/// Runs between the clocks: fills a created object, and checks that the file's length has changed
/// as requested, with a tolerance of an eighth.
fn after(way: &mut dyn Object, step: &str, bytes: u64, length: &mut u64) -> Outcome {
    match step {
        "create" => way.fill(bytes)?,
        "map again" | "extend" | "reduce" => {
            let now = way.length()?;
            let changed = if step == "map again" { bytes } else { now.abs_diff(*length) };
            if changed < bytes - bytes / 8 {
                return Err(format!("{step}: {changed} bytes instead of {bytes}").into());
            }
            *length = now;
        }
        _ => {}
    }
    Ok(())
}

fn step_index(step: &str) -> usize {
    STEPS.iter().position(|name| *name == step).unwrap_or(0)
}

fn print(place: &str, sizes: &[u64], times: &Times) {
    head(&[
        place,
        "MiB",
        "open, ftruncate, mmap, fsync, us",
        "fallocate, folder flushed, us",
        "Evermap, us",
        "/ first",
        "/ second",
    ]);
    for step in STEPS {
        for (size, times) in sizes.iter().zip(times) {
            let of = |way: usize| &times[way][step_index(step)];
            let ratio = |way: usize| figure(of(2).median() / of(way).median());
            row(&[
                step.to_string(),
                size.to_string(),
                of(0).to_string(),
                of(1).to_string(),
                of(2).to_string(),
                ratio(0),
                ratio(1),
            ]);
        }
    }
    println!();
}

/// Judges each step and place at its worst size.
fn judge(place: &str, sizes: &[u64], times: &Times, goals: &mut Goals) {
    for step in FIGURES.iter().flat_map(|(.., steps)| *steps) {
        let at = step_index(step);
        let ratio = |t: &Vec<Vec<Samples>>| t[2][at].median() / t[0][at].median();
        let worst = sizes.iter().zip(times).max_by(|(_, a), (_, b)| ratio(a).total_cmp(&ratio(b)));
        if let Some((size, times)) = worst {
            let ours = &times[2][at];
            let what = format!("{step} on {place}, worst size: {size} MiB");
            let durable = figure(times[1][at].median());
            let file = format!("file (with fallocate, folder flushed: {durable}), us");
            let got = (ours.median(), format!("{ours} us"));
            goals.ratio(&what, GOAL, got, (times[0][at].median(), &file));
        }
    }
}

/// Writes the charts and their data.
fn draw(folder: &Path, sizes: &[u64], all: &[(&str, Times)]) -> Outcome {
    std::fs::create_dir_all(folder)?;
    let mut table = String::from("place,step,mib,way,median_us,least_us,most_us\n");
    for (name, title, steps) in FIGURES {
        let mut chart = Chart {
            title: format!("{title}: objects and files"),
            unit: "microseconds, logarithmic; median, min to max",
            series: WAYS.map(|(_, title)| title.to_string()).to_vec(),
            panels: Vec::new(),
            columns: steps.len(),
        };
        for (place, times) in all {
            for step in steps {
                let at = step_index(step);
                let bars = times.iter().map(|ways| {
                    ways.iter()
                        .map(|steps| (steps[at].median(), steps[at].min(), steps[at].max()))
                        .collect::<Vec<_>>()
                });
                let panel = Panel {
                    title: format!("{step}, {place}"),
                    groups: sizes.iter().map(|size| format!("{size} MiB")).collect(),
                    bars: bars.collect(),
                };
                for (size, bars) in sizes.iter().zip(&panel.bars) {
                    for ((way, _), (median, least, most)) in WAYS.iter().zip(bars) {
                        let line = format!("{place},{step},{size},{way},{median},{least},{most}\n");
                        table.push_str(&line);
                    }
                }
                chart.panels.push(panel);
            }
        }
        let path = folder.join(format!("{name}.svg"));
        std::fs::write(&path, chart.svg()?)?;
        println!("Drawn: `{}`", path.display());
    }
    Ok(std::fs::write(folder.join("figures.csv"), table)?)
}

/// Runs as the child: performs each step once on an object of this many MiB. Before each step it
/// makes a system call that marks it in `strace`: `strace -f -T bench-heap child steps evermap
/// FOLDER 16`.
pub fn child(name: &str, folder: &Path, numbers: &[u64]) -> Outcome {
    let &[size_mib] = numbers else { return Err("the size in MiB is missing".into()) };
    let mut way = way(name, folder)?;
    // Runs all steps once, so that first-time costs are not traced.
    let mut length = 0;
    for step in STEPS {
        way.step(step, size_mib * MIB)?;
        after(&mut *way, step, size_mib * MIB, &mut length)?;
    }
    let mut figures = Vec::new();
    for step in STEPS {
        let mark = CString::new(format!("/mark/{step}"))?;
        // SAFETY: the name is zero-terminated; the result does not matter.
        unsafe { libc::access(mark.as_ptr(), libc::F_OK) };
        let start = Instant::now();
        way.step(step, size_mib * MIB)?;
        figures.push((step, children::us_since(start)));
        // SAFETY: the name is zero-terminated; the result does not matter.
        unsafe { libc::access(c"/mark/between".as_ptr(), libc::F_OK) };
        after(&mut *way, step, size_mib * MIB, &mut length)?;
    }
    way.end()?;
    for (step, us) in figures {
        println!("{step}: {} us", figure(us));
    }
    Ok(())
}
