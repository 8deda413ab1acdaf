//! Memory that the host has given.
//!
//! A virtual machine may report free memory to its host, which takes it away; whoever touches it next
//! waits until the host has given it again. On the machine of the published figures that is 3 ms a
//! megabyte, ten times what zeroing takes. It hits who asks for large pages, as heaps do; small ones
//! come from what was freed a moment ago. Neither is the work of a file or of a heap, so before each
//! measured step as much memory as any of them needs is touched and freed.

use memmap2::{Advice, MmapMut};

use crate::Outcome;

/// More than what a step fills, of files, heaps and memory together.
const BYTES: usize = 640 << 20;
const PAGE_BYTES: usize = 4096;

/// Has the host give memory, and frees it.
pub fn warm() -> Outcome {
    let mut memory = MmapMut::map_anon(BYTES)?;
    // Where there are no large pages it is small ones.
    let _ = memory.advise(Advice::HugePage);
    for page in memory.chunks_mut(PAGE_BYTES) {
        page[0] = 1;
    }
    Ok(())
}
