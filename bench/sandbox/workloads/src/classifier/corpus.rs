//! Finds the posts in a folder with a subfolder for each category, and sets some aside as mails.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::POSTS;
use crate::error::{OfFile, Outcome, damaged};
use crate::options::Options;
use crate::random::Random;

/// Posts for training and mails to classify.
#[derive(Debug)]
pub struct Corpus {
    /// Training posts of each category, sorted by category name.
    pub posts: Vec<Vec<PathBuf>>,
    /// Mails to classify: category number and path, in random order.
    pub mails: Vec<(usize, PathBuf)>,
}

/// Finds the posts of the selected categories.
pub fn find(options: &Options) -> Outcome<Corpus> {
    let folder = options.corpus.clone().unwrap_or_else(|| options.file(POSTS));
    let mut categories = entries(&folder)?;
    categories.retain(|category| category.is_dir());
    categories.truncate(options.categories.unwrap_or(usize::MAX));
    let posts = categories.iter().map(|category| entries(category));
    let mut posts = posts.collect::<Outcome<Vec<_>>>()?;

    let count: usize = posts.iter().map(Vec::len).sum();
    if count < 2 * options.mails {
        let problem = format!("has {count} posts, too few to set aside {} mails", options.mails);
        return Err(damaged(&folder, problem));
    }
    let mails = set_aside(&mut posts, count, options);
    Ok(Corpus { posts, mails })
}

/// Returns the entries of a folder, sorted by name.
fn entries(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).of(folder)?;
    let paths = entries.map(|entry| Ok(entry.of(folder)?.path()));
    let mut paths = paths.collect::<Outcome<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn set_aside(posts: &mut [Vec<PathBuf>], count: usize, options: &Options) -> Vec<(usize, PathBuf)> {
    let mut random = Random::new(options.seed);
    let mut chosen = BTreeSet::new();
    while chosen.len() < options.mails {
        chosen.insert(random.below(count));
    }
    let (mut mails, mut number) = (Vec::new(), 0);
    for (category, posts) in posts.iter_mut().enumerate() {
        posts.retain(|post| {
            let is_mail = chosen.contains(&number);
            number += 1;
            if is_mail {
                mails.push((category, post.clone()));
            }
            !is_mail
        });
    }
    for place in (1..mails.len()).rev() {
        mails.swap(place, random.below(place + 1));
    }
    mails
}
