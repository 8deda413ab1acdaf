//! `evermap store`: checks, copies, moves and inspects a store.
//!
//! Every verb here is also a hidden verb of the command itself, under which scripts of earlier
//! versions know it.

mod audit;
mod backup;
mod check;
mod export;
mod map;
mod rebase;
mod restore;
mod stats;

use std::path::Path;

use clap::Subcommand;

use crate::failure::Failure;

/// Check, back up, move and inspect stores and their objects
#[derive(Debug, clap::Args)]
pub struct Store {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    Check(check::Check),
    Audit(audit::Audit),
    Backup(backup::Backup),
    Restore(restore::Restore),
    Export(export::Export),
    Import(export::Import),
    Rebase(rebase::Rebase),
    Map(map::Map),
    Stats(stats::Stats),
}

impl Verb {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        match self {
            Verb::Check(check) => check.run(directory),
            Verb::Audit(audit) => audit.run(directory),
            Verb::Backup(backup) => backup.run(directory),
            Verb::Restore(restore) => restore.run(directory),
            Verb::Export(export) => export.run(directory),
            Verb::Import(import) => import.run(directory),
            Verb::Rebase(rebase) => rebase.run(directory),
            Verb::Map(map) => map.run(directory),
            Verb::Stats(stats) => stats.run(directory),
        }
    }
}
