//! What can be asked for on the command line, and where the store is.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Command, FromArgMatches, Parser, Subcommand};
use etcetera::BaseStrategy;

use crate::failure::Failure;
use crate::verbs::{
    Audit, Backup, Bench, Check, Completions, Copy, Demo, Export, Import, Info, Lane, Load, Ls,
    Map, Mv, Parse, Query, Rebase, ReceiveFile, Restore, Rm, Sandbox, SendFile, Stats,
};

#[cfg(feature = "view")]
use crate::verbs::{Prefetch, Render, View};

/// Names the store when `--store` doesn't.
const STORE_VARIABLE: &str = "EVERMAP_STORE";

/// What `--help` says after the options. `docs/cli.md` has the same table.
const EXIT_CODES: &str = "\
Exit codes:
   0  done; a reader that stops early (`| head`) is no error
   1  query: nothing matched
   2  wrong usage: arguments, a selector, a name
   3  no such store, object, file or process
   4  in use by somebody else; also addresses
   5  damaged, not an Evermap file, of a newer format, or of another type
   6  not permitted, or read-only
   7  no space on the disk, in memory or in the store's addresses; a limit (`ulimit`)
   8  the document cannot be parsed; also policies, rules and traces
   9  the name is taken
  10  anything else
  11  a page cannot be fetched or laid out
  12  the source changed while it was copied, or the copy differs from it; also `--stale fail`
  13  the connection to the other end broke, or it speaks otherwise
  14  lane check: no lane with `SCHED_FIFO` is possible
 130  interrupted";

/// Describes what a verb can be asked for.
type Describe = fn(Command) -> Command;

/// Verbs that programs and loops start often, and so without all the others: what a verb can be asked for is described in
/// memory before a line is read, and of 25 verbs that took a quarter of all instructions of `copy`.
const QUICK: [(&str, Describe); 6] = [
    ("parse", Parse::augment_args),
    ("query", Query::augment_args),
    ("ls", Ls::augment_args),
    ("copy", Copy::augment_args),
    ("send", SendFile::augment_args),
    ("receive", ReceiveFile::augment_args),
];

/// Keeps data mapped: documents, objects, pages and files open in microseconds in every later process.
///
/// `parse` and `query` are for HTML and XML documents; the other verbs look after the store, move files
/// and run programs.
#[derive(Debug, Parser)]
#[command(name = "evermap", version, max_term_width = 100)]
#[command(after_help = EXIT_CODES)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,

    #[command(subcommand)]
    pub verb: Verb,
}

/// What all verbs understand.
#[derive(Debug, Args)]
pub struct Common {
    /// The store: a directory of named documents [default: $EVERMAP_STORE, else
    /// ~/.local/share/evermap/store]
    #[arg(long, short, value_name = "DIR", global = true, display_order = 100)]
    store: Option<PathBuf>,

    /// Tell on stderr what the library does; twice for every system call
    #[arg(long, short, action = clap::ArgAction::Count, global = true, display_order = 101)]
    pub verbose: u8,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    Parse(Parse),
    Query(Query),
    Ls(Ls),
    Info(Info),
    Map(Map),
    Stats(Stats),
    Rm(Rm),
    Mv(Mv),
    Check(Check),
    Audit(Audit),
    Backup(Backup),
    Restore(Restore),
    Export(Export),
    Import(Import),
    Rebase(Rebase),
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
}

impl Arguments {
    /// What a command line asks for, the command's own name first.
    pub fn of_line(words: &[OsString]) -> Result<Arguments, clap::Error> {
        match Self::of_quick_verb(words) {
            Some(arguments) => Ok(arguments),
            None => Self::try_parse_from(words),
        }
    }

    /// The same for a line that begins with a quick verb and has nothing wrong with it. Whatever else there is to say, help
    /// or a mistake, is said with all verbs known.
    fn of_quick_verb(words: &[OsString]) -> Option<Arguments> {
        let first = words.get(1)?;
        let (name, describe) = QUICK.iter().find(|(name, _)| first == name)?;
        let verb = describe(Command::new(*name));
        let command = Common::augment_args(Command::new("evermap")).subcommand(verb);
        let matches = command.try_get_matches_from(words).ok()?;
        Arguments::from_arg_matches(&matches).ok()
    }

    /// The store's directory: as asked for, else from the environment, else the user's own.
    pub fn store(&self) -> Result<PathBuf, Failure> {
        if let Some(directory) = &self.common.store {
            return Ok(directory.clone());
        }
        if let Some(directory) = std::env::var_os(STORE_VARIABLE).filter(|value| !value.is_empty())
        {
            return Ok(directory.into());
        }
        let strategy = etcetera::base_strategy::Xdg::new().map_err(|_| Failure::NoHome)?;
        Ok(strategy.data_dir().join("evermap").join("store"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn quick_verbs_are_understood_as_all_are() {
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
            let quick = Arguments::of_quick_verb(&words(line));
            let usual = Arguments::try_parse_from(words(line)).unwrap();
            assert_eq!(format!("{:?}", quick.unwrap()), format!("{usual:?}"), "{line}");
        }
        for (name, _) in QUICK {
            assert!(lines.iter().any(|line| line.split(' ').nth(1) == Some(name)), "{name}");
        }
    }

    #[test]
    fn mistakes_and_help_are_told_with_all_verbs_known() {
        for line in [
            "evermap",
            "evermap copy",
            "evermap copy --help",
            "evermap -v copy a b",
            "evermap cop a b",
        ] {
            assert!(Arguments::of_quick_verb(&words(line)).is_none(), "{line}");
        }
        let said = Arguments::of_line(&words("evermap copy --nonsense a b")).unwrap_err();
        assert!(said.to_string().contains("Usage: evermap copy"), "{said}");
    }
}
