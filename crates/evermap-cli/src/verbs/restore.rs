//! `evermap restore`: makes a store of a backup.

use std::path::{Path, PathBuf};
use std::time::Instant;

use evermap::Error;
use evermap::tools::BackupOptions;

use super::backup::tell;
use crate::failure::Failure;
use crate::progress::ToolProgress;

/// Make the store of a backup
///
/// Checks the backup, copies it beside the store's place and puts the copy there at once. The
/// backup stays as it is.
#[derive(Debug, clap::Args)]
pub struct Restore {
    /// Directory that `evermap backup` made
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// Replace a store that is there, and nothing else; it is removed when the backup is in place
    #[arg(long)]
    force: bool,
    /// What was restored, as one JSON object
    #[arg(long)]
    json: bool,
}

impl Restore {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let start = Instant::now();
        let progress = ToolProgress::new(directory, "restoring");
        let options = BackupOptions::new().on_progress(progress.callback());
        let restored = evermap::tools::restore(&self.backup, directory, self.force, &options);
        drop(progress);
        let report = restored.map_err(|error| match error {
            Error::StoreExists { path, .. } if !self.force && path.exists() => {
                Failure::StoreInTheWay { path }
            }
            Error::NoStore { path, why } if path == self.backup => Failure::NoBackup { path, why },
            other => other.into(),
        })?;
        tell(&report, start, self.json)
    }
}
