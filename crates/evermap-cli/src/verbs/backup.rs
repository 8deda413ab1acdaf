//! `evermap backup`: a copy of a store, which may be in use.

use std::path::{Path, PathBuf};
use std::time::Instant;

use evermap::tools::{BackupOptions, BackupReport};
use serde::Serialize;

use super::check::{Found, show};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::progress::ToolProgress;

/// Copy the store, which may be in use
///
/// Every object is copied as of one commit, the catalog as of one. The copy is complete or not
/// there, and is a store itself: `--store DEST` opens it. Where the file system can share blocks,
/// it takes no room.
#[derive(Debug, clap::Args)]
pub struct Backup {
    /// Directory to make; if it is there already, it must be empty
    #[arg(value_name = "DEST")]
    destination: PathBuf,
    /// Copy without comparing pages with their checksums
    #[arg(long)]
    no_verify: bool,
    /// What was copied, as one JSON object, with a list of what was found damaged
    #[arg(long)]
    json: bool,
}

/// What is told about a copy.
#[derive(Serialize)]
struct Told<'a> {
    directory: String,
    objects: u64,
    bytes: u64,
    ms: f64,
    findings: Vec<Found<'a>>,
}

impl Backup {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let start = Instant::now();
        let progress = ToolProgress::new(directory, "copying");
        let options = BackupOptions::new().verify(!self.no_verify).on_progress(progress.callback());
        let copied = evermap::tools::backup(directory, &self.destination, &options);
        drop(progress);
        let report = copied?;
        tell(&report, start, self.json)?;
        match report.findings.is_empty() {
            true => Ok(()),
            false => Err(Failure::DamageFound(format!(
                "the copy was made, and store {} is damaged: places listed above: {}",
                directory.display(),
                report.findings.len()
            ))),
        }
    }
}

/// Says what was copied.
pub fn tell(report: &BackupReport, start: Instant, json: bool) -> Result<(), Failure> {
    if let Some((path, why)) = &report.left_over {
        output::warn(&format!(
            "the store is restored; the one that it replaced cannot be removed: {why}; remove {}",
            path.display()
        ));
    }
    let mut output = Output::new();
    if json {
        output.json(&Told {
            directory: report.directory.display().to_string(),
            objects: report.objects,
            bytes: report.bytes,
            ms: output::milliseconds(start.elapsed()),
            findings: report.findings.iter().map(Found::of).collect(),
        })?;
        return output.finish();
    }
    report.findings.iter().try_for_each(|finding| show(finding, &mut output))?;
    output.line(&format!(
        "{}: {} objects, {}, in {}",
        report.directory.display(),
        output::count(report.objects),
        output::bytes(report.bytes),
        output::duration(start.elapsed()),
    ))?;
    output.finish()
}
