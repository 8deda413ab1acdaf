//! Words of a text: runs of ASCII letters, in small letters. Texts may come in pieces that end
//! anywhere.

/// Longer words are cut: what is looked up has a bound.
pub const WORD_BYTES_MAX: usize = 48;

/// A word's letters are in one piece of memory, and zeros behind them.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    letters: [u8; WORD_BYTES_MAX],
    bytes: usize,
}

/// A word of at most so many letters fits into two registers.
pub const SHORT_BYTES_MAX: usize = 16;

/// A short word, filled up with zeros.
pub type Short = [u8; SHORT_BYTES_MAX];

/// A word as a key that needs no memory of its own; longer ones are `None`.
pub fn short(word: &[u8]) -> Option<Short> {
    let mut letters = [0; SHORT_BYTES_MAX];
    letters.get_mut(..word.len())?.copy_from_slice(word);
    Some(letters)
}

impl Found {
    const NONE: Found = Found { letters: [0; WORD_BYTES_MAX], bytes: 0 };

    /// Its letters.
    pub fn letters(&self) -> &[u8] {
        &self.letters[..self.bytes]
    }

    /// Its letters, and zeros up to the end.
    pub fn padded(&self) -> &[u8; WORD_BYTES_MAX] {
        &self.letters
    }

    /// As [`short`] gives it, at no cost.
    pub fn short(&self) -> Option<&Short> {
        if self.bytes <= SHORT_BYTES_MAX { self.letters.first_chunk() } else { None }
    }
}

/// Finds words. One that goes on in the next piece is kept until its end is known.
#[derive(Debug)]
pub struct Words {
    begun: Found,
    bytes_min: usize,
}

impl Words {
    /// Finds words of at least so many letters.
    pub fn new(bytes_min: usize) -> Words {
        Words { begun: Found::NONE, bytes_min }
    }

    /// Gives each word that ends in this piece.
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

    /// Gives the word that the text ends with.
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
    fn words_are_the_same_wherever_a_text_is_cut() {
        let text = b"It's a Heap, that lasts\nlonger";
        let whole = words(&[text]);
        assert_eq!(whole, ["it", "heap", "that", "lasts", "longer"]);
        for cut in 0..text.len() {
            assert_eq!(words(&[&text[..cut], &text[cut..]]), whole, "cut at {cut}");
        }
    }

    #[test]
    fn a_short_word_is_the_same_key_wherever_it_comes_from() {
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
    fn a_word_without_an_end_is_cut_and_not_kept_in_memory_without_bound() {
        assert_eq!(words(&[&[b'a'; 1000]]), ["a".repeat(WORD_BYTES_MAX)]);
    }
}
