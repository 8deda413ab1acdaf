//! Makes the host of a virtual machine provide memory before a step.
//!
//! A virtual machine may report free memory to its host, which takes it away. The next access then
//! waits until the host has provided it again: 1 to 3 ms a megabyte on the machines of the
//! published figures, up to ten times what copying a megabyte takes. No measured program causes
//! that work. So before each measured step, and after the page cache was emptied, as much memory as
//! the step needs is touched and freed: the kernel allocates the most recently freed pages first.
//!
//! The kernel reports two seconds after memory came free, and again every two seconds while there
//! is memory to report. If a step needs much memory, the touched memory is therefore held until the
//! memory that the previous step freed has been reported, and freed then: the next report is two
//! seconds away. (Without that, of twelve loads of 1 GiB that take 430 ms three took 620 to 2,140,
//! of another twelve five 1,010 to 1,490.)

use std::time::Duration;

use memmap2::{Advice, MmapMut};

use crate::Outcome;

/// Additional memory for programs, pipes and file system metadata.
const BYTES_MORE: u64 = 48 << 20;
const PAGE_BYTES: usize = 4096;
/// Smaller requests are served from memory that the previous step left.
const HELD_BYTES_MIN: u64 = 256 << 20;
/// A little longer than the kernel's reporting delay.
const HELD: Duration = Duration::from_millis(2200);

/// Makes the host provide this much memory and a little more, then frees it. Touches at most half
/// of the available memory. Takes two seconds for large amounts.
pub fn warm(bytes: u64) -> Outcome {
    let is_held = bytes >= HELD_BYTES_MIN && reports();
    let bytes = (bytes + BYTES_MORE + (3 * bytes).min(512 << 20)).min(available_bytes()? / 2);
    let mut memory = MmapMut::map_anon(usize::try_from(bytes)?)?;
    // Without huge pages the kernel uses small ones.
    let _ = memory.advise(Advice::HugePage);
    for page in memory.chunks_mut(PAGE_BYTES) {
        page[0] = 1;
    }
    if is_held {
        std::thread::sleep(HELD);
    }
    Ok(())
}

/// Returns true if this may be a machine that reports free memory: it has a balloon device.
fn reports() -> bool {
    let devices = std::fs::read_dir("/sys/bus/virtio/drivers/virtio_balloon");
    devices.into_iter().flatten().flatten().any(|device| {
        let name = device.file_name();
        name.to_string_lossy().starts_with("virtio")
    })
}

/// Returns the memory that programs can still allocate.
pub fn available_bytes() -> Outcome<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.ok_or("/proc/meminfo has no MemAvailable")? * 1024)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn available_memory_is_a_plausible_number() {
        let bytes = available_bytes().unwrap();
        assert!(bytes > 1 << 20 && bytes < 1 << 50, "{bytes}");
        warm(1 << 20).unwrap();
    }
}
