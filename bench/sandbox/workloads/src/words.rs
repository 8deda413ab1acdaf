//! Words of a text: runs of ASCII letters, in small letters. Texts may come in pieces that end
//! anywhere.

/// Longer words are cut: what is looked up has a bound.
pub const WORD_BYTES_MAX: usize = 48;

/// Finds words. One that goes on in the next piece is kept until its end is known.
#[derive(Debug)]
pub struct Words {
    begun: [u8; WORD_BYTES_MAX],
    begun_bytes: usize,
    bytes_min: usize,
}

impl Words {
    /// Finds words of at least so many letters.
    pub fn new(bytes_min: usize) -> Words {
        Words { begun: [0; WORD_BYTES_MAX], begun_bytes: 0, bytes_min }
    }

    /// Gives each word that ends in this piece.
    pub fn feed(&mut self, piece: &[u8], mut word: impl FnMut(&[u8])) {
        for &byte in piece {
            let letter = byte | 0x20;
            if letter.is_ascii_lowercase() {
                if let Some(place) = self.begun.get_mut(self.begun_bytes) {
                    *place = letter;
                    self.begun_bytes += 1;
                }
            } else {
                self.end(&mut word);
            }
        }
    }

    /// Gives the word that the text ends with.
    pub fn finish(mut self, mut word: impl FnMut(&[u8])) {
        self.end(&mut word);
    }

    fn end(&mut self, word: &mut impl FnMut(&[u8])) {
        if self.begun_bytes >= self.bytes_min {
            word(&self.begun[..self.begun_bytes]);
        }
        self.begun_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(pieces: &[&[u8]]) -> Vec<String> {
        let (mut found, mut words) = (Vec::new(), Words::new(2));
        let mut keep = |word: &[u8]| found.push(String::from_utf8_lossy(word).into_owned());
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
    fn a_word_without_an_end_is_cut_and_not_kept_in_memory_without_bound() {
        assert_eq!(words(&[&[b'a'; 1000]]), ["a".repeat(WORD_BYTES_MAX)]);
    }
}
