//! Builds a GiB in a new object and commits it; the floor writes a GiB of prepared bytes and calls
//! fsync.
//!
//! The ways take turns, all with fresh files. The commit is durable when it returns, like the
//! fsync. On a virtual machine, memory that was free for a while costs a fault in the host; so
//! before each round memory is used and freed, and all ways begin with memory that the host
//! provides.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use evermap::{Mut, PVec, Persist, Store};

use super::work::Scale;
use harness::Outcome;
use harness::files::{Anonymous, Folder, warm};
use harness::goals::Goals;
use harness::samples::{Samples, figure, head, row};

const ROUNDS: usize = 5;
const GOAL: f64 = 1.2;
type Node = [u64; 8];
const NAME: &str = "built";

/// Times of one way, in milliseconds.
#[derive(Default)]
struct Times {
    build: Samples,
    together: Samples,
    close: Samples,
}

pub fn report(folder: &Folder, scale: Scale, goals: &mut Goals) -> Outcome {
    println!("\n### Building\n");
    let ways = [
        ("resize of a vector of words, commit", Way::Resize),
        ("nodes of 64 bytes pushed one by one, commit", Way::Push),
        ("write of prepared bytes, fsync", Way::Write),
    ];
    let mut ready = Anonymous::new(scale.bytes(), true)?;
    let mut times: [Times; 3] = Default::default();
    for _ in 0..scale.rounds(ROUNDS).min(ROUNDS) {
        for ((_, way), times) in ways.iter().zip(&mut times) {
            // Twice the memory of the round.
            warm(2 * scale.bytes())?;
            let path = folder.join("built");
            match way {
                Way::Write => write(&path, ready.words(), times)?,
                _ => build(&path, *way, scale, times)?,
            }
        }
    }
    head(&["way", "building or writing, ms", "with commit or fsync, ms", "/ write", "close, ms"]);
    let floor = times[2].together.median();
    for ((what, way), times) in ways.iter().zip(&times) {
        row(&[
            what.to_string(),
            times.build.to_string(),
            times.together.to_string(),
            figure(times.together.median() / floor),
            if *way == Way::Write { String::new() } else { times.close.to_string() },
        ]);
        if *way != Way::Write {
            let got = (times.together.median(), format!("{} ms", times.together));
            goals.ratio(&format!("bulk build: {what}"), GOAL, got, (floor, "write and fsync, ms"));
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Resize,
    Push,
    Write,
}

fn build(path: &Path, way: Way, scale: Scale, times: &mut Times) -> Outcome {
    let store = Store::create_new(path)?;
    match way {
        Way::Push => {
            let nodes = (scale.bytes() / size_of::<Node>()) as u64;
            timed::<Node>(&store, times, |mut built| built.extend((0..nodes).map(|n| [n; 8])))?;
        }
        _ => timed::<u64>(&store, times, |mut words| words.resize(scale.bytes() / 8, 1))?,
    }
    drop(store);
    Ok(std::fs::remove_dir_all(path)?)
}

/// Fills a vector in a new object, commits and closes it.
fn timed<T: Persist>(
    store: &Store,
    times: &mut Times,
    fill: impl FnOnce(Mut<'_, PVec<T>>) -> Result<(), evermap::HeapError>,
) -> Outcome {
    store.create::<PVec<T>, _>(NAME, PVec::new())?;
    let mut session = store.write::<PVec<T>>(NAME)?;
    let start = Instant::now();
    fill(session.root_mut())?;
    times.build.push_ms(start.elapsed());
    session.commit()?;
    times.together.push_ms(start.elapsed());
    let start = Instant::now();
    session.close()?;
    times.close.push_ms(start.elapsed());
    Ok(())
}

fn write(path: &Path, ready: &[u64], times: &mut Times) -> Outcome {
    // SAFETY: any word is valid as bytes, and the slice has the same extent.
    let bytes =
        unsafe { std::slice::from_raw_parts(ready.as_ptr().cast::<u8>(), size_of_val(ready)) };
    let mut file = File::create_new(path)?;
    let start = Instant::now();
    file.write_all(bytes)?;
    times.build.push_ms(start.elapsed());
    file.sync_all()?;
    times.together.push_ms(start.elapsed());
    Ok(std::fs::remove_file(path)?)
}
