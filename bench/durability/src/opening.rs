//! Opens the object for reading in a new process: with an empty log, and with the log of a process
//! that was killed after a thousand commits.
//!
//! The floor is the cost for any program that maps the same file: it opens the file, gets its
//! length, maps it, and reads a byte of its first page. The first time in a process includes
//! functions and page tables that are touched for the first time; so repeated openings in the same
//! process are measured, too.
//!
//! The same in stores with few and with many objects: the cost must not depend on their number.

use std::fs::File;
use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use evermap::Store;

use super::engines::evermap::{NAME, Words, store};
use super::work::{Change, Scale, Work};
use harness::children::{print, us_since};
use harness::files::text;
use harness::goals::Goals;
use harness::random::Random;
use harness::samples::{Samples, figure, head, row};
use harness::{Outcome, children};

const ROUNDS: usize = 31;
const REPEATS: &str = "30";
const COMMITS: usize = 1000;
/// Objects in the stores to compare.
const OBJECTS: [usize; 3] = [3, 3_000, 100_000];
/// Objects that are created by one commit of the catalog.
const BATCH: usize = 2000;

pub fn report(path: &Path, scale: Scale, goals: &mut Goals) -> Outcome {
    println!("\n### Opening for reading\n");
    let uuid = Store::open(path)?.info(NAME)?.uuid;
    let file = path.join("objects").join(uuid);
    let log = file.with_extension("log");
    let empty = measure(path, &file, scale)?;
    leave_log(path, scale)?;
    let log_bytes = std::fs::metadata(&log)?.len();
    let full = measure(path, &file, scale)?;
    head(&[
        "log",
        "store, us",
        "object and root, us",
        "again, us",
        "floor: open and map the file, us",
        "again, us",
    ]);
    empty.print("empty");
    full.print(&format!("{COMMITS} records of a killed process ({log_bytes} bytes)"));
    for (what, most, times) in
        [("log empty", 100.0, &empty), ("1,000 records in the log", 3000.0, &full)]
    {
        let floor = format!("open and map: {}", figure(times.floor.median()));
        for (how, samples) in [("first time", &times.object), ("again", &times.again)] {
            goals.at_most(
                &format!("open for reading, {what}, {how} in a new process"),
                (most, "us"),
                (samples.median(), format!("{samples} us")),
                floor.clone(),
            );
        }
    }
    Ok(())
}

/// Compares stores of different numbers of objects. Their processes take turns.
pub fn report_numbers(folder: &Path, scale: Scale, goals: &mut Goals) -> Outcome {
    println!("\n### Opening a store and one of its objects, by the number of objects\n");
    let numbers = OBJECTS.map(|number| (number / scale.divisor).max(3));
    let stores = numbers.map(|number| folder.join(number.to_string()));
    for (path, number) in stores.iter().zip(numbers) {
        create_objects(path, number)?;
    }
    let mut times: [(Samples, Samples); OBJECTS.len()] = Default::default();
    for _ in 0..scale.rounds(ROUNDS) {
        for (path, (store, whole)) in stores.iter().zip(&mut times) {
            let child = children::run(&["read", text(path)?, "1"])?;
            let store_us = child.figure("store_us")?;
            store.push(store_us);
            whole.push(store_us + child.figure("object_us")?);
        }
    }
    head(&["objects", "store, us", "store, object and root, us", "of the first line"]);
    for (number, (store, whole)) in numbers.iter().zip(&times) {
        let ratio = whole.ratios(&times[0].1).to_string();
        row(&[number.to_string(), store.to_string(), whole.to_string(), ratio]);
    }
    let ratio = times[OBJECTS.len() - 1].1.ratios(&times[0].1);
    goals.at_most(
        &format!("open in a store of {} objects", numbers[OBJECTS.len() - 1]),
        (1.2, ""),
        (ratio.median(), format!("{ratio} x")),
        format!("a store of {} objects", numbers[0]),
    );
    Ok(())
}

fn create_objects(path: &Path, number: usize) -> Outcome {
    let store = Store::create_new(path)?;
    store.create::<Words, _>(NAME, [7])?;
    let others: Vec<usize> = (1..number).collect();
    for batch in others.chunks(BATCH) {
        let mut objects = store.batch()?;
        for other in batch {
            objects.create::<u64, _>(&format!("object-{other}"), *other as u64)?;
        }
        objects.commit()?;
    }
    Ok(())
}

#[derive(Default)]
struct Times {
    store: Samples,
    object: Samples,
    again: Samples,
    floor: Samples,
    floor_again: Samples,
}

impl Times {
    fn print(&self, what: &str) {
        row(&[
            what.to_string(),
            self.store.to_string(),
            self.object.to_string(),
            self.again.to_string(),
            self.floor.to_string(),
            self.floor_again.to_string(),
        ]);
    }
}

fn measure(path: &Path, file: &Path, scale: Scale) -> Outcome<Times> {
    let mut times = Times::default();
    for _ in 0..scale.rounds(ROUNDS) {
        let child = children::run(&["read", text(path)?, REPEATS])?;
        times.store.push(child.figure("store_us")?);
        times.object.push(child.figure("object_us")?);
        times.again.push(child.figure("again_us")?);
        let child = children::run(&["map", text(file)?, REPEATS])?;
        times.floor.push(child.figure("map_us")?);
        times.floor_again.push(child.figure("again_us")?);
    }
    Ok(times)
}

/// Runs a child that commits repeatedly and then kills itself.
fn leave_log(path: &Path, scale: Scale) -> Outcome {
    let pages = scale.pages.to_string();
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["child", "leave", text(path)?, &pages]).stdin(Stdio::null());
    let status = command.status()?;
    match status.signal() {
        Some(libc::SIGKILL) => Ok(()),
        _ => Err(format!("the child that leaves its log: {status}").into()),
    }
}

/// Runs as the child that is killed with its session open.
pub fn child_leave(path: &str, pages: u64) -> Outcome {
    let scale = Scale { pages, divisor: 1 };
    let store_of = Store::open(path)?;
    let mut session = store_of.write::<Words>(NAME)?;
    let mut random = Random::new(4);
    for _ in 0..COMMITS {
        store(&mut session, &Work::new(&mut random, scale, Change::EightBytes, 1));
        session.commit()?;
    }
    // SAFETY: the signal goes to this process only.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    Err("SIGKILL did not end this process".into())
}

/// Runs as the child that opens the object once, and then repeatedly.
pub fn child_read(start: Instant, path: &str, repeats: usize) -> Outcome {
    let store = Store::open(path)?;
    let store_us = us_since(start);
    let mut again = Samples::new();
    let mut first = 0.0;
    for round in 0..=repeats {
        let start = Instant::now();
        let snapshot = store.read::<Words>(NAME)?;
        black_box(snapshot.len());
        match round {
            0 => first = us_since(start),
            _ => again.push(us_since(start)),
        }
    }
    print(&[("store_us", store_us), ("object_us", first), ("again_us", again.median())]);
    Ok(())
}

/// Runs as the child that maps the same file.
pub fn child_map(path: &str, repeats: usize) -> Outcome {
    let mut again = Samples::new();
    let mut first = 0.0;
    for round in 0..=repeats {
        let start = Instant::now();
        map(path)?;
        match round {
            0 => first = us_since(start),
            _ => again.push(us_since(start)),
        }
    }
    print(&[("map_us", first), ("again_us", again.median())]);
    Ok(())
}

/// Maps the file and leaves it mapped, because the clock of opening excludes unmapping, too.
fn map(path: &str) -> Outcome {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len() as usize;
    // SAFETY: creates a new mapping at an address that the kernel chooses, and reads a byte inside
    // it.
    unsafe {
        let fd = file.as_raw_fd();
        let place =
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0);
        if place == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        black_box(place.cast::<u8>().read_volatile());
    }
    Ok(())
}
