//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::failure::Failure;
use crate::help;
use crate::store_path::default_store;
use crate::verbs::{
    Bench, Completions, Copy, Demo, Freeze, Generate, Info, Lane, Load, Ls, Mv, Parse, Query,
    ReceiveFile, Rm, Sandbox, SendFile, Store, StoreVerb,
};

#[cfg(feature = "view")]
use crate::verbs::{Prefetch, Render, View};

/// Adds the arguments of a verb to its command.
type AugmentArgs = fn(Command) -> Command;

/// Verbs that scripts start often. They are parsed without the arguments of the other verbs,
/// because building the arguments of all verbs took a quarter of all instructions of `copy`.
const QUICK: [(&str, AugmentArgs); 6] = [
    ("parse", Parse::augment_args),
    ("query", Query::augment_args),
    ("ls", Ls::augment_args),
    ("copy", Copy::augment_args),
    ("send", SendFile::augment_args),
    ("receive", ReceiveFile::augment_args),
];

/// The command line. [`Arguments::full_command`] completes its help.
#[derive(Debug, Parser)]
#[command(name = "evermap", version, max_term_width = 100)]
#[command(about = help::ABOUT, long_about = None, after_help = help::EXIT_CODES)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,

    #[command(subcommand)]
    pub verb: Verb,
}

/// Options of all verbs.
#[derive(Debug, Args)]
pub struct Common {
    /// Directory of the store [default: $EVERMAP_STORE, else ~/.local/share/evermap/store]
    #[arg(long, short, value_name = "DIR", global = true, display_order = 100)]
    store: Option<PathBuf>,

    /// Log to stderr; repeat to log system calls
    #[arg(long, short, action = clap::ArgAction::Count, global = true, display_order = 101)]
    pub verbose: u8,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    Parse(Parse),
    Query(Query),
    Ls(Ls),
    Info(Info),
    Mv(Mv),
    Freeze(Freeze),
    Rm(Rm),
    Store(Store),
    /// Old spelling of a verb of `store`, without that word. Hidden.
    #[command(flatten)]
    OldSpelling(StoreVerb),
    Copy(Copy),
    Send(SendFile),
    Receive(ReceiveFile),
    Load(Load),
    Lane(Lane),
    Bench(Bench),
    #[cfg(feature = "view")]
    View(View),
    #[cfg(feature = "view")]
    Render(Render),
    #[cfg(feature = "view")]
    Prefetch(Prefetch),
    Sandbox(Sandbox),
    Demo(Demo),
    Completions(Completions),
    #[command(hide = true)]
    Generate(Generate),
}

impl Arguments {
    /// Parses a command line, whose first word is the command's name.
    pub fn parse_line(words: &[OsString]) -> Result<Arguments, clap::Error> {
        match Self::parse_quick_verb(words) {
            Some(arguments) => Ok(arguments),
            None => {
                let matches = Self::full_command().try_get_matches_from(words)?;
                Arguments::from_arg_matches(&matches)
            }
        }
    }

    /// Returns the command with all verbs and their help.
    pub fn full_command() -> Command {
        help::complete(Self::command())
    }

    /// Parses a valid line that begins with a verb of [`QUICK`]. Returns `None` for all other
    /// lines: help texts and error messages need all verbs.
    fn parse_quick_verb(words: &[OsString]) -> Option<Arguments> {
        let first = words.get(1)?;
        let (name, augment_args) = QUICK.iter().find(|(name, _)| first == name)?;
        let verb = augment_args(Command::new(*name));
        let command = Common::augment_args(Command::new("evermap")).subcommand(verb);
        let matches = command.try_get_matches_from(words).ok()?;
        Arguments::from_arg_matches(&matches).ok()
    }

    /// Returns the store's directory: from `--store`, else [`default_store`].
    pub fn store(&self) -> Result<PathBuf, Failure> {
        self.common.store.clone().map_or_else(default_store, Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    /// Parses a line with all verbs.
    fn every_verb(line: &str) -> Result<Arguments, clap::Error> {
        let matches = Arguments::full_command().try_get_matches_from(words(line))?;
        Arguments::from_arg_matches(&matches)
    }

    #[test]
    fn quick_verbs_are_parsed_like_all_others() {
        let lines = [
            "evermap parse page.html other.xml",
            "evermap query --store place page p",
            "evermap ls -v -v",
            "evermap copy a b --durability full",
            "evermap copy -s place --verbose -- -a b",
            "evermap send file 127.0.0.1:1 --raw",
            "evermap receive 127.0.0.1:0 file",
        ];
        for line in lines {
            let quick = Arguments::parse_quick_verb(&words(line));
            let usual = every_verb(line).unwrap();
            assert_eq!(format!("{:?}", quick.unwrap()), format!("{usual:?}"), "{line}");
        }
        for (name, _) in QUICK {
            assert!(lines.iter().any(|line| line.split(' ').nth(1) == Some(name)), "{name}");
        }
    }

    #[test]
    fn help_and_errors_know_all_verbs() {
        for line in [
            "evermap",
            "evermap copy",
            "evermap copy --help",
            "evermap -v copy a b",
            "evermap cop a b",
        ] {
            assert!(Arguments::parse_quick_verb(&words(line)).is_none(), "{line}");
        }
        let error = Arguments::parse_line(&words("evermap copy --nonsense a b")).unwrap_err();
        assert!(error.to_string().contains("Usage: evermap copy"), "{error}");
    }
}
