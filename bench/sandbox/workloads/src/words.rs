//! Splits a text into words: runs of ASCII letters, in lower case. The text may arrive in pieces
//! that end anywhere.

/// Longer words are truncated, so that lookups are bounded.
pub const WORD_BYTES_MAX: usize = 48;

/// Word whose letters are contiguous and padded with zeros.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    letters: [u8; WORD_BYTES_MAX],
    bytes: usize,
}

/// Longest word that fits into two registers.
pub const SHORT_BYTES_MAX: usize = 16;

/// Short word, padded with zeros.
pub type Short = [u8; SHORT_BYTES_MAX];

/// Returns a word as a key without allocation; `None` for longer words.
pub fn short(word: &[u8]) -> Option<Short> {
    let mut letters = [0; SHORT_BYTES_MAX];
    letters.get_mut(..word.len())?.copy_from_slice(word);
    Some(letters)
}

impl Found {
    const NONE: Found = Found { letters: [0; WORD_BYTES_MAX], bytes: 0 };

    /// Returns the letters.
    pub fn letters(&self) -> &[u8] {
        &self.letters[..self.bytes]
    }

    /// Returns the letters, padded with zeros.
    pub fn padded(&self) -> &[u8; WORD_BYTES_MAX] {
        &self.letters
    }

    /// Like the function [`short`], at no cost.
    pub fn short(&self) -> Option<&Short> {
        if self.bytes <= SHORT_BYTES_MAX { self.letters.first_chunk() } else { None }
    }
}

/// Finds words. An unfinished word is kept until the next piece.
#[derive(Debug)]
pub struct Words {
    begun: Found,
    bytes_min: usize,
}

impl Words {
    /// Creates a finder for words of at least this many letters.
    pub fn new(bytes_min: usize) -> Words {
        Words { begun: Found::NONE, bytes_min }
    }

    /// Calls `word` for each word that ends in this piece.
    pub fn feed(&mut self, piece: &[u8], mut word: impl FnMut(&Found)) {
        for &byte in piece {
            let letter = byte | 0x20;
            if letter.is_ascii_lowercase() {
                if let Some(place) = self.begun.letters.get_mut(self.begun.bytes) {
                    *place = letter;
                    self.begun.bytes += 1;
                }
            } else {
                self.end(&mut word);
            }
        }
    }

    /// Calls `word` for the last word of the text.
    pub fn finish(mut self, mut word: impl FnMut(&Found)) {
        self.end(&mut word);
    }

    fn end(&mut self, word: &mut impl FnMut(&Found)) {
        if self.begun.bytes == 0 {
            return;
        }
        if self.begun.bytes >= self.bytes_min {
            word(&self.begun);
        }
        self.begun = Found::NONE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(pieces: &[&[u8]]) -> Vec<String> {
        let (mut found, mut words) = (Vec::new(), Words::new(2));
        let mut keep =
            |word: &Found| found.push(String::from_utf8_lossy(word.letters()).into_owned());
        for piece in pieces {
            words.feed(piece, &mut keep);
        }
        words.finish(keep);
        found
    }

    #[test]
    fn words_are_the_same_for_any_split_of_the_text() {
        let text = b"It's a Heap, that lasts\nlonger";
        let whole = words(&[text]);
        assert_eq!(whole, ["it", "heap", "that", "lasts", "longer"]);
        for cut in 0..text.len() {
            assert_eq!(words(&[&text[..cut], &text[cut..]]), whole, "cut at {cut}");
        }
    }

    #[test]
    fn a_short_word_gives_the_same_key_on_both_ways() {
        let mut found = Vec::new();
        let mut words = Words::new(2);
        let keep = |word: &Found| found.push((word.letters().to_vec(), word.short().copied()));
        words.feed(b"Sixteen-letters: abcdefghijklmnop, abcdefghijklmnopq. ", keep);
        assert_eq!(found.len(), 4);
        for (letters, key) in &found {
            assert_eq!(*key, short(letters), "{letters:?}");
            assert_eq!(key.is_some(), letters.len() <= SHORT_BYTES_MAX);
        }
        assert_eq!(found[1].1, Some(*b"letters\0\0\0\0\0\0\0\0\0"));
    }

    #[test]
    fn an_endless_word_is_truncated_and_needs_bounded_memory() {
        assert_eq!(words(&[&[b'a'; 1000]]), ["a".repeat(WORD_BYTES_MAX)]);
    }
}
