//! Command line of `workload`.

use std::path::{Path, PathBuf};

use lexopt::{Arg, Parser, ValueExt};

use crate::error::{Error, Outcome};

/// Step to run, with its options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the workload.
    pub workload: String,
    /// Storage variant: `file`, `heap`, or another name of the workload.
    pub variant: String,
    /// Step: `prepare` or `run`.
    pub step: String,
    /// Folder with the data sets, which also takes the results.
    pub data: PathBuf,
    /// Block size for files in bytes.
    pub block_bytes: usize,
    /// Size of the data, for workloads that generate them.
    pub bytes: Option<usize>,
    /// Number of measurements of an operation.
    pub rounds: usize,
    /// Lengths of nucleotide sequences to count.
    pub k: Vec<usize>,
    /// Number of entries of the hash map.
    pub entries: u64,
    /// Number of lookups.
    pub lookups: u64,
    /// Number of categories of the classifier; all by default.
    pub categories: Option<usize>,
    /// Number of mails to classify.
    pub mails: usize,
    /// Folder with a subfolder of posts for each category; by default the generated one.
    pub corpus: Option<PathBuf>,
    /// Seed of random choices.
    pub seed: u64,
    /// Syncs files to the disk afterwards. The commit of a heap always does.
    pub durable: bool,
    /// Reads results again after the measurement, for their checksum.
    pub check: bool,
}

/// Text of `--help` after the names of the workloads.
pub const HELP: &str = "\
--data DIR        folder with the data sets (.)
--block-bytes N   bytes that go to or come from a file at a time (4096)
--bytes N         size of the data that fasta and calls make (64 MiB, 16 MiB)
--rounds N        calls: how often each operation is measured (9)
--k A,B           k-nucleotide: lengths that are counted (6)
--entries N       hash-map: entries (1000000)
--lookups N       hash-map: how many of them are looked up (100000)
--categories N    classifier: how many categories it knows (all)
--mails N         classifier: how many mails are classified (100)
--corpus DIR      classifier: a folder with a folder of posts for each category
--seed N          what choices by chance begin with (1)
--no-durable      do not flush files to the disk afterwards
--no-check        do not read results again for their checksum

EVERMAP_STORE     natively: the store that heaps are in. Guests have the one of their host";

impl Options {
    /// Reads the command line. Returns `None` if help was requested.
    pub fn read() -> Outcome<Option<Options>> {
        Options::parse(Parser::from_env())
    }

    fn parse(mut parser: Parser) -> Outcome<Option<Options>> {
        let (mut options, mut values) = (Options::default(), Vec::new());
        while let Some(argument) = parser.next()? {
            match argument {
                Arg::Short('h') | Arg::Long("help") => return Ok(None),
                Arg::Long("no-durable") => options.durable = false,
                Arg::Long("no-check") => options.check = false,
                Arg::Long(name) => {
                    let name = name.to_string();
                    options.set(&name, &mut parser)?;
                }
                Arg::Value(value) => values.push(value.string()?),
                _ => return Err(argument.unexpected().into()),
            }
        }
        let [workload, variant, step] = <[String; 3]>::try_from(values).map_err(|values| {
            let found = values.join(" ");
            Error::Usage(format!("expected WORKLOAD VARIANT STEP, found `{found}`; see --help"))
        })?;
        Ok(Some(Options { workload, variant, step, ..options }))
    }

    fn set(&mut self, name: &str, parser: &mut Parser) -> Outcome<()> {
        match name {
            "data" => self.data = parser.value()?.into(),
            "corpus" => self.corpus = Some(parser.value()?.into()),
            "block-bytes" => self.block_bytes = positive(name, parser)?,
            "bytes" => self.bytes = Some(positive(name, parser)?),
            "rounds" => self.rounds = positive(name, parser)?,
            "entries" => self.entries = positive(name, parser)? as u64,
            "lookups" => self.lookups = positive(name, parser)? as u64,
            "categories" => self.categories = Some(positive(name, parser)?),
            "mails" => self.mails = positive(name, parser)?,
            "seed" => self.seed = parser.value()?.parse()?,
            "k" => {
                let list = parser.value()?.string()?;
                let lengths =
                    list.split(',').map(|k| k.parse().ok().filter(|k| (1..=31).contains(k)));
                self.k = lengths.collect::<Option<_>>().ok_or_else(|| {
                    Error::Usage(format!(
                        "--k {list}: give numbers from 1 to 31, separated by commas"
                    ))
                })?;
            }
            _ => return Err(Error::Usage(format!("unknown option --{name}; see --help"))),
        }
        Ok(())
    }

    /// Returns the path of a file of the data sets.
    pub fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.data.join(name)
    }

    /// Returns the error for an unknown variant or step.
    pub fn unknown(&self, variants: &str) -> Error {
        let Options { workload, variant, step, .. } = self;
        Error::Usage(format!("{workload} has no `{variant} {step}`; choose from: {variants}"))
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            workload: String::new(),
            variant: String::new(),
            step: String::new(),
            data: PathBuf::from("."),
            block_bytes: 4096,
            bytes: None,
            rounds: 9,
            k: vec![6],
            entries: 1_000_000,
            lookups: 100_000,
            categories: None,
            mails: 100,
            corpus: None,
            seed: 1,
            durable: true,
            check: true,
        }
    }
}

fn positive(name: &str, parser: &mut Parser) -> Outcome<usize> {
    let number = parser.value()?.parse()?;
    if number == 0 {
        return Err(Error::Usage(format!("--{name} 0: at least 1 is needed")));
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parse(arguments: &[&str]) -> Outcome<Option<Options>> {
        Options::parse(Parser::from_iter(std::iter::once(&"workload").chain(arguments)))
    }

    #[test]
    fn names_and_options_mix() {
        let options =
            parse(&["fasta", "--bytes=100", "file", "--data", "/d", "run", "--k", "1,18"]);
        let options = options.unwrap().unwrap();
        assert_eq!((options.workload, options.variant, options.step), names("fasta file run"));
        assert_eq!((options.bytes, options.k), (Some(100), vec![1, 18]));
        assert_eq!(options.data, Path::new("/d"));
    }

    #[test]
    fn bad_arguments_are_refused_with_the_reason() {
        let stderr = |arguments: &[&str]| parse(arguments).unwrap_err().to_string();
        assert!(stderr(&["fasta", "file"]).contains("found `fasta file`"));
        assert!(stderr(&["--blocks", "1"]).contains("--blocks"));
        assert!(stderr(&["--block-bytes", "0"]).contains("at least 1"));
        assert!(stderr(&["--k", "0"]).contains("from 1 to 31"));
        assert!(parse(&["--help"]).unwrap().is_none());
    }

    fn names(line: &str) -> (String, String, String) {
        let mut names = line.split(' ').map(str::to_string);
        (names.next().unwrap(), names.next().unwrap(), names.next().unwrap())
    }
}
