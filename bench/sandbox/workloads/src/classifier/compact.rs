//! Custom format of the model: little-endian numbers of four bytes, and words preceded by their
//! lengths.
//!
//! ```text
//! magic, categories, words          three numbers
//! posts, totals, counts             categories, categories, categories * words numbers
//! words                             length (one byte), letters; in the order of the rows
//! ```

use std::io::Write;

use super::train::Trained;
use super::{FileModel, Rows, Stored};
use crate::blocks;
use crate::error::{OfFile, Outcome, damaged};
use crate::options::Options;

const NAME: &str = "model.compact";
const MAGIC: u32 = u32::from_le_bytes(*b"MODL");

/// Writes the model.
pub fn store(options: &Options, trained: &Trained) -> Outcome<Stored> {
    let path = options.file(NAME);
    let mut writer = blocks::writer(&path, options.block_bytes)?;
    let header = [MAGIC, trained.posts.len() as u32, trained.words.len() as u32];
    for numbers in [&header[..], &trained.posts, &trained.totals, &trained.counts] {
        for number in numbers {
            writer.write_all(&number.to_le_bytes()).of(&path)?;
        }
    }
    for word in &trained.words {
        writer.write_all(&[word.len() as u8]).of(&path)?;
        writer.write_all(word).of(&path)?;
    }
    Ok(Stored::File(blocks::finish(writer, &path)?, path))
}

/// Reads the file.
pub fn read(options: &Options) -> Outcome<Vec<u8>> {
    blocks::read_whole(&options.file(NAME), options.block_bytes)
}

/// Parses the model.
pub fn model<'a>(options: &Options, contents: &'a [u8]) -> Outcome<FileModel<'a>> {
    Parser { rest: contents }
        .model()
        .ok_or_else(|| damaged(&options.file(NAME), "is not a complete model; run `prepare` again"))
}

struct Parser<'a> {
    rest: &'a [u8],
}

impl<'a> Parser<'a> {
    fn model(mut self) -> Option<FileModel<'a>> {
        let [magic, categories, words] = <[u32; 3]>::try_from(self.numbers(3)?).ok()?;
        if magic != MAGIC {
            return None;
        }
        let categories = categories as usize;
        let (posts, totals) = (self.numbers(categories)?, self.numbers(categories)?);
        let counts = self.numbers(categories.checked_mul(words as usize)?)?;
        // A word takes at least two bytes.
        let room = (words as usize).min(self.rest.len());
        let mut rows = Rows::with_capacity(room);
        for row in 0..words {
            let length = usize::from(self.bytes(1)?[0]);
            rows.insert(self.bytes(length)?, row);
        }
        Some(FileModel { posts, totals, words: rows, counts })
    }

    fn bytes(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    fn numbers(&mut self, numbers: usize) -> Option<Vec<u32>> {
        let (words, _) = self.bytes(numbers.checked_mul(4)?)?.as_chunks::<4>();
        Some(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_truncated_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { data: folder.path().into(), ..Options::default() };
        let trained = Trained {
            posts: vec![1, 2],
            totals: vec![3, 4],
            words: vec![b"heap"[..].into(), b"page"[..].into()],
            counts: vec![5, 6, 7, 8],
        };
        store(&options, &trained).unwrap();
        let contents = read(&options).unwrap();
        let whole = model(&options, &contents).unwrap();
        assert_eq!((&whole.counts, whole.words.len()), (&trained.counts, 2));
        for cut in 0..contents.len() {
            assert!(model(&options, &contents[..cut]).is_err(), "cut at {cut}");
        }
        let other = [b"POST", &contents[4..]].concat();
        assert!(model(&options, &other).is_err(), "a file of another kind");
    }
}
