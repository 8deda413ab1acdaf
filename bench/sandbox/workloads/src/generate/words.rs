//! Dictionary: words of WordNet's index files and irregular forms, one per line, lower-case and
//! sorted.

use std::collections::BTreeSet;

use super::options::Options;
use crate::blocks;
use crate::error::{Outcome, damaged};
use crate::hash::checksum_of;
use crate::report::Report;
use crate::spell_check::{DICTIONARY, WORD_BYTES_MIN};
use crate::words::{Found, WORD_BYTES_MAX, Words};

const PARTS: [&str; 4] = ["noun", "verb", "adj", "adv"];

/// Makes the dictionary.
pub fn make(options: &Options, report: &mut Report) -> Outcome<()> {
    let dictionary = dictionary(options)?;
    std::fs::create_dir_all(&options.data).ok();
    let path = options.data.join(DICTIONARY);
    blocks::write_whole(&path, 1 << 20, &dictionary)?;
    report.count(
        "words",
        dictionary.iter().filter(|byte| **byte == b'\n').count() as u64,
        "words",
    )?;
    report.count("bytes", dictionary.len() as u64, "bytes")?;
    report.checksum(checksum_of(&dictionary))
}

fn dictionary(options: &Options) -> Outcome<Vec<u8>> {
    let mut words = BTreeSet::new();
    for part in PARTS {
        let path = options.wordnet.join(format!("index.{part}"));
        // Lines that begin with a space contain the licence.
        for line in blocks::read_whole(&path, 1 << 20)?.split(|byte| *byte == b'\n') {
            add(line, 1, &mut words);
        }
        let path = options.wordnet.join(format!("{part}.exc"));
        for line in blocks::read_whole(&path, 1 << 20)?.split(|byte| *byte == b'\n') {
            add(line, 2, &mut words);
        }
    }
    if words.is_empty() {
        return Err(damaged(
            &options.wordnet,
            "has no words in WordNet's index files; check the folder",
        ));
    }
    Ok(words.into_iter().flat_map(|word| word.into_iter().chain([b'\n'])).collect())
}

/// Adds the first expressions of a line; each has one or more words.
fn add(line: &[u8], expressions: usize, words: &mut BTreeSet<Vec<u8>>) {
    for expression in line.split(|byte| *byte == b' ').take(expressions) {
        let mut finder = Words::new(WORD_BYTES_MIN);
        let mut keep = |found: &Found| {
            let word = found.letters();
            if word.len() < WORD_BYTES_MAX {
                words.insert(word.to_vec());
            }
        };
        finder.feed(expression, &mut keep);
        finder.finish(keep);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn expressions_are_split_into_words_and_the_licence_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        for part in PARTS {
            std::fs::write(folder.path().join(format!("index.{part}")), "").unwrap();
            std::fs::write(folder.path().join(format!("{part}.exc")), "").unwrap();
        }
        let index = "  1 This is the licence\nvis-a-vis n 1 2 @\nwater_lily n 1 2 @\nlily n 1\n";
        std::fs::write(folder.path().join("index.noun"), index).unwrap();
        std::fs::write(folder.path().join("noun.exc"), "abaci abacus\n").unwrap();
        let options = Options { wordnet: folder.path().into(), ..Options::default() };
        assert_eq!(dictionary(&options).unwrap(), b"abaci\nabacus\nlily\nvis\nwater\n");
    }

    #[test]
    fn wordnet_has_common_words() {
        let options = Options::default();
        if !options.wordnet.exists() {
            eprintln!(
                "{} is not there (Debian: wordnet-base): not tested",
                options.wordnet.display()
            );
            return;
        }
        let dictionary = dictionary(&options).unwrap();
        let words: Vec<&[u8]> = crate::spell_check::lines(&dictionary).collect();
        assert!(words.len() > 80_000 && words.is_sorted());
        for word in ["heap", "window", "snapshot", "oxen"] {
            assert!(words.contains(&word.as_bytes()), "{word}");
        }
    }

    #[test]
    fn a_folder_without_wordnet_is_refused_and_named() {
        let options = Options { wordnet: "/nowhere".into(), ..Options::default() };
        let error = dictionary(&options).unwrap_err().to_string();
        assert!(error.contains("/nowhere/index.noun"), "{error}");
    }
}
