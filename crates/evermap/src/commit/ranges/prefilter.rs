//! Fast test whether a page may have a word in a range, by 32 bits of each word. It has false
//! positives and must never have a false negative.
//!
//! Eight words take four instructions: two that extract the bits, a subtraction, and a minimum that
//! keeps the word nearest to the range. With vectors of 64-bit words, one range takes eight
//! instructions, because processors lack a minimum and an unsigned comparison for them.

use std::arch::x86_64::{
    __m256i, _mm256_castps_si256, _mm256_castsi256_ps, _mm256_cmpeq_epi32, _mm256_min_epu32,
    _mm256_movemask_epi8, _mm256_set1_epi32, _mm256_setr_epi64x, _mm256_shuffle_ps,
    _mm256_sub_epi32,
};

use super::RANGES_MAX;
use crate::commit::record::Page;
use crate::format::LINE_BYTES;

/// Ranges from here on are tested by the upper half of a word.
const HIGH: u64 = 1 << 40;
/// Position of the bits that are tested for lower ranges. Higher bits are ignored.
const LOW_SHIFT: u32 = 16;
const HIGH_SHIFT: u32 = 32;
const VECTOR_BYTES: usize = 32;

/// Range of values of the tested bits: the first value, and how many follow it.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    first: u32,
    more: u32,
}

impl Span {
    fn new(first: u64, end: u64, shift: u32) -> Span {
        let (first, last) = ((first >> shift) as u32, ((end - 1) >> shift) as u32);
        Span { first, more: last - first }
    }
}

/// The ranges of a search, by the bits that are tested.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prefilter {
    high: Spans,
    low: Spans,
}

/// The first `count` are in use.
#[derive(Clone, Copy, Debug, Default)]
struct Spans {
    spans: [Span; RANGES_MAX],
    count: usize,
}

impl Spans {
    fn push(&mut self, span: Span) {
        self.spans[self.count] = span;
        self.count += 1;
    }

    fn all(&self) -> &[Span] {
        &self.spans[..self.count]
    }
}

impl Prefilter {
    /// Creates the test for at most [`RANGES_MAX`] ranges of addresses, none empty: first and end
    /// of each.
    pub(super) fn new(ranges: &[(u64, u64)]) -> Prefilter {
        let mut prefilter = Prefilter::default();
        for (first, end) in ranges {
            match *first >= HIGH {
                true => prefilter.high.push(Span::new(*first, *end, HIGH_SHIFT)),
                false => prefilter.low.push(Span::new(*first, *end, LOW_SHIFT)),
            }
        }
        prefilter
    }

    /// Returns false only if no word of the page lies in a range.
    #[target_feature(enable = "avx2")]
    pub(super) fn may_have(&self, page: &Page) -> bool {
        match (self.high.all(), self.low.all()) {
            ([], []) => false,
            ([a], []) => has(page, [*a], []),
            ([], [a]) => has(page, [], [*a]),
            ([a], [b]) => has(page, [*a], [*b]),
            ([a, b], []) => has(page, [*a, *b], []),
            ([a, b], [c]) => has(page, [*a, *b], [*c]),
            ([a, b, c], []) => has(page, [*a, *b, *c], []),
            ([a], [b, c]) => has(page, [*a], [*b, *c]),
            ([], [a, b]) => has(page, [], [*a, *b]),
            ([], [a, b, c]) => has(page, [], [*a, *b, *c]),
            _ => true,
        }
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn has<const H: usize, const L: usize>(page: &Page, high: [Span; H], low: [Span; L]) -> bool {
    const UPPER: i32 = 0b11_01_11_01;
    const FIRST_LOWER_THEN_UPPER: i32 = 0b11_01_10_00;
    const AT: usize = LOW_SHIFT as usize / 8;
    let of_all = |value: u32| _mm256_set1_epi32(value as i32);
    let (high_first, low_first) = (high.map(|s| of_all(s.first)), low.map(|s| of_all(s.first)));
    let (mut high_least, mut low_least) = ([of_all(!0); H], [of_all(!0); L]);
    for line in page.as_chunks::<LINE_BYTES>().0 {
        let bits = halves::<UPPER>(line, 0, VECTOR_BYTES);
        for (least, first) in high_least.iter_mut().zip(&high_first) {
            *least = _mm256_min_epu32(*least, _mm256_sub_epi32(bits, *first));
        }
        // The four words of the first vector are at its even positions, and the words of the second
        // at its odd positions, so neither load reaches past the line.
        let bits = halves::<FIRST_LOWER_THEN_UPPER>(line, AT, VECTOR_BYTES - AT);
        for (least, first) in low_least.iter_mut().zip(&low_first) {
            *least = _mm256_min_epu32(*least, _mm256_sub_epi32(bits, *first));
        }
    }
    let is_in = |(least, span): (&__m256i, &Span)| {
        let nearest = _mm256_min_epu32(*least, of_all(span.more));
        _mm256_movemask_epi8(_mm256_cmpeq_epi32(nearest, *least)) != 0
    };
    high_least.iter().zip(&high).any(is_in) || low_least.iter().zip(&low).any(is_in)
}

/// Extracts 32 bits of each word of a line, from two vectors that start at `a` and `b`.
#[target_feature(enable = "avx2")]
#[inline]
fn halves<const WHICH: i32>(line: &[u8; LINE_BYTES], a: usize, b: usize) -> __m256i {
    let half = |at: usize| {
        let words = line[at..at + VECTOR_BYTES].as_chunks::<8>().0;
        let word = |index: usize| i64::from_le_bytes(words[index]);
        // Compiles to one load.
        _mm256_castsi256_ps(_mm256_setr_epi64x(word(0), word(1), word(2), word(3)))
    };
    _mm256_castps_si256(_mm256_shuffle_ps::<WHICH>(half(a), half(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::PAGE_BYTES;

    const LIBRARIES: (u64, u64) = (0x7eff_0000_0000, 0x7fff_ffff_f000);
    const PROGRAM: (u64, u64) = (0x40_0000, 0x1000_0000);
    const ARENA: (u64, u64) = (0x2010_0000_0000, 0x2020_0000_0000);

    fn passes(ranges: &[(u64, u64)], words: impl Fn(u64) -> u64) -> bool {
        let mut page = [0; PAGE_BYTES as usize];
        for (index, word) in page.as_chunks_mut().0.iter_mut().enumerate() {
            *word = words(index as u64).to_le_bytes();
        }
        // SAFETY: AVX2 was detected.
        is_x86_feature_detected!("avx2") && unsafe { Prefilter::new(ranges).may_have(&page) }
    }

    #[test]
    fn most_pages_need_no_further_search() {
        if !is_x86_feature_detected!("avx2") {
            eprintln!("SKIPPED: the processor has no AVX2");
            return;
        }
        let sets: [&[(u64, u64)]; 5] = [
            &[PROGRAM],
            &[LIBRARIES],
            &[PROGRAM, LIBRARIES],
            &[ARENA, LIBRARIES],
            &[PROGRAM, ARENA, LIBRARIES],
        ];
        for ranges in sets {
            assert!(!passes(ranges, |i| i), "small numbers");
            assert!(!passes(ranges, |i| 0x2000_0000_0000 + 64 * i), "addresses in the object");
            assert!(!passes(ranges, |_| u64::from_le_bytes(*b"some tex")), "texts");
            assert!(!passes(ranges, |i| (i as f64 / 3.0).to_bits()), "floating-point numbers");
            for (first, end) in ranges {
                for word in [*first, *end - 1] {
                    assert!(passes(ranges, |i| if i == 300 { word } else { i }), "{word:#x}");
                }
            }
        }
        assert!(!passes(&[], |i| i << 30));
    }
}
