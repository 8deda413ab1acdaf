//! Work on a loaded file: the pages that are touched, their order, and the kind of access.
//!
//! The pages are a prefix of one permutation of all pages, the same in every run; the sequential
//! order sorts them. So both orders touch the same pages and have equal checksums. The first page
//! of a file is its head (`corpus`) and is not touched.

use std::path::Path;

use harness::Outcome;
use harness::random::Random;
use serde::Serialize;

pub const PAGE_BYTES: usize = 4096;
pub const LINE_BYTES: usize = 64;
const SEED: u64 = 2005;
/// Mask that a write combines with each word.
pub const MASK: u64 = 0x5555_5555_5555_5555;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    Sequential,
    Random,
}

impl Order {
    pub fn name(self) -> &'static str {
        match self {
            Order::Sequential => "sequential",
            Order::Random => "random",
        }
    }

    pub fn from_name(name: &str) -> Option<Order> {
        [Order::Sequential, Order::Random].into_iter().find(|order| order.name() == name)
    }
}

/// Share of a file that is touched, and the kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Work {
    pub touched_percent: u8,
    /// Each touched page is also written to, one word in each cache line.
    pub is_written: bool,
    pub order: Order,
}

impl Work {
    pub const fn read(touched_percent: u8, order: Order) -> Work {
        Work { touched_percent, is_written: false, order }
    }

    pub const fn written(touched_percent: u8, order: Order) -> Work {
        Work { touched_percent, is_written: true, order }
    }

    pub fn name(&self) -> String {
        let what = if self.is_written { "written" } else { "read" };
        format!("{} % {what}, {}", self.touched_percent, self.order.name())
    }

    pub fn touched(&self) -> f64 {
        f64::from(self.touched_percent) / 100.0
    }

    /// Returns the pages of a file of this size, in the order of the work; at least one.
    pub fn pages(&self, file_bytes: u64) -> Vec<u32> {
        let mut all: Vec<u32> = (1..(file_bytes / PAGE_BYTES as u64) as u32).collect();
        Random::new(SEED).shuffle(&mut all);
        all.truncate(((all.len() as f64 * self.touched()).round() as usize).max(1));
        if self.order == Order::Sequential {
            all.sort_unstable();
        }
        all
    }
}

/// Writes a list of pages to a file, as 32-bit numbers in native byte order.
pub fn write_list(pages: &[u32], path: &Path) -> Outcome {
    let bytes: Vec<u8> = pages.iter().flat_map(|page| page.to_ne_bytes()).collect();
    Ok(std::fs::write(path, bytes)?)
}

pub fn read_list(path: &Path) -> Outcome<Vec<u32>> {
    let bytes = std::fs::read(path)?;
    let words = bytes.chunks_exact(4);
    Ok(words.map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect())
}

/// Sums of the words before the work and, if it writes, after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    before: u64,
    after: u64,
}

impl Sums {
    /// Returns the checksum, which must be equal for all subjects.
    pub fn checksum(self) -> String {
        format!("{:016x}", self.before.wrapping_mul(3).wrapping_add(self.after))
    }

    /// Adds all words of a page.
    pub fn read(&mut self, page: &[u8]) {
        for word in page.chunks_exact(8) {
            self.before = self.before.wrapping_add(number(word));
        }
    }

    /// Reads and writes one word of each cache line.
    pub fn write(&mut self, page: &mut [u8]) {
        for line in page.chunks_exact_mut(LINE_BYTES) {
            let word = number(line);
            self.before = self.before.wrapping_add(word);
            line[..8].copy_from_slice(&(word ^ MASK).to_le_bytes());
        }
    }

    /// Adds the written words.
    pub fn read_again(&mut self, page: &[u8]) {
        for line in page.chunks_exact(LINE_BYTES) {
            self.after = self.after.wrapping_add(number(line));
        }
    }
}

/// Returns the first eight bytes as a little-endian number.
fn number(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(word) => u64::from_le_bytes(*word),
        None => 0,
    }
}

/// Computes the checksum that the work must reach.
pub fn expected(path: &Path, pages: &[u32], is_written: bool) -> Outcome<String> {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::open(path)?;
    let (mut sums, mut page) = (Sums::default(), vec![0; PAGE_BYTES]);
    for number in pages {
        file.read_exact_at(&mut page, u64::from(*number) * PAGE_BYTES as u64)?;
        match is_written {
            false => sums.read(&page),
            true => {
                sums.write(&mut page);
                sums.read_again(&page);
            }
        }
    }
    Ok(sums.checksum())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const BYTES: u64 = 1000 * PAGE_BYTES as u64;

    #[test]
    fn all_pages_but_the_head_are_touched_once() {
        let mut all = Work::read(100, Order::Random).pages(BYTES);
        assert!(!all.is_sorted(), "it is a permutation");
        all.sort_unstable();
        assert_eq!(all, (1..1000).collect::<Vec<u32>>());
    }

    #[test]
    fn both_orders_touch_the_same_pages_and_a_larger_share_includes_a_smaller_one() {
        let pages = |percent, order| Work::read(percent, order).pages(BYTES);
        let (ordered, mut random) = (pages(10, Order::Sequential), pages(10, Order::Random));
        assert!(ordered.is_sorted() && !random.is_sorted());
        random.sort_unstable();
        assert_eq!((ordered.len(), &ordered), (100, &random));
        let half = pages(50, Order::Sequential);
        assert!(ordered.iter().all(|page| half.contains(page)));
        assert_eq!(Work::read(10, Order::Random).pages(2 * PAGE_BYTES as u64), [1]);
    }

    #[test]
    fn a_list_survives_writing_and_reading() {
        let file = tempfile::NamedTempFile::new().unwrap();
        write_list(&[1, 70_000, 3], file.path()).unwrap();
        assert_eq!(read_list(file.path()).unwrap(), [1, 70_000, 3]);
    }

    #[test]
    fn a_checksum_detects_each_wrong_read_and_each_missing_write() {
        let page: Vec<u8> = (0..PAGE_BYTES).map(|at| (at * 7) as u8).collect();
        let read = |page: &[u8]| {
            let mut sums = Sums::default();
            sums.read(page);
            sums.checksum()
        };
        let mut other = page.clone();
        other[4095] ^= 1;
        assert_ne!(read(&page), read(&other));
        let mut written = page.clone();
        let mut sums = Sums::default();
        sums.write(&mut written);
        let (mut right, mut wrong) = (sums, sums);
        right.read_again(&written);
        written[64] ^= 1;
        wrong.read_again(&written);
        assert_ne!(right.checksum(), wrong.checksum());
        assert_eq!(page.iter().zip(&written).filter(|(a, b)| a != b).count(), 8 * 64);
    }
}
