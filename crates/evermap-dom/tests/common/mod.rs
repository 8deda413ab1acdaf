//! Shared code of the tests: the corpus, a peer tree from html5ever's rcdom, and a reproducible
//! random number generator.
#![allow(dead_code, clippy::unwrap_used)]

pub mod peer;
pub mod selectors;

use std::path::PathBuf;

/// Returns a folder of the test corpus; `None` with a notice if it is missing.
pub fn corpus(part: &str) -> Option<PathBuf> {
    let root = std::env::var_os("EVERMAP_CORPUS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus"),
        PathBuf::from,
    );
    let folder = root.join(part);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("SKIPPED: no corpus at {} (set EVERMAP_CORPUS)", folder.display());
    None
}

/// Returns the files of a corpus folder with one extension, sorted: name and content.
pub fn files(part: &str, extension: &str) -> Vec<(String, String)> {
    let Some(folder) = corpus(part) else {
        return Vec::new();
    };
    let mut files: Vec<(String, String)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let bytes = std::fs::read(&path).unwrap();
            (name, String::from_utf8_lossy(&bytes).into_owned())
        })
        .collect();
    files.sort();
    files
}

/// xorshift64*: small, and the same on all platforms.
pub struct Random(u64);

impl Random {
    /// Creates a generator. The variable EVERMAP_SEED replaces the seed.
    pub fn new(seed: u64) -> Random {
        let given = std::env::var("EVERMAP_SEED").ok();
        let seed = given.and_then(|text| text.parse().ok()).unwrap_or(seed);
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.number() % limit.max(1) as u64) as usize
    }

    pub fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len())]
    }

    /// Returns true once in `n` times on average.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}
