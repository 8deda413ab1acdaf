//! Training: counts words in each category, independently of their later storage.

use super::WORD_BYTES_MIN;
use super::corpus::Corpus;
use crate::blocks;
use crate::error::{Outcome, damaged};
use crate::hash::{Checksum, Map};
use crate::options::Options;
use crate::words::{Found, WORD_BYTES_MAX, Words};

/// Trained counts. Words are sorted, so that the model is the same in every run.
#[derive(Debug)]
pub struct Trained {
    /// Number of posts in each category.
    pub posts: Vec<u32>,
    /// Number of words in all posts of each category.
    pub totals: Vec<u32>,
    /// Words; the index of a word is its row number.
    pub words: Vec<Box<[u8]>>,
    /// Rows of counts.
    pub counts: Vec<u32>,
}

/// Word that is looked up without a copy; only new words are copied.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ShortWord {
    letters: [u8; WORD_BYTES_MAX],
}

impl std::hash::Hash for ShortWord {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write(&self.letters);
    }
}

/// Trains on the posts of a corpus.
pub fn train(options: &Options, corpus: &Corpus) -> Outcome<Trained> {
    let categories = corpus.posts.len();
    let mut rows: Map<ShortWord, u32> = Map::default();
    let (mut counts, mut totals) = (Vec::new(), vec![0_u32; categories]);
    let mut post = Vec::new();
    for (category, posts) in corpus.posts.iter().enumerate() {
        for path in posts {
            blocks::read_into(path, options.block_bytes, &mut post)?;
            let mut words = Words::new(WORD_BYTES_MIN);
            let mut count = |word: &Found| {
                let row = *rows.entry(ShortWord { letters: *word.padded() }).or_insert_with(|| {
                    counts.resize(counts.len() + categories, 0_u32);
                    (counts.len() / categories - 1) as u32
                });
                counts[row as usize * categories + category] += 1;
                totals[category] += 1;
            };
            words.feed(&post, &mut count);
            words.finish(count);
        }
    }
    if rows.is_empty() {
        return Err(damaged(&options.data, "has no words in its posts"));
    }
    let posts = corpus.posts.iter().map(|posts| posts.len() as u32).collect();
    Ok(sorted(posts, totals, rows, &counts))
}

fn sorted(posts: Vec<u32>, totals: Vec<u32>, rows: Map<ShortWord, u32>, counts: &[u32]) -> Trained {
    let word = |(word, row): (ShortWord, u32)| {
        let bytes = memchr::memchr(0, &word.letters).unwrap_or(WORD_BYTES_MAX);
        (Box::from(&word.letters[..bytes]), row)
    };
    let mut words: Vec<(Box<[u8]>, u32)> = rows.into_iter().map(word).collect();
    words.sort_unstable();
    let in_order = words.iter().flat_map(|(_, row)| {
        let first = *row as usize * posts.len();
        &counts[first..first + posts.len()]
    });
    let counts = in_order.copied().collect();
    let words = words.into_iter().map(|(word, _)| word).collect();
    Trained { posts, totals, words, counts }
}

impl Trained {
    /// Returns the checksum of all counts and words.
    pub fn checksum(&self) -> u64 {
        let mut checksum = Checksum::default();
        self.words.iter().for_each(|word| checksum.add(word));
        for numbers in [&self.posts, &self.totals, &self.counts] {
            numbers.iter().for_each(|number| checksum.add_number(u64::from(*number)));
        }
        checksum.value()
    }
}
