//! spell-check: loads a dictionary into a hash table, and finds the words of a text that are not in
//! it.
//!
//! The file variant allocates no word: its table holds short words by value, and longer ones as
//! slices of the read buffer.

mod heap;

use std::collections::HashSet;
use std::io::BufRead;

use crate::blocks;
use crate::error::{OfFile, Outcome};
use crate::hash::{Checksum, Key, Word, Xxh3};
use crate::options::Options;
use crate::report::{Report, Watch};
use crate::words::{Found, SHORT_BYTES_MAX, Words, short};

/// Dictionary: one word per line, in lower case.
pub const DICTIONARY: &str = "words.txt";
/// Text to check.
pub const TEXT: &str = "text.txt";
/// Shorter words are not checked.
pub const WORD_BYTES_MIN: usize = 2;

/// Runs one step of the program.
pub fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    match (options.variant.as_str(), options.step.as_str()) {
        ("file", "run") => with_files(options, report),
        ("heap", "prepare") => heap::prepare(options, report),
        ("heap", "run") => heap::run(report),
        _ => Err(options.unknown("`file run`, `heap prepare` and `heap run`")),
    }
}

fn with_files(options: &Options, report: &mut Report) -> Outcome<()> {
    let mut watch = Watch::start();
    let dictionary = blocks::read_whole(&options.file(DICTIONARY), options.block_bytes)?;
    let words = Dictionary::of(&dictionary);
    report.time("load", watch.lap())?;

    let path = options.file(TEXT);
    let mut text = blocks::reader(&path, options.block_bytes)?;
    let (mut finder, mut results) = (Words::new(WORD_BYTES_MIN), Misspelled::default());
    let mut check = |word: &Found| results.check(word.letters(), words.contains(word));
    loop {
        let piece = text.fill_buf().of(&path)?;
        if piece.is_empty() {
            break;
        }
        finder.feed(piece, &mut check);
        let bytes = piece.len();
        text.consume(bytes);
    }
    finder.finish(check);
    report.time("check", watch.lap())?;
    report.time("time", watch.total())?;
    report.count("dictionary", words.len() as u64, "words")?;
    results.write_to(report)
}

/// Loaded dictionary. Short words are in the table itself, longer ones in the read buffer.
struct Dictionary<'a> {
    short: HashSet<Key<SHORT_BYTES_MAX>, Xxh3>,
    long: HashSet<Word<'a>, Xxh3>,
}

impl<'a> Dictionary<'a> {
    fn of(contents: &'a [u8]) -> Dictionary<'a> {
        let mut words = Dictionary {
            short: HashSet::with_capacity_and_hasher(count_lines(contents), Xxh3),
            long: HashSet::with_hasher(Xxh3),
        };
        for word in lines(contents) {
            match short(word) {
                Some(word) => words.short.insert(Key(word)),
                None => words.long.insert(Word(word)),
            };
        }
        words
    }

    fn contains(&self, word: &Found) -> bool {
        match word.short() {
            Some(word) => self.short.contains(&Key(*word)),
            None => self.long.contains(&Word(word.letters())),
        }
    }

    fn len(&self) -> usize {
        self.short.len() + self.long.len()
    }
}

/// Returns the lines of a dictionary, each a word. Skips empty lines.
pub fn lines(dictionary: &[u8]) -> impl Iterator<Item = &[u8]> {
    dictionary.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

/// Returns the number of lines in a dictionary, as a capacity for its words.
pub fn count_lines(dictionary: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', dictionary).count()
}

/// Results of the check.
#[derive(Debug, Default)]
pub struct Misspelled {
    words: u64,
    misspelled: u64,
    checksum: Checksum,
}

impl Misspelled {
    /// Records a word of the text.
    pub fn check(&mut self, word: &[u8], known: bool) {
        self.words += 1;
        if !known {
            self.misspelled += 1;
            self.checksum.add(word);
        }
    }

    /// Writes the results to the report.
    pub fn write_to(&self, report: &mut Report) -> Outcome<()> {
        report.count("text", self.words, "words")?;
        report.count("misspelled", self.misspelled, "words")?;
        report.checksum(self.checksum.value())
    }
}
