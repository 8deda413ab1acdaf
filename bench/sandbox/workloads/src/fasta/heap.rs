//! fasta into a heap: lines are written directly into a named block.

use evermap_guest::Heap;

use super::{NAME, Shape, write};
use crate::error::Outcome;
use crate::hash::checksum_of;
use crate::lines::MemoryLines;
use crate::named;
use crate::options::Options;
use crate::report::{Report, Watch};

const REMEDY: &str = "write it with `fasta heap run`";

/// Writes the text.
pub fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let shape = Shape::of(options);
    let mut watch = Watch::start();
    let mut heap = Heap::open(NAME)?;
    let rest = named::replace(&mut heap, NAME, shape.bytes())?;
    write(shape, &mut MemoryLines { rest })?;
    report.time("time", watch.lap())?;
    heap.commit()?;
    report.time("durable", watch.lap())?;
    report.count("output", shape.bytes() as u64, "bytes")?;
    if options.check {
        report.checksum(checksum_of(named::in_heap(&heap, NAME, REMEDY)?))?;
    }
    Ok(heap.close()?)
}
