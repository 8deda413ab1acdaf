//! Chooses a random place for a new arena in the window that avoids a list of ranges.
//!
//! The place is random because the list contains only what this user and this machine know: two
//! stores made on two machines are then apart with a probability that depends only on the window's
//! size. All free places are equally likely, and a free place is always found.
//!
//! Places whose addresses cannot be text are preferred. An address in memory is six bytes and two
//! zeros, and so is the end of many strings. The two bytes before the zeros tell them apart:
//! preferred places are those where no UTF-8 text ends with these bytes, and no UTF-16 text of a
//! common script. Code that searches a heap full of text for pointers then takes no text for one.

use super::{ARENA_ALIGN_BYTES, Window, random_u64};
use crate::error::{Error, Result};

impl Window {
    /// Returns a random base, aligned to 1 GiB, for an arena of `length` bytes that overlaps none
    /// of the ranges `taken` (base and length, in any order), or `None` if there is no such place.
    ///
    /// Places at multiples of `length` from the window's beginning are preferred. Arenas of one
    /// length then fill the window without gaps (at random GiBs it is full at three quarters). Two
    /// arenas that do not know of each other overlap half as often, because they overlap completely
    /// or not at all. Among these places, those that cannot be text are preferred.
    pub(crate) fn free_base(&self, length: u64, taken: &[(u64, u64)]) -> Result<Option<u64>> {
        let Some(room) = (self.end() - self.base()).checked_sub(length) else {
            return Err(Error::OutOfAddresses {
                what: "an arena".to_string(),
                bytes: length,
                why: format!("the window {:#x}..{:#x} is smaller", self.base(), self.end()),
            });
        };
        let whole = length.next_multiple_of(ARENA_ALIGN_BYTES);
        let textual = self.textual();
        for (step, avoided) in [(whole, &textual[..]), (whole, &[]), (ARENA_ALIGN_BYTES, &[])] {
            let places = Places { base: self.base(), step, count: room / step + 1 };
            let taken: Vec<(u64, u64)> = [taken, avoided].concat();
            if let Some(base) = places.choose(length, &taken)? {
                return Ok(Some(base));
            }
        }
        Ok(None)
    }

    /// Returns the ranges of the window whose addresses can be text, as base and length.
    fn textual(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for pair in self.base() >> PAIR_SHIFT..=(self.end() - 1) >> PAIR_SHIFT {
            if !can_end_text(pair as u16) {
                continue;
            }
            let base = pair << PAIR_SHIFT;
            match ranges.last_mut() {
                Some((from, bytes)) if *from + *bytes == base => *bytes += 1 << PAIR_SHIFT,
                _ => ranges.push((base, 1 << PAIR_SHIFT)),
            }
        }
        ranges
    }
}

/// Number of low address bits below the two upper bytes.
const PAIR_SHIFT: u32 = 32;

/// Returns true if text followed by zeros can end with these two bytes, the lower one first.
fn can_end_text(pair: u16) -> bool {
    let [before, last] = pair.to_le_bytes();
    let is_ascii = |byte: u8| matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..0x7f);
    // In UTF-8, a continuation byte can be the last byte of a letter; a leading byte cannot.
    let utf8 = is_ascii(last) && (is_ascii(before) || (0x80..0xc0).contains(&before));
    utf8 || !is_rare_in_utf16(pair)
}

/// Returns true for Unicode blocks without letters or signs of texts written today, by their upper
/// byte: Canadian syllabics and runes; phonetic and Balinese extensions; Braille, supplemental
/// arrows and mathematics; Glagolitic, Tifinagh, radicals; extension A of the Chinese characters.
fn is_rare_in_utf16(unit: u16) -> bool {
    matches!(unit >> 8, 0x14..=0x16 | 0x19..=0x1d | 0x28..=0x2a | 0x2c | 0x2d | 0x2f | 0x34..=0x4c)
}

/// Candidate bases: number n is `base + n * step`.
struct Places {
    base: u64,
    step: u64,
    count: u64,
}

impl Places {
    fn choose(&self, length: u64, taken: &[(u64, u64)]) -> Result<Option<u64>> {
        let free = self.free_runs(length, taken);
        let count: u64 = free.iter().map(|(from, to)| to - from).sum();
        if count == 0 {
            return Ok(None);
        }
        let mut number = random_u64()? % count;
        for (from, to) in free {
            if number < to - from {
                return Ok(Some(self.base + (from + number) * self.step));
            }
            number -= to - from;
        }
        Ok(None)
    }

    /// Returns runs of place numbers, as (from, to), at which `length` bytes overlap no taken
    /// range.
    fn free_runs(&self, length: u64, taken: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut lost: Vec<(u64, u64)> = taken
            .iter()
            .filter(|(_, bytes)| *bytes > 0)
            .map(|&(start, bytes)| {
                // The first place whose end lies after the start of the range, and the first place
                // after the range.
                let before = start.checked_sub(self.base).and_then(|at| at.checked_sub(length));
                let from = before.map_or(0, |bytes| bytes / self.step + 1);
                let end = start.saturating_add(bytes).saturating_sub(self.base);
                (from, end.div_ceil(self.step).min(self.count))
            })
            .filter(|(from, to)| from < to)
            .collect();
        lost.sort_unstable();
        let mut free = Vec::new();
        let mut next = 0;
        for (from, to) in lost {
            if from > next {
                free.push((next, from));
            }
            next = next.max(to);
        }
        if next < self.count {
            free.push((next, self.count));
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = ARENA_ALIGN_BYTES;
    const BASE: u64 = 0x2000_0000_0000;

    fn window(places: u64) -> Window {
        Window::new(BASE, BASE + places * GIB).unwrap()
    }

    #[test]
    fn every_place_of_a_window_is_used() {
        let mut taken = Vec::new();
        while let Some(base) = window(7).free_base(GIB, &taken).unwrap() {
            taken.push((base, GIB));
        }
        taken.sort_unstable();
        assert!(taken.iter().map(|t| t.0).eq((0..7).map(|n| BASE + n * GIB)));
    }

    #[test]
    fn arenas_of_one_length_fill_the_window_without_gaps() {
        let mut taken = Vec::new();
        while let Some(base) = window(35).free_base(5 * GIB, &taken).unwrap() {
            taken.push((base, 5 * GIB));
        }
        assert_eq!(taken.len(), 7);
    }

    #[test]
    fn a_window_smaller_than_the_arena_is_refused() {
        assert_eq!(window(3).free_base(3 * GIB, &[]).unwrap(), Some(BASE));
        let refused = window(3).free_base(4 * GIB, &[]);
        assert!(matches!(refused, Err(Error::OutOfAddresses { .. })));
    }

    /// Returns the words of a heap that contains the text at each byte offset, followed by zeros.
    fn words_of(bytes: &[u8]) -> Vec<u64> {
        let padded = [&[0; 8], bytes, &[0; 8]].concat();
        padded.windows(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
    }

    #[test]
    fn no_text_looks_like_an_address_of_a_preferred_place() {
        let texts = [
            "The quick brown fox (jumps) over 13 lazy dogs, at 7:45 P.M. - ABCDEFGHIJKLMNOPQRST!\n",
            "\tint main(void)\r\n{ return 0x54; } /* 100 % */ \"A\" 'T' #!/bin/sh $HOME ~0 4 2",
            "Größe, naïve façade, œuvre, señor, ¡Ñandú! Zażółć gęślą jaźń Příliš žluťoučký kůň",
            "Съешь же ещё этих мягких французских булок, да выпей чаю. Ξεσκεπάζω τὴν ψυχοφθόρα",
            "דג סקרן שט בים مأكول بالهناء ऋषियों को सताने वाले दुष्ट เป็นมนุษย์สุดประเสริฐ",
            "我能吞下玻璃而不伤身体。いろはにほへとちりぬるを カタカナ 키스의 고유조건은 “quoted” – €5",
            "Tiếng Việt: chí tâm chào mừng. ქართული ենակ አማርኛ ភាសាខ្មែរ བོད་ སිංහල සිං",
            "emoji: 🦀🎉 ✓ → ∑ √ ≈ ™ № ½ ° ± µ",
        ];
        let mut words = Vec::new();
        for text in texts {
            // Every prefix of the text may be a whole string.
            for end in text.char_indices().map(|(at, _)| at).chain([text.len()]) {
                let start = end.saturating_sub(24);
                words.extend(words_of(&text.as_bytes()[start..end]));
                let wide: Vec<u8> = text[..end].encode_utf16().flat_map(u16::to_le_bytes).collect();
                // Letters of two bytes lie at even addresses.
                let from = wide.len().saturating_sub(24) & !1;
                words.extend(words_of(&wide[from..]).into_iter().step_by(2));
            }
        }
        assert!(words.len() > 10_000);
        let window = Window::default();
        let texts: Vec<u64> = words.into_iter().filter(|word| window.contains(*word, 1)).collect();
        assert!(texts.len() > 100, "{}", texts.len());
        for _ in 0..300 {
            let base = window.free_base(64 * GIB, &[]).unwrap().unwrap();
            let taken = texts.iter().find(|word| (base..base + 64 * GIB).contains(word));
            assert_eq!(taken, None, "{base:#x}");
        }
    }

    /// The number that the documentation states.
    #[test]
    fn the_default_window_has_the_documented_number_of_preferred_places() {
        let (window, textual) = (Window::default(), Window::default().textual());
        let room = window.end() - window.base() - 64 * GIB;
        let places = Places { base: window.base(), step: 64 * GIB, count: room / (64 * GIB) + 1 };
        let free =
            |taken| places.free_runs(64 * GIB, taken).iter().map(|(a, b)| b - a).sum::<u64>();
        assert_eq!((free(&textual), free(&[])), (283, 1_040));
    }

    proptest! {
        #[test]
        fn a_free_place_overlaps_nothing_and_is_always_found(
            gib in 1u64..5,
            taken in proptest::collection::vec(
                // Ranges around the window, across its ends, and at the ends of the number range.
                prop_oneof![
                    (BASE - 8 * GIB..BASE + 24 * GIB, 0u64..6 * GIB),
                    (any::<u64>(), any::<u64>()),
                    (0u64..1, any::<u64>()),
                ],
                0..5,
            ),
        ) {
            let (window, length) = (window(16), gib * GIB);
            let meets = |base: u64| {
                taken.iter().any(|&(start, bytes)| {
                    bytes > 0 && base < start.saturating_add(bytes) && start < base + length
                })
            };
            let possible = (0..=16 - gib).map(|n| BASE + n * GIB).any(|base| !meets(base));
            let found = window.free_base(length, &taken).unwrap();
            prop_assert_eq!(found.is_some(), possible);
            if let Some(base) = found {
                prop_assert!(!meets(base) && window.contains(base, length));
            }
        }
    }
}
