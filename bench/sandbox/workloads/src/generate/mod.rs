//! Makes the data sets. Equal seeds and sources give equal sets.
//!
//! The repository contains no data set: the words are WordNet's, the cache is assembled from the
//! system's documentation, and posts are invented.

pub mod cache;
pub mod mail;
pub mod options;
mod pools;
pub mod text;
pub mod words;

use std::path::Path;

use crate::error::{OfFile, Outcome};
use crate::report::Report;
use options::Options;

/// Makes the selected data sets.
pub fn run(options: &Options, report: &mut dyn FnMut(&str) -> Report) -> Outcome<()> {
    for set in &options.sets {
        let report = &mut report(set);
        match set.as_str() {
            "words" => words::make(options, report)?,
            "text" => text::make(options, report)?,
            "cache" => cache::make(options, report)?,
            _ => mail::make(options, report)?,
        }
    }
    Ok(())
}

/// Creates an empty folder, because files of an earlier run would become part of the set.
fn empty_folder(folder: &Path) -> Outcome<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).of(folder)?;
    }
    std::fs::create_dir_all(folder).of(folder)
}
