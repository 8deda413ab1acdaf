//! What can be asked for on the command line, and where the store is.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use etcetera::BaseStrategy;

use crate::failure::Failure;
use crate::verbs::{
    Audit, Backup, Bench, Check, Completions, Copy, Demo, Export, Import, Info, Ls, Map, Mv, Parse,
    Query, Rebase, ReceiveFile, Restore, Rm, Sandbox, SendFile, Stats,
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
   3  no such store, object or file
   4  in use by somebody else; also addresses
   5  damaged, not an Evermap file, of a newer format, or of another type
   6  not permitted, or read-only
   7  no space left, on the disk or in the store's addresses
   8  the document cannot be parsed
   9  the name is taken
  10  anything else
  11  a page cannot be fetched or laid out
  12  the source changed while it was copied, or the copy differs from it
  13  the connection to the other end broke, or it speaks otherwise
 130  interrupted";

/// Parses HTML and XML documents once and keeps them open: every later process queries them in
/// microseconds, whatever their size.
#[derive(Debug, Parser)]
#[command(name = "evermap", version, max_term_width = 100)]
#[command(after_help = EXIT_CODES)]
pub struct Arguments {
    /// The store: a directory of named documents [default: $EVERMAP_STORE, else
    /// ~/.local/share/evermap/store]
    #[arg(long, short, value_name = "DIR", global = true, display_order = 100)]
    store: Option<PathBuf>,

    /// Tell on stderr what the library does; twice for every system call
    #[arg(long, short, action = clap::ArgAction::Count, global = true, display_order = 101)]
    pub verbose: u8,

    #[command(subcommand)]
    pub verb: Verb,
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
    /// The store's directory: as asked for, else from the environment, else the user's own.
    pub fn store(&self) -> Result<PathBuf, Failure> {
        if let Some(directory) = &self.store {
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
