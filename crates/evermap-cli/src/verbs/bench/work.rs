//! What a process of `bench load` does: loads a file, touches pages of it, and notes what that took.

use std::time::Instant;

use evermap_load::{Image, Loader};
use evermap_observe::Moment;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

const PAGE_BYTES: usize = 4096;
const LINE_BYTES: usize = 64;
/// Any that stays the same: all touch the same pages.
const SEED: u64 = 2005;

/// What one load took.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Run {
    /// The method, its reason, and what was tried before.
    pub(super) why: String,
    pub(super) first_use_s: f64,
    pub(super) finish_s: f64,
    /// Until everything that was begun was over.
    pub(super) usage: Used,
    pub(super) residency: Held,
    pub(super) checksum: u64,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Used {
    pub(super) user_s: f64,
    pub(super) system_s: f64,
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
}

/// What of the image is in memory.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Held {
    pub(super) private_bytes: u64,
    pub(super) huge_bytes: u64,
    pub(super) cached_bytes: u64,
    pub(super) duplicate_bytes: u64,
}

/// Pages in the order in which they are touched, and whether each is written.
#[derive(Debug)]
pub(super) struct Work {
    pages: Vec<(u32, bool)>,
    is_written: bool,
}

impl Work {
    /// Of a file of this size, these percents touched and written: the beginning of one permutation, which stays, or is sorted.
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

/// Steele, Lea and Flood's splitmix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Loads and works.
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
        usage: Used {
            user_s: usage.user_s,
            system_s: usage.system_s,
            minor_faults: usage.minor_faults,
            major_faults: usage.major_faults,
        },
        residency: Held {
            private_bytes: residency.private_bytes,
            huge_bytes: residency.huge_bytes,
            cached_bytes: residency.cached_bytes,
            duplicate_bytes: residency.duplicate_bytes,
        },
        checksum,
    })
}

/// Reads all of each page, or reads and writes a byte in each cache line of it.
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
    fn so_much_is_touched_and_written_as_was_asked_in_either_order() {
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
    fn a_page_that_ends_early_counts_to_its_end() {
        let mut checksum = 0;
        read(&[1; 9], &mut checksum);
        assert_eq!(checksum, 0x0101_0101_0101_0102);
        let mut page = [2; 65];
        write(&mut page, &mut checksum);
        assert_eq!((page[0], page[1], page[64]), (3, 2, 3));
    }
}
