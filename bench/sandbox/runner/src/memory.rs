//! Makes the host of a virtual machine provide memory before a step.
//!
//! A virtual machine may report free memory to its host, which takes it away. The next access waits
//! until the host has provided it again. On the machine of the published figures that takes 3 ms a
//! megabyte, ten times as long as zeroing. It affects requests for large pages, as heaps make them;
//! small pages come from recently freed memory. Neither a file nor a heap causes that work, so
//! before each measured step as much memory as any step needs is touched and freed.

use memmap2::{Advice, MmapMut};

use crate::Outcome;

/// More memory than a step uses for files, heaps and other data together.
const BYTES: usize = 640 << 20;
const PAGE_BYTES: usize = 4096;

/// Makes the host provide memory, then frees it.
pub fn warm() -> Outcome {
    let mut memory = MmapMut::map_anon(BYTES)?;
    // Without huge pages the kernel uses small ones.
    let _ = memory.advise(Advice::HugePage);
    for page in memory.chunks_mut(PAGE_BYTES) {
        page[0] = 1;
    }
    Ok(())
}
