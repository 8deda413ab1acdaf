//! Posts like those of newsgroups: ten categories, each with its own words among the common ones.
//!
//! The words are built from random syllables, and everything else is invented, too. Real corpora
//! have no licence; measure them with `classifier --corpus`.

use std::collections::BTreeSet;
use std::io::Write;

use super::empty_folder;
use super::options::Options;
use crate::blocks;
use crate::classifier::POSTS;
use crate::error::{OfFile, Outcome};
use crate::hash::Checksum;
use crate::random::{Random, Zipf};
use crate::report::Report;

const CATEGORIES: [&str; 10] = [
    "art", "books", "cars", "cooking", "economy", "films", "gardens", "hardware", "music", "sports",
];
const POSTS_OF_A_CATEGORY: u64 = 1000;
/// Number of words that occur in all categories.
const WORDS: usize = 100_000;
/// Number of words that are more frequent in a category.
const TOPIC_WORDS: usize = 600;
/// Share of a category's words, per thousand words of a post.
const ON_TOPIC: usize = 60;
const LINE_BYTES: usize = 72;

const ONSETS: [&str; 20] = [
    "b", "br", "c", "ch", "d", "f", "g", "gr", "h", "j", "l", "m", "n", "p", "pl", "r", "s", "st",
    "t", "v",
];
const VOWELS: [&str; 10] = ["a", "e", "i", "o", "u", "ai", "ea", "ie", "oo", "ou"];
const CODAS: [&str; 10] = ["", "", "", "", "n", "r", "s", "t", "l", "ck"];

/// Makes the posts.
pub fn make(options: &Options, report: &mut Report) -> Outcome<()> {
    let folder = options.data.join(POSTS);
    empty_folder(&folder)?;
    let posts = options.scaled(POSTS_OF_A_CATEGORY).max(20);
    let (mut random, mut checksum, mut bytes) = (Random::new(options.seed), Checksum::default(), 0);
    let language = Language::new(&mut random);
    for category in CATEGORIES {
        let folder = folder.join(category);
        std::fs::create_dir(&folder).of(&folder)?;
        let topic: Vec<usize> = (0..TOPIC_WORDS).map(|_| random.below(WORDS)).collect();
        for number in 0..posts {
            let post = language.post(&topic, &mut random);
            checksum.add(&post);
            bytes += post.len() as u64;
            blocks::write_whole(&folder.join(format!("{number:05}")), 1 << 20, &post)?;
        }
    }
    report.count("categories", CATEGORIES.len() as u64, "categories")?;
    report.count("posts", posts * CATEGORIES.len() as u64, "posts")?;
    report.count("bytes", bytes, "bytes")?;
    report.checksum(checksum.value())
}

/// Words with their frequencies.
struct Language {
    words: Vec<String>,
    everywhere: Zipf,
    on_topic: Zipf,
}

impl Language {
    fn new(random: &mut Random) -> Language {
        let (mut words, mut seen) = (Vec::with_capacity(WORDS), BTreeSet::new());
        while words.len() < WORDS {
            // Frequent words are short.
            let syllables = 1 + words.len() / 300;
            let word: String =
                (0..syllables.min(2) + random.below(2)).map(|_| syllable(random)).collect();
            if seen.insert(word.clone()) {
                words.push(word);
            }
        }
        Language { words, everywhere: Zipf::new(WORDS), on_topic: Zipf::new(TOPIC_WORDS) }
    }

    fn post(&self, topic: &[usize], random: &mut Random) -> Vec<u8> {
        let mut post = Vec::new();
        let name = self.words[random.below(WORDS)].as_str();
        let subject: Vec<&str> =
            (0..2 + random.below(5)).map(|_| self.word(topic, random)).collect();
        // Writing to memory cannot fail.
        _ = write!(
            post,
            "From: {name}@{}.example\nSubject: {}{}\nMessage-ID: <{:016x}@{name}.example>\n\n",
            self.words[random.below(300)],
            if random.happens(500) { "Re: " } else { "" },
            subject.join(" "),
            random.number(),
        );
        for _ in 0..1 + random.below(8) {
            let quoted = random.happens(250);
            self.paragraph(topic, if quoted { "> " } else { "" }, &mut post, random);
        }
        post
    }

    fn paragraph(&self, topic: &[usize], mark: &str, post: &mut Vec<u8>, random: &mut Random) {
        let mut line = mark.to_string();
        for _ in 0..10 + random.below(140) {
            let word = self.word(topic, random);
            if line.len() + word.len() > LINE_BYTES {
                post.extend(line.trim_end().as_bytes());
                post.push(b'\n');
                line = mark.to_string();
            }
            line.push_str(word);
            line.push_str(if random.happens(90) { ". " } else { " " });
        }
        post.extend(line.trim_end().as_bytes());
        post.extend(b"\n\n");
    }

    fn word(&self, topic: &[usize], random: &mut Random) -> &str {
        let number = match random.happens(ON_TOPIC) {
            true => topic[self.on_topic.rank(random)],
            false => self.everywhere.rank(random),
        };
        &self.words[number]
    }
}

fn syllable(random: &mut Random) -> String {
    let onset = ONSETS[random.below(ONSETS.len())];
    let vowel = VOWELS[random.below(VOWELS.len())];
    format!("{onset}{vowel}{}", CODAS[random.below(CODAS.len())])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_seed_gives_the_same_posts_in_category_folders() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str, seed| {
            let options =
                Options { data: folder.path().join(name), scale: 0.03, seed, ..Options::default() };
            super::make(&options, &mut Report::new(String::new(), std::io::sink())).unwrap();
            CATEGORIES.map(|category| {
                let category = options.data.join(POSTS).join(category);
                let posts = (0..30).map(|number| category.join(format!("{number:05}")));
                assert_eq!(std::fs::read_dir(&category).unwrap().count(), 30);
                posts.map(|post| std::fs::read(post).unwrap()).collect::<Vec<_>>()
            })
        };
        let first = make("first", 1);
        let bytes: usize = first.iter().flatten().map(Vec::len).sum();
        assert!((2000..5000).contains(&(bytes / 300)), "{bytes}");
        assert!(first == make("second", 1) && first != make("third", 2));
    }

    #[test]
    fn words_of_a_category_are_rare_in_others() {
        let mut random = Random::new(1);
        let language = Language::new(&mut random);
        let topic: Vec<usize> = (0..TOPIC_WORDS).map(|_| random.below(WORDS)).collect();
        let word = &language.words[topic[0]];
        let mut count = |topic: &[usize]| {
            let posts = (0..100).flat_map(|_| language.post(topic, &mut random));
            let text = String::from_utf8(posts.collect()).unwrap_or_default();
            text.split(|c: char| !c.is_ascii_alphabetic()).filter(|found| found == word).count()
        };
        let (on_topic, elsewhere) = (count(&topic), count(&[0; TOPIC_WORDS]));
        assert!(on_topic > 10 * elsewhere + 50, "{on_topic}, {elsewhere}");
    }
}
