//! Text for the spelling check: sentences of dictionary words with natural frequencies, some of
//! them misspelled.

use super::options::Options;
use crate::blocks;
use crate::error::{Outcome, damaged};
use crate::hash::checksum_of;
use crate::random::{Random, Zipf};
use crate::report::Report;
use crate::spell_check::{DICTIONARY, TEXT, lines};

const BYTES: u64 = 9_200_000;
const LINE_BYTES: usize = 76;
/// Misspelled words in a thousand.
const MISSPELLED: usize = 30;

/// Makes the text.
pub fn make(options: &Options, report: &mut Report) -> Outcome<()> {
    let path = options.data.join(DICTIONARY);
    let dictionary = blocks::read_whole(&path, 1 << 20)?;
    let words: Vec<&[u8]> = lines(&dictionary).collect();
    if words.is_empty() {
        return Err(damaged(&path, "has no words; run `generate words`"));
    }
    let text = text(words, options.scaled(BYTES) as usize, options.seed);
    blocks::write_whole(&options.data.join(TEXT), 1 << 20, &text)?;
    report.count("bytes", text.len() as u64, "bytes")?;
    report.checksum(checksum_of(&text))
}

/// Returns a text of this size, short by less than a line.
fn text(mut words: Vec<&[u8]>, bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    // Random choice of the frequent words.
    for place in (1..words.len()).rev() {
        words.swap(place, random.below(place + 1));
    }
    let frequency = Zipf::new(words.len());
    let mut text = Vec::with_capacity(bytes + LINE_BYTES);
    let (mut line_bytes, mut sentence_words) = (0, 0);
    while text.len() < bytes {
        let mut word = words[frequency.rank(&mut random)].to_vec();
        if random.happens(MISSPELLED) {
            misspell(&mut word, &mut random);
        }
        if sentence_words == 0 {
            word[0].make_ascii_uppercase();
        }
        sentence_words += 1;
        if sentence_words > 6 && random.happens(120) {
            word.push(b'.');
            sentence_words = 0;
        } else if random.happens(60) {
            word.push(b',');
        }
        let separator = if line_bytes + word.len() > LINE_BYTES { b'\n' } else { b' ' };
        line_bytes = if separator == b'\n' { word.len() } else { line_bytes + 1 + word.len() };
        if !text.is_empty() {
            text.push(separator);
        }
        text.extend(word);
    }
    text.truncate(bytes.saturating_sub(1));
    text.push(b'\n');
    text
}

/// Inserts, removes or replaces a letter, or swaps two.
fn misspell(word: &mut Vec<u8>, random: &mut Random) {
    let letter = b'a' + random.below(26) as u8;
    let place = random.below(word.len());
    match random.below(4) {
        0 => word.insert(place, letter),
        1 if word.len() > 2 => drop(word.remove(place)),
        2 if place > 0 => word.swap(place - 1, place),
        _ => word[place] = letter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Vec<&'static [u8]> {
        b"heap window guest host object commit region snapshot"
            .split(|byte| *byte == b' ')
            .collect()
    }

    #[test]
    fn a_text_has_lines_and_the_requested_size() {
        for bytes in [100, 5000, 70_000] {
            let text = text(words(), bytes, 1);
            assert_eq!(text.len(), bytes);
            assert!(text.split(|byte| *byte == b'\n').all(|line| line.len() <= LINE_BYTES + 2));
        }
    }

    #[test]
    fn equal_seeds_give_equal_texts_and_different_seeds_different_ones() {
        assert_eq!(text(words(), 5000, 7), text(words(), 5000, 7));
        assert_ne!(text(words(), 5000, 7), text(words(), 5000, 8));
    }

    #[test]
    fn only_some_words_are_misspelled() {
        let text = text(words(), 50_000, 1).to_ascii_lowercase();
        let known = |word: &&[u8]| words().contains(word);
        let found = text.split(|byte| !byte.is_ascii_lowercase()).filter(|word| !word.is_empty());
        let (known, unknown): (Vec<_>, Vec<_>) = found.partition(known);
        let misspelled = unknown.len() * 1000 / (known.len() + unknown.len());
        assert!((10..=50).contains(&misspelled), "{misspelled} of 1000");
    }
}
