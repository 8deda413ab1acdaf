//! Model as written by `postcard`, a serialiser for programs without a custom format.
//!
//! Words are borrowed from the read buffer. Numbers have variable length, so each one is decoded.

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::train::Trained;
use super::{FileModel, Rows, Stored};
use crate::blocks;
use crate::error::{Error, Outcome, damaged};
use crate::hash::{Map, Word};
use crate::options::Options;

const NAME: &str = "model.postcard";
/// Largest preallocation, because a damaged file may claim more words than it has.
const WORDS_BELIEVED: usize = 1 << 20;

/// Model on disk; `W` is a map from words to row numbers.
#[derive(Serialize, Deserialize)]
struct Kept<W> {
    posts: Vec<u32>,
    totals: Vec<u32>,
    words: W,
    counts: Vec<u32>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Rows<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Words;

        impl<'de> Visitor<'de> for Words {
            type Value = Rows<'de>;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("words with their row numbers")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Rows<'de>, M::Error> {
                let mut rows =
                    Rows::with_capacity(map.size_hint().unwrap_or(0).min(WORDS_BELIEVED));
                while let Some((Word(word), row)) = map.next_entry()? {
                    rows.insert(word, row);
                }
                Ok(rows)
            }
        }

        deserializer.deserialize_map(Words)
    }
}

/// Writes the model.
pub fn store(options: &Options, trained: &Trained) -> Outcome<Stored> {
    let path = options.file(NAME);
    let rows = trained.words.iter().zip(0..).map(|(word, row)| (Word(word), row));
    let kept = Kept {
        posts: trained.posts.clone(),
        totals: trained.totals.clone(),
        words: rows.collect::<Map<Word<'_>, u32>>(),
        counts: trained.counts.clone(),
    };
    let mut writer = blocks::writer(&path, options.block_bytes)?;
    postcard::to_io(&kept, &mut writer).map_err(|error| of_postcard(options, error))?;
    Ok(Stored::File(blocks::finish(writer, &path)?, path))
}

/// Reads the file.
pub fn read(options: &Options) -> Outcome<Vec<u8>> {
    blocks::read_whole(&options.file(NAME), options.block_bytes)
}

/// Parses the model.
pub fn model<'a>(options: &Options, contents: &'a [u8]) -> Outcome<FileModel<'a>> {
    let kept: Kept<Rows<'a>> =
        postcard::from_bytes(contents).map_err(|error| of_postcard(options, error))?;
    let Kept { posts, totals, words, counts } = kept;
    if totals.len() != posts.len() || counts.len() != posts.len() * words.len() {
        return Err(damaged(&options.file(NAME), "is inconsistent; run `prepare` again"));
    }
    Ok(FileModel { posts, totals, words, counts })
}

fn of_postcard(options: &Options, error: postcard::Error) -> Error {
    damaged(&options.file(NAME), format!("{error}; run `prepare` again"))
}
