//! `evermap store backup`: copies a store, which may be in use.

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
/// Copies the last commit of each object and of the catalog. The copy appears only when it is
/// complete. It is a store itself: open it with `--store DEST`. On file systems that can share
/// blocks it takes no space.
///
/// Queries in a backup do not parse changed sources again. Those in a copy by other means do.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap store backup /mnt/disk/backup")]
pub struct Backup {
    /// Directory to make; an existing directory, or the target of a symbolic link, must be empty
    #[arg(value_name = "DEST")]
    destination: PathBuf,
    /// Do not compare pages with their checksums
    #[arg(long)]
    no_verify: bool,
    /// Print the report as one JSON object, with a list of damaged places
    #[arg(long)]
    json: bool,
}

/// Report of a copy, in JSON.
#[derive(Serialize)]
struct JsonReport<'a> {
    directory: String,
    objects: u64,
    bytes: u64,
    ms: f64,
    findings: Vec<Found<'a>>,
}

impl Backup {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        refuse_stream(&self.destination)?;
        let start = Instant::now();
        let progress = ToolProgress::new(directory, "copying");
        let options = BackupOptions::new().verify(!self.no_verify).on_progress(progress.callback());
        let copied = evermap::tools::backup(directory, &self.destination, &options);
        drop(progress);
        let report = copied?;
        print_report(&report, start, self.json)?;
        match report.findings.is_empty() {
            true => Ok(()),
            false => Err(Failure::DamageFound(format!(
                "the copy was made, but store {} is damaged in {} (listed above)",
                directory.display(),
                output::counted(report.findings.len() as u64, "place")
            ))),
        }
    }
}

/// Refuses `-` as the directory of a backup: other verbs read or write a stream there.
pub fn refuse_stream(backup: &Path) -> Result<(), Failure> {
    match backup == Path::new("-") {
        true => Err(Failure::Usage(
            "`-` is not possible here: a backup is a directory, not a stream; name a directory, or \
             `./-` for one of that name"
                .to_string(),
        )),
        false => Ok(()),
    }
}

/// Prints the report of a backup or a restore.
pub fn print_report(report: &BackupReport, start: Instant, json: bool) -> Result<(), Failure> {
    if let Some((path, why)) = &report.left_over {
        output::warn(&format!(
            "the store is restored, but the old one cannot be removed: {why}; remove {}",
            path.display()
        ));
    }
    let mut output = Output::new();
    if json {
        output.json(&JsonReport {
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
        "{}: {}, {}, in {}",
        report.directory.display(),
        output::counted(report.objects, "object"),
        output::bytes(report.bytes),
        output::duration(start.elapsed()),
    ))?;
    output.finish()
}
