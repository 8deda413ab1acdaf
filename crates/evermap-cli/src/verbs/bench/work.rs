//! The work of a process of `bench load`: loads a file, touches its pages, and measures the cost.

use std::time::Instant;

use evermap_load::{Image, Loader};
use evermap_observe::Moment;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

const PAGE_BYTES: usize = 4096;
const LINE_BYTES: usize = 64;
/// Any constant: all processes must touch the same pages.
const SEED: u64 = 2005;

/// Cost of one load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Run {
    /// The method, its reason, and the methods that were tried before.
    pub(super) why: String,
    pub(super) first_use_s: f64,
    pub(super) finish_s: f64,
    /// Measured until all background work of the load has ended.
    pub(super) usage: Usage,
    pub(super) residency: Residency,
    pub(super) checksum: u64,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Usage {
    pub(super) user_s: f64,
    pub(super) system_s: f64,
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
}

/// Parts of the image that are in memory.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Residency {
    pub(super) private_bytes: u64,
    pub(super) huge_bytes: u64,
    pub(super) cached_bytes: u64,
    pub(super) duplicate_bytes: u64,
}

/// The pages to touch, in order. The flag of a page is true if it is written.
#[derive(Debug)]
pub(super) struct Work {
    pages: Vec<(u32, bool)>,
    is_written: bool,
}

impl Work {
    /// Chooses the given percentages of a file's pages to touch and to write. They are the first
    /// pages of a fixed permutation, sorted unless `is_random` is set.
    pub(super) fn new(bytes: u64, (touched, written): (u8, u8), is_random: bool) -> Work {
        let count = u32::try_from(bytes.div_ceil(PAGE_BYTES as u64)).unwrap_or(u32::MAX);
        let mut all: Vec<u32> = (0..count).collect();
        let mut state = SEED;
        for last in (1..all.len()).rev() {
            all.swap(last, (random(&mut state) % (last as u64 + 1)) as usize);
        }
        let part = |percent: u8| {
            let pages = (f64::from(count) * f64::from(percent) / 100.0).round() as usize;
            if percent > 0 { pages.max(1) } else { 0 }
        };
        let written = part(written.min(touched));
        all.truncate(part(touched));
        let mut pages: Vec<(u32, bool)> =
            all.into_iter().enumerate().map(|(place, page)| (page, place < written)).collect();
        if !is_random {
            pages.sort_unstable();
        }
        Work { pages, is_written: written > 0 }
    }
}

/// Returns the next number of SplitMix64 (Steele, Lea and Flood).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Loads the file and touches the pages.
pub(super) fn run(loader: &Loader, work: &Work) -> Result<Run, Failure> {
    let mut checksum = 0;
    let (begun, start) = (Moment::now(), Instant::now());
    let mut image = loader.load()?;
    let (first, others) = work.pages.split_at(work.pages.len().min(1));
    touch(&mut image, first, work.is_written, &mut checksum)?;
    let first_use_s = start.elapsed().as_secs_f64();
    touch(&mut image, others, work.is_written, &mut checksum)?;
    let finish_s = start.elapsed().as_secs_f64();
    image.wait()?;
    let usage = begun.since();
    let residency = image.residency();
    Ok(Run {
        why: image.why(),
        first_use_s,
        finish_s,
        usage: Usage {
            user_s: usage.user_s,
            system_s: usage.system_s,
            minor_faults: usage.minor_faults,
            major_faults: usage.major_faults,
        },
        residency: Residency {
            private_bytes: residency.private_bytes,
            huge_bytes: residency.huge_bytes,
            cached_bytes: residency.cached_bytes,
            duplicate_bytes: residency.duplicate_bytes,
        },
        checksum,
    })
}

/// Reads each page, or reads and writes one byte in each of its cache lines.
fn touch(
    image: &mut Image,
    pages: &[(u32, bool)],
    is_written: bool,
    checksum: &mut u64,
) -> Result<(), Failure> {
    if !is_written {
        pages.iter().for_each(|(page, _)| read(part(image, *page), checksum));
        return Ok(());
    }
    let bytes = image.bytes_mut()?;
    for (page, is_written) in pages {
        let end = bytes.len().min((*page as usize + 1) * PAGE_BYTES);
        let part = &mut bytes[*page as usize * PAGE_BYTES..end];
        match is_written {
            false => read(part, checksum),
            true => write(part, checksum),
        }
    }
    Ok(())
}

fn part(bytes: &[u8], page: u32) -> &[u8] {
    let begin = page as usize * PAGE_BYTES;
    &bytes[begin..bytes.len().min(begin + PAGE_BYTES)]
}

fn read(page: &[u8], checksum: &mut u64) {
    let words = page.chunks(8).map(|word| {
        let mut bytes = [0; 8];
        bytes[..word.len()].copy_from_slice(word);
        u64::from_le_bytes(bytes)
    });
    *checksum = words.fold(*checksum, u64::wrapping_add);
}

fn write(page: &mut [u8], checksum: &mut u64) {
    for line in page.chunks_mut(LINE_BYTES) {
        *checksum = checksum.wrapping_add(u64::from(line[0]));
        line[0] ^= 1;
        *checksum = checksum.wrapping_add(u64::from(std::hint::black_box(line[0])));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_given_percentages_are_touched_and_written_in_either_order() {
        let bytes = 1000 * PAGE_BYTES as u64 - 7;
        let work = Work::new(bytes, (50, 10), false);
        assert_eq!((work.pages.len(), work.pages.is_sorted()), (500, true));
        assert_eq!(work.pages.iter().filter(|(_, is_written)| *is_written).count(), 100);
        let mut random = Work::new(bytes, (50, 10), true);
        assert!(!random.pages.is_sorted());
        random.pages.sort_unstable();
        assert_eq!(random.pages, work.pages);
        assert!(!Work::new(bytes, (100, 0), false).is_written);
        assert_eq!(Work::new(0, (100, 100), false).pages.len(), 0);
    }

    #[test]
    fn a_partial_page_is_read_and_written_to_its_end() {
        let mut checksum = 0;
        read(&[1; 9], &mut checksum);
        assert_eq!(checksum, 0x0101_0101_0101_0102);
        let mut page = [2; 65];
        write(&mut page, &mut checksum);
        assert_eq!((page[0], page[1], page[64]), (3, 2, 3));
    }
}
