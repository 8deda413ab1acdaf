//! First test of a page for [suspects](super::suspects): does it have a word in one of a few ranges
//! of addresses?
//!
//! A commit tests every changed line, and most pages end the search here, so the test must be
//! cheap. With AVX2, a [prefilter] first tests half of each word of a page that has many changed
//! lines. The lines of all other pages, and of those that pass it, are compared four words at a
//! time, without branches. A false positive only costs time; a false negative would let a foreign
//! pointer pass.

#[cfg(target_arch = "x86_64")]
mod prefilter;

use super::record::Page;
use crate::address::ADDRESS_END;
use crate::format::LINE_BYTES;
#[cfg(target_arch = "x86_64")]
use prefilter::Prefilter;

/// Number of ranges that a page is compared with. One is enough for most programs.
pub(super) const RANGES_MAX: usize = 3;
/// Pages with more changed lines than this are first tested as a whole.
const LINES_BEFORE_WHOLE_PAGE: u32 = 16;
/// Most numbers that programs use are smaller.
const NUMBERS_END: u64 = 1 << 40;
const WORD_BYTES: usize = size_of::<u64>();
const SIGN: u64 = 1 << 63;

/// A range of addresses, encoded so that one addition and one signed comparison test a word:
/// processors lack unsigned comparisons of vectors.
#[derive(Clone, Copy, Debug)]
struct Range {
    /// Value added to a word.
    shift: u64,
    /// Upper bound of that sum for words in the range.
    bound: i64,
}

impl Range {
    /// Contains no word.
    const EMPTY: Range = Range { shift: 0, bound: i64::MIN };

    fn new(first: u64, end: u64) -> Range {
        Range { shift: SIGN.wrapping_sub(first), bound: ((end - first) ^ SIGN) as i64 }
    }

    #[inline]
    fn has(self, word: u64) -> bool {
        (word.wrapping_add(self.shift) as i64) < self.bound
    }
}

/// A few ranges that cover all mapped addresses of the process, and few others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ranges {
    /// The first `count` are in use.
    ranges: [Range; RANGES_MAX],
    count: usize,
    #[cfg(target_arch = "x86_64")]
    prefilter: Prefilter,
}

impl Ranges {
    /// Covers `parts`, given by first and end of each, without the `legal` ranges if [`RANGES_MAX`]
    /// ranges suffice for that. The caller must check a word against the legal ranges again.
    pub(super) fn new(parts: impl Iterator<Item = (u64, u64)>, legal: &[(u64, u64)]) -> Ranges {
        let parts = joined(parts, legal);
        let mut ranges = Ranges {
            ranges: [Range::EMPTY; RANGES_MAX],
            count: parts.len(),
            #[cfg(target_arch = "x86_64")]
            prefilter: Prefilter::new(&parts),
        };
        for (range, (first, end)) in ranges.ranges.iter_mut().zip(parts) {
            *range = Range::new(first, end);
        }
        ranges
    }

    pub(super) fn has(&self, word: u64) -> bool {
        self.ranges.iter().any(|range| range.has(word))
    }

    /// Returns the given lines that have a word in one of the ranges, as a mask.
    #[inline]
    pub(super) fn lines_with_suspects(&self, page: &Page, lines: u64) -> u64 {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
            // SAFETY: the processor has these instructions.
            return unsafe { self.lines_by_avx2(page, lines) };
        }
        self.lines_by_words(page, lines)
    }

    fn lines_by_words(&self, page: &Page, lines: u64) -> u64 {
        let any = |bytes: &[u8]| {
            let words = bytes.as_chunks::<WORD_BYTES>().0;
            // Without branches, so that the compiler uses vector instructions.
            words
                .iter()
                .fold(false, |any, word| any | self.has_branchless(u64::from_le_bytes(*word)))
        };
        lines_with(page, lines, |page| any(page), any)
    }

    #[inline(always)]
    fn has_branchless(&self, word: u64) -> bool {
        self.ranges.iter().fold(false, |any, range| any | range.has(word))
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,popcnt")]
    fn lines_by_avx2(&self, page: &Page, lines: u64) -> u64 {
        let prefilter = &self.prefilter;
        match self.ranges {
            [a, ..] if self.count <= 1 => avx2::lines_with_words_in(page, lines, prefilter, [a]),
            [a, b, _] if self.count == 2 => {
                avx2::lines_with_words_in(page, lines, prefilter, [a, b])
            }
            all => avx2::lines_with_words_in(page, lines, prefilter, all),
        }
    }
}

/// Returns the lines for which `any` is true. Returns none if `may` is false for the page.
#[inline(always)]
fn lines_with(
    page: &Page,
    lines: u64,
    may: impl FnOnce(&Page) -> bool,
    any: impl Fn(&[u8]) -> bool,
) -> u64 {
    if lines.count_ones() > LINES_BEFORE_WHOLE_PAGE && !may(page) {
        return 0;
    }
    let (mut found, mut rest) = (0, lines);
    while rest != 0 {
        let line = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let at = line * LINE_BYTES;
        found |= u64::from(any(&page[at..at + LINE_BYTES])) << line;
    }
    found
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi64, _mm256_cmpgt_epi64, _mm256_or_si256, _mm256_set1_epi64x,
        _mm256_setr_epi64x, _mm256_setzero_si256, _mm256_testz_si256,
    };

    use super::{Page, Prefilter, Range, WORD_BYTES, lines_with};

    const WORDS: usize = 4;

    #[target_feature(enable = "avx2,popcnt")]
    #[inline]
    pub(super) fn lines_with_words_in<const N: usize>(
        page: &Page,
        lines: u64,
        prefilter: &Prefilter,
        ranges: [Range; N],
    ) -> u64 {
        let ranges =
            ranges.map(|r| (_mm256_set1_epi64x(r.shift as i64), _mm256_set1_epi64x(r.bound)));
        lines_with(
            page,
            lines,
            |page| prefilter.may_have(page),
            |bytes| has_word_in(bytes, &ranges),
        )
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn has_word_in<const N: usize>(bytes: &[u8], ranges: &[(__m256i, __m256i); N]) -> bool {
        let mut any = _mm256_setzero_si256();
        let word = |bytes: &[u8; WORD_BYTES]| i64::from_le_bytes(*bytes);
        for [a, b, c, d] in bytes.as_chunks().0.as_chunks::<WORDS>().0 {
            // Compiles to one load.
            let words = _mm256_setr_epi64x(word(a), word(b), word(c), word(d));
            for (shift, bound) in ranges {
                let leads = _mm256_cmpgt_epi64(*bound, _mm256_add_epi64(words, *shift));
                any = _mm256_or_si256(any, leads);
            }
        }
        _mm256_testz_si256(any, any) == 0
    }
}

/// Returns at most [`RANGES_MAX`] ranges that cover every part outside of the legal ones,
/// ascending.
fn joined(parts: impl Iterator<Item = (u64, u64)>, legal: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut parts: Vec<_> = parts.map(|(first, end)| (first, end.min(ADDRESS_END))).collect();
    for (legal_first, legal_end) in legal {
        let whole = std::mem::take(&mut parts);
        let below = |(first, end): (u64, u64)| (first, end.min(*legal_first));
        let above = |(first, end): (u64, u64)| (first.max(*legal_end), end);
        parts.extend(whole.iter().copied().flat_map(|part| [below(part), above(part)]));
        parts.retain(|(first, end)| first < end);
    }
    parts.retain(|(first, end)| first < end);
    parts.sort_unstable();
    let legal_between = |a: (u64, u64), b: (u64, u64)| {
        legal.iter().any(|(first, end)| *first >= a.1 && *end <= b.0)
    };
    // Join parts that touch, and parts at addresses that few numbers look like.
    parts.dedup_by(|next, last| {
        let few_between = last.1 >= NUMBERS_END && !legal_between(*last, *next);
        let joined = next.0 <= last.1 || few_between;
        if joined {
            last.1 = last.1.max(next.1);
        }
        joined
    });
    // Then join those with the smallest gaps, but not across legal ranges if that is possible.
    let gap = |a: (u64, u64), b: (u64, u64)| match legal_between(a, b) {
        true => u64::MAX,
        false => b.0 - a.1,
    };
    while parts.len() > RANGES_MAX {
        let gaps = parts.windows(2).map(|pair| gap(pair[0], pair[1])).enumerate();
        let Some((at, _)) = gaps.min_by_key(|(_, gap)| *gap) else { break };
        parts[at].1 = parts.remove(at + 1).1;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::PAGE_BYTES;

    #[test]
    fn exactly_the_words_in_the_ranges_are_found() {
        let low = [(0x40_0000, 0x50_1238), (0x7000_0000, 0x1_2345_6000)];
        let high = [(0x1500_0000_0000, 0x1600_0000_1000), (0x5555_5555_4000, 0x7fff_ffff_f000)];
        let legal = [(0x1700_0000_0000, 0x1800_0000_0000)];
        let [a, b] = low;
        let [c, d] = high;
        let sets: [&[(u64, u64)]; 11] = [
            &[],
            &[a],
            &[c],
            &[d],
            &[a, b],
            &[a, d],
            &[b, d],
            &[c, d],
            &[a, c, d],
            &[b, c, d],
            &[a, b, d],
        ];
        for all in sets {
            let count = all.len();
            let ranges = Ranges::new(all.iter().copied(), &legal);
            assert_eq!(ranges.count, count);
            let edges = all.iter().flat_map(|(first, end)| [*first, *end]);
            let words = edges.flat_map(|edge| [edge - 1, edge, edge + 1]);
            let others = [0, 1, SIGN, SIGN - 1, u64::MAX, u64::from_le_bytes(*b"some tex")];
            for word in words.chain(others) {
                let is_in = all[..count].iter().any(|(first, end)| word >= *first && word < *end);
                assert_eq!(ranges.has(word), is_in, "{word:#x}");
                for at in (0..LINE_BYTES).step_by(WORD_BYTES).chain([64, 2048, 4032, 4088]) {
                    let mut page = [0xff; PAGE_BYTES as usize];
                    page[at..at + 8].copy_from_slice(&word.to_le_bytes());
                    let line = 1 << (at / LINE_BYTES);
                    let expected = if is_in { line } else { 0 };
                    for lines in [line, u64::MAX, u64::MAX ^ line] {
                        let found = ranges.lines_with_suspects(&page, lines);
                        assert_eq!(found, expected & lines, "{word:#x} at {at}");
                        let plain = ranges.lines_by_words(&page, lines);
                        assert_eq!(found, plain, "with vector instructions and without");
                    }
                }
            }
        }
    }

    #[test]
    fn ranges_cover_every_part_but_legal_ones_and_join_over_the_smallest_gaps() {
        let parts = [(100, 200), (150, 260), (300, 400), (1000, 1100), (5000, 6000), (9000, 9500)];
        let legal = [(320, 330), (6500, 7000)];
        let joined = |parts: &[(u64, u64)]| joined(parts.iter().copied(), &legal);
        assert_eq!(joined(&parts), [(100, 320), (330, 6000), (9000, 9500)]);
        assert_eq!(joined(&parts[..3]), [(100, 260), (300, 320), (330, 400)]);
        assert_eq!(joined(&[(10, u64::MAX)])[1], (330, 6500));
        assert_eq!(joined(&[(10, u64::MAX)])[2], (7000, ADDRESS_END));
        assert_eq!(joined(&[(321, 329), (7, 7)]), []);
        // A program, its heap and its libraries.
        let high = |first: u64, end: u64| (first << 32, end << 32);
        let (program, heap) = (high(0x5555, 0x5556), high(0x5600, 0x5601));
        let (library, fixed) = (high(0x7e00, 0x7fff), (1 << 22, 1 << 24));
        assert_eq!(joined(&[library, program, heap]), [(program.0, library.1)]);
        assert_eq!(joined(&[fixed, library]), [fixed, library]);
    }
}
