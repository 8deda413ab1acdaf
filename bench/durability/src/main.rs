//! Measures durability: the cost of commits compared with the disk's floor and with other engines,
//! and the cost of stores, opening, bulk building and bytes written.
//!
//! All engines do the same work in the same run: a GiB of pages of 4 KiB (values under numbers in
//! key-value engines), of which 1, 100 or 10,000, chosen at random, are changed and made durable
//! together. Either eight bytes of each are changed, or all of it. Everything is in the page cache,
//! except in rows named "read anew". The run keeps all processors from sleeping.

mod building;
mod commits;
mod engines;
mod fresh_memory;
mod opening;
mod peers;
mod sessions;
mod stores;
mod work;
mod written;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use harness::Outcome;
use harness::area::{Area, unknown_child};
use harness::machine::{self, Remarks};
use harness::options::{Choices, Options};
use harness::quiet::Awake;

use engines::evermap::Evermap;
use work::Scale;

/// Bench that a section receives.
type Bench = harness::bench::Bench<Own>;

struct Own {
    scale: Scale,
    /// The object that several sections change, made by the first of them.
    evermap: Option<Evermap>,
}

/// Sections that need the object's pages in the cache run before the one that drops them.
const AREA: Area<Own> = Area {
    name: "durability",
    choices: Choices::NONE,
    sections: &[
        ("peers", peers),
        ("stores", stores),
        ("commits", commits),
        ("opening", opening),
        ("building", building),
        ("sessions", sessions::report),
        ("fresh-memory", fresh_memory::report),
    ],
    start,
    child,
};

fn main() -> ExitCode {
    AREA.main()
}

fn start(options: Options) -> Outcome<Bench> {
    let own = Own { scale: Scale::new(options.quick), evermap: None };
    let mut bench = Bench::new(options, own)?;
    machine::describe(&mut bench, &Remarks::default())?;
    Ok(bench)
}

fn child(start: Instant, arguments: &[&str]) -> Outcome {
    match *arguments {
        ["read", store, repeats] => opening::child_read(start, store, repeats.parse()?),
        ["leave", store, pages] => opening::child_leave(store, pages.parse()?),
        ["map", file, repeats] => opening::child_map(file, repeats.parse()?),
        _ => unknown_child(arguments),
    }
}

fn store(bench: &Bench) -> Outcome<PathBuf> {
    Ok(bench.folder("object")?.join("store"))
}

/// Returns the object. The section gives it back, unless it is the last one that needs it.
fn take_evermap(bench: &mut Bench) -> Outcome<Evermap> {
    match bench.own.evermap.take() {
        Some(evermap) => Ok(evermap),
        None => Evermap::new(&store(bench)?, bench.own.scale),
    }
}

/// Removes the object, so that its disk space is free for the next section.
fn remove_evermap(bench: &mut Bench) -> Outcome {
    bench.own.evermap = None;
    Ok(std::fs::remove_dir_all(bench.folder("object")?)?)
}

fn peers(bench: &mut Bench) -> Outcome {
    let (folder, scale) = (bench.temporary("peers")?, bench.own.scale);
    let mut evermap = take_evermap(bench)?;
    let _awake = Awake::new()?;
    let own = peers::measure(&mut evermap, scale)?;
    bench.own.evermap = Some(evermap);
    peers::report(own, &folder, scale, &mut bench.goals)
}

fn stores(bench: &mut Bench) -> Outcome {
    let mut evermap = take_evermap(bench)?;
    let _awake = Awake::new()?;
    stores::report(&mut evermap, bench.own.scale, &mut bench.goals)?;
    bench.own.evermap = Some(evermap);
    Ok(())
}

fn commits(bench: &mut Bench) -> Outcome {
    let folder = bench.temporary("commits")?;
    let mut evermap = take_evermap(bench)?;
    let _awake = Awake::new()?;
    commits::report(&mut evermap, &folder, bench.own.scale, &mut bench.goals)?;
    bench.own.evermap = Some(evermap);
    Ok(())
}

fn opening(bench: &mut Bench) -> Outcome {
    drop(take_evermap(bench)?);
    let _awake = Awake::new()?;
    opening::report(&store(bench)?, bench.own.scale, &mut bench.goals)?;
    remove_evermap(bench)?;
    let folder = bench.temporary("numbers")?;
    opening::report_numbers(folder.path(), bench.own.scale, &mut bench.goals)
}

fn building(bench: &mut Bench) -> Outcome {
    remove_evermap(bench)?;
    let folder = bench.temporary("building")?;
    let _awake = Awake::new()?;
    building::report(&folder, bench.own.scale, &mut bench.goals)
}
