//! The model as `postcard` writes it, the serialiser that a program takes which wants no format of
//! its own.
//!
//! Words are borrowed from what was read. Numbers are of variable length, so each one is decoded.

use serde::{Deserialize, Serialize};

use super::train::Trained;
use super::{FileModel, Stored};
use crate::blocks;
use crate::error::{Error, Outcome, damaged};
use crate::hash::{Map, Word};
use crate::options::Options;

const NAME: &str = "model.postcard";

#[derive(Serialize, Deserialize)]
struct Kept<'a> {
    posts: Vec<u32>,
    totals: Vec<u32>,
    #[serde(borrow)]
    words: Map<Word<'a>, u32>,
    counts: Vec<u32>,
}

/// Writes it.
pub fn store(options: &Options, trained: &Trained) -> Outcome<Stored> {
    let path = options.file(NAME);
    let rows = trained.words.iter().zip(0..).map(|(word, row)| (Word(word), row));
    let kept = Kept {
        posts: trained.posts.clone(),
        totals: trained.totals.clone(),
        words: rows.collect(),
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

/// The model in what was read.
pub fn model<'a>(options: &Options, contents: &'a [u8]) -> Outcome<FileModel<'a>> {
    let kept: Kept<'a> =
        postcard::from_bytes(contents).map_err(|error| of_postcard(options, error))?;
    let Kept { posts, totals, words, counts } = kept;
    if totals.len() != posts.len() || counts.len() != posts.len() * words.len() {
        return Err(damaged(&options.file(NAME), "contradicts itself; prepare it anew"));
    }
    Ok(FileModel { posts, totals, words, counts })
}

fn of_postcard(options: &Options, error: postcard::Error) -> Error {
    damaged(&options.file(NAME), format!("{error}; prepare it anew"))
}
