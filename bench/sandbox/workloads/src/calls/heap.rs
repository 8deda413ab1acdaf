//! calls in a heap: copies a block out of mapped memory, or into it.

use evermap_guest::Heap;

use super::{Medium, NAME, bytes, contents, measure};
use crate::error::Outcome;
use crate::hash::checksum_of;
use crate::named;
use crate::options::Options;
use crate::report::{Report, Watch};

const REMEDY: &str = "it was just made";

/// Runs the measurement. The first round warms up and does not count.
pub fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let bytes = bytes(options);
    let mut heap = Heap::open(NAME)?;
    named::replace(&mut heap, NAME, bytes)?.write_copy_of_slice(&contents(bytes));
    heap.commit()?;

    let block = heap.block_mut(NAME)?.unwrap_or_default();
    measure(options, bytes, &mut InHeap { block, at: 0 }, report)?;
    if options.check {
        report.checksum(checksum_of(named::in_heap(&heap, NAME, REMEDY)?))?;
    }
    let mut watch = Watch::start();
    heap.commit()?;
    report.time("commit_changed", watch.lap())?;
    heap.commit()?;
    report.time("commit_unchanged", watch.lap())?;
    Ok(heap.close()?)
}

struct InHeap<'a> {
    block: &'a mut [u8],
    at: usize,
}

impl InHeap<'_> {
    fn next(&mut self, bytes: usize) -> &mut [u8] {
        let at = self.at;
        self.at += bytes;
        &mut self.block[at..at + bytes]
    }
}

impl Medium for InHeap<'_> {
    fn rewind(&mut self) -> Outcome<()> {
        self.at = 0;
        Ok(())
    }

    fn read(&mut self, block: &mut [u8]) -> Outcome<()> {
        block.copy_from_slice(self.next(block.len()));
        Ok(())
    }

    fn write(&mut self, block: &[u8]) -> Outcome<()> {
        self.next(block.len()).copy_from_slice(block);
        Ok(())
    }
}
