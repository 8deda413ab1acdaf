//! Memory that the host has given.
//!
//! A virtual machine may report free memory to its host, which takes it away; whoever touches it next waits until the
//! host has given it again: 1 to 3 ms a megabyte on the machines of the published figures, up to ten times what copying a
//! megabyte takes. That is not the work of any program that is measured. So before each measured step, and after the page
//! cache was emptied, as much memory as the step needs is touched and freed: the kernel gives out first what was freed last.
//!
//! It reports two seconds after memory came free, and again every two seconds while there is some to report. So where a step needs much,
//! what was touched is held until what the step before it freed has been reported, and freed then: the next report is two seconds away.
//! (Without that, of twelve loads of 1 GiB that take 430 ms three took 620 to 2,140, of another twelve five 1,010 to 1,490.)

use std::time::Duration;

use memmap2::{Advice, MmapMut};

use crate::Outcome;

/// Room for programs, pipes and what file systems note.
const BYTES_MORE: u64 = 48 << 20;
const PAGE_BYTES: usize = 4096;
/// Less comes from what is left of the step before.
const HELD_BYTES_MIN: u64 = 256 << 20;
/// A little longer than until the kernel reports.
const HELD: Duration = Duration::from_millis(2200);

/// Has the host give this much memory and a little more, and frees it. At most half of what is available. Takes two seconds if it is much.
pub fn warm(bytes: u64) -> Outcome {
    let is_held = bytes >= HELD_BYTES_MIN && reports();
    let bytes = (bytes + BYTES_MORE + (3 * bytes).min(512 << 20)).min(available_bytes()? / 2);
    let mut memory = MmapMut::map_anon(usize::try_from(bytes)?)?;
    // Where there are no large pages it is small ones.
    let _ = memory.advise(Advice::HugePage);
    for page in memory.chunks_mut(PAGE_BYTES) {
        page[0] = 1;
    }
    if is_held {
        std::thread::sleep(HELD);
    }
    Ok(())
}

/// Whether this may be a machine that reports: it has the device that does.
fn reports() -> bool {
    let devices = std::fs::read_dir("/sys/bus/virtio/drivers/virtio_balloon");
    devices.into_iter().flatten().flatten().any(|device| {
        let name = device.file_name();
        name.to_string_lossy().starts_with("virtio")
    })
}

/// What programs could still have.
pub fn available_bytes() -> Outcome<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kib.ok_or("/proc/meminfo does not say what is available")? * 1024)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_is_available_is_less_than_a_petabyte_and_more_than_nothing() {
        let bytes = available_bytes().unwrap();
        assert!(bytes > 1 << 20 && bytes < 1 << 50, "{bytes}");
        warm(1 << 20).unwrap();
    }
}
