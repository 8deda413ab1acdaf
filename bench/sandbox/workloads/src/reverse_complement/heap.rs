//! reverse-complement from heap to heap: reads and writes sequences in place.

use evermap_guest::{Heap, Snapshot};

use super::{NAME, reverse_complement};
use crate::error::Outcome;
use crate::fasta;
use crate::hash::checksum_of;
use crate::lines::MemoryLines;
use crate::named;
use crate::options::Options;
use crate::report::{Report, Watch};

const REMEDY: &str = "write it with `fasta heap run`";

/// Runs the program.
pub fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let mut watch = Watch::start();
    let snapshot = Snapshot::open(fasta::NAME)?;
    let text = named::in_snapshot(&snapshot, fasta::NAME, REMEDY)?;
    let mut heap = Heap::open(NAME)?;
    // Equal letters and equal line lengths give equal size.
    let mut lines = MemoryLines { rest: named::replace(&mut heap, NAME, text.len())? };
    let mut starts = memchr::memchr_iter(b'>', text).peekable();
    while let Some(start) = starts.next() {
        let end = starts.peek().copied().unwrap_or(text.len());
        reverse_complement(&text[start + 1..end], &mut lines)?;
    }
    report.time("time", watch.lap())?;
    heap.commit()?;
    report.time("durable", watch.lap())?;
    report.count("output", text.len() as u64, "bytes")?;
    if options.check {
        report.checksum(checksum_of(named::in_heap(&heap, NAME, REMEDY)?))?;
    }
    Ok(heap.close()?)
}
