//! snappy in heaps: inputs are named blocks of one heap, outputs of another.
//!
//! There are two heaps, like the two folders of the file variants. The input heap is only read, so
//! it is opened as a snapshot, whose pages are mapped many at a time.

use std::path::PathBuf;

use evermap_guest::{Heap, Snapshot};

use super::{CACHE, COMPRESSED, Check, Compressor, LIST, Totals, list};
use crate::blocks;
use crate::error::{Outcome, damaged};
use crate::named;
use crate::options::Options;
use crate::report::{Report, Watch};

const REMEDY: &str = "copy the cache into it with `snappy heap prepare`";

/// Copies the cache into the heap.
pub fn prepare(options: &Options, report: &mut Report) -> Outcome<()> {
    let mut watch = Watch::start();
    let mut heap = Heap::open(CACHE)?;
    let (mut contents, names) = (Vec::new(), list(options)?);
    for name in names.iter().map(String::as_str).chain([LIST]) {
        let path = options.file(CACHE).join(name);
        blocks::read_into(&path, options.block_bytes, &mut contents)?;
        named::replace(&mut heap, name, contents.len())?.write_copy_of_slice(&contents);
    }
    report.time("time", watch.lap())?;
    heap.commit()?;
    report.time("durable", watch.lap())?;
    report.count("files", names.len() as u64, "files")?;
    Ok(heap.close()?)
}

/// Compresses all inputs.
pub fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    remove_outputs()?;
    let mut watch = Watch::start();
    let cache = Snapshot::open(CACHE)?;
    let mut heap = Heap::open(COMPRESSED)?;
    let names = names(&cache)?;
    let (mut compressor, mut totals) = (Compressor::new(), Totals::default());
    for name in &names {
        let input = named::in_snapshot(&cache, name, REMEDY)?;
        let output = compressor.compress(input);
        let output = output.map_err(|error| damaged(&path(name), error.to_string()))?;
        totals.add(input, output);
        named::replace(&mut heap, name, output.len())?.write_copy_of_slice(output);
    }
    report.time("time", watch.lap())?;
    heap.commit()?;
    report.time("durable", watch.lap())?;
    totals.write_to(report)?;
    if options.check {
        let mut check = Check::default();
        for name in &names {
            let input = named::in_snapshot(&cache, name, REMEDY)?;
            check.file(&path(name), input, named::in_heap(&heap, name, REMEDY)?)?;
        }
        check.write_to(report)?;
    }
    Ok(heap.close()?)
}

/// Removes old outputs before each run, as the file variants do.
fn remove_outputs() -> Outcome<()> {
    let names = names(&Snapshot::open(CACHE)?)?;
    let mut heap = Heap::open(COMPRESSED)?;
    for name in names {
        heap.free_named(&name)?;
    }
    heap.commit()?;
    Ok(heap.close()?)
}

fn names(cache: &Snapshot) -> Outcome<Vec<String>> {
    super::names(named::in_snapshot(cache, LIST, REMEDY)?, &path(LIST))
}

/// Path of an input, for messages.
fn path(name: &str) -> PathBuf {
    PathBuf::from(format!("heap {CACHE}: {name}"))
}
