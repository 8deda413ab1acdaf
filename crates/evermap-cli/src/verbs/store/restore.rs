//! `evermap store restore`: makes a store from a backup.

use std::path::{Path, PathBuf};
use std::time::Instant;

use evermap::Error;
use evermap::tools::BackupOptions;

use super::backup::{print_report, refuse_stream};
use crate::failure::Failure;
use crate::progress::ToolProgress;

/// Make the store from a backup
///
/// Checks the backup, copies it next to the store's path, and renames the copy in one step. The
/// backup is not changed.
///
/// The restored documents follow their source files: a query parses a file that has changed since
/// the backup again. `evermap freeze --all` keeps the versions of the backup.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap store restore /mnt/disk/backup --force")]
pub struct Restore {
    /// Directory that `evermap store backup` made
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// Replace an existing store; it is removed after the backup is in place
    #[arg(long)]
    force: bool,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
}

impl Restore {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        refuse_stream(&self.backup)?;
        let start = Instant::now();
        let progress = ToolProgress::new(directory, "restoring");
        let options = BackupOptions::new().on_progress(progress.callback());
        let restored = evermap::tools::restore(&self.backup, directory, self.force, &options);
        drop(progress);
        let report = restored.map_err(|error| match error {
            Error::StoreExists { path, .. } if !self.force && path.exists() => {
                Failure::StoreExists { path }
            }
            Error::NoStore { path, why } if path == self.backup => Failure::NoBackup { path, why },
            other => other.into(),
        })?;
        print_report(&report, start, self.json)
    }
}
