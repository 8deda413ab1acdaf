//! Command line of `generate`.

use std::path::PathBuf;

use lexopt::{Arg, Parser, ValueExt};

use crate::error::{Error, Outcome};

/// Data sets. Text is made of words, so words come first.
pub const SETS: [&str; 4] = ["words", "text", "cache", "mail"];

/// Selected data sets, their sources and scale.
#[derive(Clone, Debug)]
pub struct Options {
    /// Selected names of [`SETS`].
    pub sets: Vec<String>,
    /// Folder for the data sets.
    pub data: PathBuf,
    /// Scale relative to the full size.
    pub scale: f64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Folder of WordNet.
    pub wordnet: PathBuf,
    /// Folders whose files form the cache.
    pub sources: Vec<PathBuf>,
    /// Bytes of the cache at full size.
    pub cache_bytes: u64,
}

/// Text of `--help` after the names of the sets.
pub const HELP: &str = "\
--data DIR         folder that they go to (.)
--scale X          size, as a share of the full one (1)
--seed N           what choices by chance begin with (1)
--wordnet DIR      words: folder with WordNet's index files (/usr/share/wordnet; Debian: wordnet-base)
--source DIR       cache: folder with files to put it together from; may be given several times
                   (/usr/share/doc and /usr/bin)
--cache-bytes N    cache: size at scale 1 (440000000)";

impl Options {
    /// Reads the command line. Returns `None` if help was requested.
    pub fn read() -> Outcome<Option<Options>> {
        Options::parse(Parser::from_env())
    }

    fn parse(mut parser: Parser) -> Outcome<Option<Options>> {
        let mut options = Options::default();
        let (mut sets, mut sources) = (Vec::new(), Vec::new());
        while let Some(argument) = parser.next()? {
            match argument {
                Arg::Short('h') | Arg::Long("help") => return Ok(None),
                Arg::Long("data") => options.data = parser.value()?.into(),
                Arg::Long("scale") => options.scale = parser.value()?.parse()?,
                Arg::Long("seed") => options.seed = parser.value()?.parse()?,
                Arg::Long("wordnet") => options.wordnet = parser.value()?.into(),
                Arg::Long("source") => sources.push(parser.value()?.into()),
                Arg::Long("cache-bytes") => options.cache_bytes = parser.value()?.parse()?,
                Arg::Value(set) => sets.push(set.string()?),
                _ => return Err(argument.unexpected().into()),
            }
        }
        if let Some(set) = sets.iter().find(|set| !SETS.contains(&set.as_str())) {
            let sets = SETS.join(", ");
            return Err(Error::Usage(format!("unknown data set `{set}`; choose from: {sets}")));
        }
        if !(options.scale > 0.0 && options.scale <= 16.0) {
            return Err(Error::Usage("--scale: give a number above 0 and at most 16".to_string()));
        }
        if !sets.is_empty() {
            options.sets = sets;
        }
        if !sources.is_empty() {
            options.sources = sources;
        }
        Ok(Some(options))
    }

    /// Returns a size or count at this scale.
    pub fn scaled(&self, full: u64) -> u64 {
        (full as f64 * self.scale) as u64
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            sets: SETS.map(str::to_string).to_vec(),
            data: PathBuf::from("."),
            scale: 1.0,
            seed: 1,
            wordnet: PathBuf::from("/usr/share/wordnet"),
            sources: vec![PathBuf::from("/usr/share/doc"), PathBuf::from("/usr/bin")],
            cache_bytes: 440_000_000,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parse(arguments: &[&str]) -> Outcome<Option<Options>> {
        Options::parse(Parser::from_iter(std::iter::once(&"generate").chain(arguments)))
    }

    #[test]
    fn without_names_all_sets_are_made() {
        let options = parse(&["--scale", "0.5"]).unwrap().unwrap();
        assert_eq!((options.sets.len(), options.scaled(7)), (4, 3));
        assert_eq!(parse(&["mail"]).unwrap().unwrap().sets, ["mail"]);
    }

    #[test]
    fn unknown_sets_and_bad_scales_are_refused() {
        assert!(parse(&["mails"]).unwrap_err().to_string().contains("words, text, cache, mail"));
        for scale in ["0", "-1", "nan", "17"] {
            assert!(parse(&["--scale", scale]).is_err(), "{scale}");
        }
    }
}
