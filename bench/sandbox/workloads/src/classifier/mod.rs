//! classifier: assigns messages to newsgroups with a trained model (naive Bayes, multinomial, with
//! add-one smoothing).
//!
//! `prepare` sets random posts aside, trains on the rest, and stores the model: how often each word
//! occurs in each category. The posts set aside are the mails. `run` loads the model and classifies
//! them. Variants of the model: `compact`, a custom format whose words are used in place, in the
//! read buffer; `postcard`, a widely used serialiser; and `heap`. All variants read the mails from
//! a file.

mod compact;
mod corpus;
mod heap;
mod postcard_file;
mod train;

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use evermap_guest::Heap;

use crate::blocks;
use crate::error::{OfFile, Outcome, damaged};
use crate::hash::{Checksum, Key, Map, Word, Xxh3};
use crate::options::Options;
use crate::report::{Report, Watch, make_durable};
use crate::words::{Found, SHORT_BYTES_MAX, Words, short};
use train::Trained;

/// Folder of the generated posts, with a subfolder for each category.
pub const POSTS: &str = "posts";
/// File of the mails to classify.
pub const MAILS: &str = "mails";
/// Shorter words are ignored.
const WORD_BYTES_MIN: usize = 3;

/// Runs one step of the program.
pub fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    match (options.variant.as_str(), options.step.as_str()) {
        ("compact", "prepare") => prepare(options, report, compact::store),
        ("postcard", "prepare") => prepare(options, report, postcard_file::store),
        ("compact", "run") => {
            let mut watch = Watch::start();
            let contents = compact::read(options)?;
            let model = compact::model(options, &contents)?;
            report.time("load", watch.lap())?;
            classify(options, &model, watch, report)
        }
        ("postcard", "run") => {
            let mut watch = Watch::start();
            let contents = postcard_file::read(options)?;
            let model = postcard_file::model(options, &contents)?;
            report.time("load", watch.lap())?;
            classify(options, &model, watch, report)
        }
        ("heap", "prepare") => prepare(options, report, |_, trained| heap::store(trained)),
        ("heap", "run") => {
            let mut watch = Watch::start();
            let snapshot = heap::open()?;
            let model = snapshot.root::<heap::HeapModel>()?;
            report.time("load", watch.lap())?;
            classify(options, model, watch, report)
        }
        _ => Err(options.unknown("`prepare` and `run` of `compact`, `postcard` and `heap`")),
    }
}

/// Trained model in any storage. A row holds the counts of a word, one for each category.
pub trait Model {
    /// Number of posts in each category.
    fn posts(&self) -> &[u32];
    /// Number of words in all posts of each category.
    fn totals(&self) -> &[u32];
    /// Number of different words.
    fn vocabulary(&self) -> usize;
    /// Returns how often a word occurs in the posts of each category.
    fn row(&self, word: &Found) -> Option<&[u32]>;
}

/// Row numbers by word. Short words are in the table itself, longer ones in the read buffer.
#[derive(Default)]
struct Rows<'a> {
    short: Map<Key<SHORT_BYTES_MAX>, u32>,
    long: Map<Word<'a>, u32>,
}

impl<'a> Rows<'a> {
    /// Creates a table with room for this many short words.
    fn with_capacity(words: usize) -> Rows<'a> {
        Rows { short: Map::with_capacity_and_hasher(words, Xxh3), long: Map::default() }
    }

    fn insert(&mut self, word: &'a [u8], row: u32) {
        match short(word) {
            Some(word) => self.short.insert(Key(word), row),
            None => self.long.insert(Word(word), row),
        };
    }

    fn get(&self, word: &Found) -> Option<u32> {
        match word.short() {
            Some(word) => self.short.get(&Key(*word)).copied(),
            None => self.long.get(&Word(word.letters())).copied(),
        }
    }

    fn len(&self) -> usize {
        self.short.len() + self.long.len()
    }
}

/// Model that was read from a file.
struct FileModel<'a> {
    posts: Vec<u32>,
    totals: Vec<u32>,
    words: Rows<'a>,
    counts: Vec<u32>,
}

impl Model for FileModel<'_> {
    fn posts(&self) -> &[u32] {
        &self.posts
    }

    fn totals(&self) -> &[u32] {
        &self.totals
    }

    fn vocabulary(&self) -> usize {
        self.words.len()
    }

    fn row(&self, word: &Found) -> Option<&[u32]> {
        row(&self.counts, self.posts.len(), self.words.get(word)?)
    }
}

/// Returns a row of counts.
fn row(counts: &[u32], categories: usize, number: u32) -> Option<&[u32]> {
    let first = number as usize * categories;
    counts.get(first..first + categories)
}

/// Model that was stored but is not yet durable.
enum Stored {
    File(File, PathBuf),
    Heap(Box<Heap>),
}

fn prepare(
    options: &Options,
    report: &mut Report,
    store: impl FnOnce(&Options, &Trained) -> Outcome<Stored>,
) -> Outcome<()> {
    let mut watch = Watch::start();
    let corpus = corpus::find(options)?;
    let trained = train::train(options, &corpus)?;
    report.time("train", watch.lap())?;
    let stored = store(options, &trained)?;
    report.time("store", watch.lap())?;
    report.time("time", watch.total())?;
    match stored {
        Stored::File(file, path) => make_durable(options, &file, &path, &mut watch, report)?,
        Stored::Heap(mut heap) => {
            heap.commit()?;
            report.time("durable", watch.lap())?;
            heap.close()?;
        }
    }
    write_mails(options, &corpus)?;
    report.count("categories", trained.posts.len() as u64, "categories")?;
    report.count("posts", trained.posts.iter().map(|posts| u64::from(*posts)).sum(), "posts")?;
    report.count("vocabulary", trained.words.len() as u64, "words")?;
    report.checksum(trained.checksum())
}

/// Writes the posts set aside into one file, each after a line with its category's number and its
/// size.
fn write_mails(options: &Options, corpus: &corpus::Corpus) -> Outcome<()> {
    let path = options.file(MAILS);
    let mut writer = blocks::writer(&path, options.block_bytes)?;
    for (category, post) in &corpus.mails {
        let mail = blocks::read_whole(post, 1 << 20)?;
        writeln!(writer, "{category} {}", mail.len()).of(&path)?;
        writer.write_all(&mail).of(&path)?;
    }
    blocks::finish(writer, &path)?;
    Ok(())
}

fn classify(
    options: &Options,
    model: &impl Model,
    mut watch: Watch,
    report: &mut Report,
) -> Outcome<()> {
    let path = options.file(MAILS);
    let mails = blocks::read_whole(&path, options.block_bytes)?;
    let classifier = Classifier::new(model);
    let (mut rest, mut checksum, mut count, mut right) = (&mails[..], Checksum::default(), 0, 0);
    while !rest.is_empty() {
        let (expected, mail, after) = next_mail(rest).ok_or_else(|| {
            damaged(&path, "is inconsistent; run the classifier's `prepare` again")
        })?;
        let category = classifier.category(mail);
        count += 1;
        right += u64::from(category == expected);
        checksum.add_number(category as u64);
        rest = after;
    }
    report.time("classify", watch.lap())?;
    report.time("time", watch.total())?;
    report.count("vocabulary", model.vocabulary() as u64, "words")?;
    report.count("mails", count, "mails")?;
    report.count("right", right, "mails")?;
    report.checksum(checksum.value())
}

/// Returns a mail's category, the mail, and the rest of the data.
fn next_mail(mails: &[u8]) -> Option<(usize, &[u8], &[u8])> {
    let end = memchr::memchr(b'\n', mails)?;
    let (category, bytes) = str::from_utf8(&mails[..end]).ok()?.split_once(' ')?;
    let (mail, after) = mails[end + 1..].split_at_checked(bytes.parse().ok()?)?;
    Some((category.parse().ok()?, mail, after))
}

/// Model, and logarithms that are computed once for all mails.
struct Classifier<'a, M> {
    model: &'a M,
    /// Logarithms of the categories' shares of posts.
    priors: Vec<f64>,
    /// Logarithms of the divisors of each category's counts: its total words plus the vocabulary.
    divisors: Vec<f64>,
}

impl<'a, M: Model> Classifier<'a, M> {
    fn new(model: &'a M) -> Self {
        let posts: f64 = model.posts().iter().map(|posts| f64::from(*posts)).sum();
        let priors = model.posts().iter().map(|count| (f64::from(*count) / posts).ln()).collect();
        let vocabulary = model.vocabulary() as f64;
        let divisors =
            model.totals().iter().map(|total| (f64::from(*total) + vocabulary).ln()).collect();
        Classifier { model, priors, divisors }
    }

    /// Returns the most likely category of a mail.
    fn category(&self, mail: &[u8]) -> usize {
        let mut scores = self.priors.clone();
        let mut add = |word: &Found| {
            // A word that is not in the model is ignored.
            let Some(row) = self.model.row(word) else { return };
            for ((score, count), divisor) in scores.iter_mut().zip(row).zip(&self.divisors) {
                *score += (f64::from(*count) + 1.0).ln() - divisor;
            }
        };
        let mut words = Words::new(WORD_BYTES_MIN);
        words.feed(mail, &mut add);
        words.finish(add);
        let best = scores.iter().enumerate().max_by(|one, other| one.1.total_cmp(other.1));
        best.map_or(0, |(category, _)| category)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_mail_goes_to_the_category_of_its_words() {
        let mut words = Rows::default();
        words.insert(b"heap", 0);
        words.insert(b"goal-of-many-letters", 2);
        words.insert(b"goal", 1);
        let model = FileModel {
            posts: vec![5, 5],
            totals: vec![30, 30],
            words,
            counts: vec![20, 1, 1, 20, 0, 0],
        };
        let classifier = Classifier::new(&model);
        assert_eq!(classifier.category(b"A heap, a heap! And one goal."), 0);
        assert_eq!(classifier.category(b"goal goal heap"), 1);
    }

    #[test]
    fn mails_are_read_in_order_and_a_truncated_one_is_refused() {
        let mails = b"3 5\nhello0 2\nhi";
        let (category, mail, rest) = next_mail(mails).unwrap();
        assert_eq!((category, mail), (3, &b"hello"[..]));
        assert_eq!(next_mail(rest), Some((0, &b"hi"[..], &b""[..])));
        assert_eq!(next_mail(&rest[..5]), None);
    }
}
