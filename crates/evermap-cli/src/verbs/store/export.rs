//! `evermap store export` and `evermap store import`: write one object to a file, and read it back.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap_complete::ArgValueCompleter;
use evermap::Error;
use evermap::tools::{self, ExportOptions, ExportReport, ImportOptions, ImportReport};
use serde::Serialize;

use super::rebase::{Moved, show};
use crate::completion::objects;
use crate::failure::{Failure, parent_directory};
use crate::names;
use crate::output::{self, Output};
use crate::result_file;

const BUFFER_BYTES: usize = 1 << 20;
/// Begins the name of a file that is being written.
const PARTIAL_PREFIX: &str = ".evermap-export-";
/// So long after the last write a temporary file is old.
const YOUNG: Duration = Duration::from_secs(60);

/// Write one object to a file, for another store or machine
///
/// Writes the object's last commit, and compares each page with its checksum. The object may be in
/// use. The file appears only when it is complete. It cannot be inside the store.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap store export index index.object
  evermap store export index - | ssh there evermap store import - index")]
pub struct Export {
    /// Name of the object; `evermap ls` lists the names
    #[arg(add = ArgValueCompleter::new(objects))]
    name: String,
    /// Output file; `-` is standard output
    file: PathBuf,
    /// Replace an existing file; export an object even if it has pointers to others, which are
    /// invalid in another store
    #[arg(long)]
    force: bool,
    /// Print the report as one JSON object; not with `-`
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Exported<'a> {
    name: &'a str,
    sequence: u64,
    pages: u64,
    bytes: u64,
    pointers_elsewhere: u64,
}

/// Removes the temporary files of killed exports, which are not locked. A new one may not be locked
/// yet. Errors are ignored.
fn remove_leftovers(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let names = entries.filter_map(Result::ok).filter(|entry| {
        entry.file_name().as_encoded_bytes().starts_with(PARTIAL_PREFIX.as_bytes())
    });
    for path in names.map(|entry| entry.path()) {
        // A FIFO of that name would keep the open waiting.
        if !std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) {
            continue;
        }
        let Ok(file) = File::open(&path) else { continue };
        let changed = file.metadata().and_then(|found| found.modified()).ok();
        let is_old = changed.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > YOUNG);
        if is_old && file.try_lock().is_ok() {
            let _ = std::fs::remove_file(&path);
        }
    }
}

impl Export {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let options = ExportOptions::new().force(self.force).display_name(&self.file);
        let name = names::resolve_closed(directory, &self.name)?;
        let export = |target: &mut dyn Write| {
            tools::export(directory, &name, target, &options).map_err(closed_pipe)
        };
        if self.file == Path::new("-") {
            if self.json {
                return Err(Failure::Usage(
                    "cannot use --json with `-`: the object is written to standard output; name a \
                     file"
                        .into(),
                ));
            }
            let mut target = BufWriter::with_capacity(BUFFER_BYTES, output::Stdout);
            export(&mut target)?;
            return Ok(target.flush()?);
        }
        result_file::check_outside_store(directory, &self.file)?;
        let failed = Failure::target(&self.file);
        let output = Output::beside(Some(&self.file));
        if output::is_standard_output(&self.file) {
            let mut target = BufWriter::with_capacity(BUFFER_BYTES, output::Stdout);
            let report = export(&mut target)?;
            target.flush()?;
            return self.print_report(&report, output);
        }
        let existing = std::fs::metadata(&self.file).ok().map(|found| found.file_type());
        if existing.is_some_and(|kind| kind.is_dir()) {
            return Err(Failure::Usage(format!(
                "cannot write {}: it is a directory; name a file in it",
                self.file.display()
            )));
        }
        if existing.is_some_and(|kind| !kind.is_file()) {
            // A device or a named pipe is written to, never replaced.
            let file = File::options().write(true).open(&self.file).map_err(failed)?;
            let mut target = BufWriter::with_capacity(BUFFER_BYTES, file);
            let report = export(&mut target).map_err(|failure| match failure {
                Failure::Store(Error::DiskFull { .. }) => failed(io::ErrorKind::StorageFull.into()),
                other => other,
            })?;
            target.flush().map_err(failed)?;
            return self.print_report(&report, output);
        }
        if existing.is_some() && !self.force {
            return Err(Failure::FileExists { path: self.file.clone() });
        }
        // Written to a temporary file and renamed, so that a file of this name is always complete.
        let folder = parent_directory(&self.file);
        remove_leftovers(folder);
        let mut partial =
            tempfile::Builder::new().prefix(PARTIAL_PREFIX).tempfile_in(folder).map_err(failed)?;
        // Shows other exports that this one runs. Not all file systems have locks.
        let _ = partial.as_file().lock_shared();
        let mut target = BufWriter::with_capacity(BUFFER_BYTES, partial.as_file_mut());
        let report = export(&mut target)?;
        target.flush().map_err(failed)?;
        drop(target);
        partial.as_file().sync_all().map_err(failed)?;
        let persisted = match self.force {
            true => partial.persist(&self.file),
            false => partial.persist_noclobber(&self.file),
        };
        persisted.map_err(|e| match e.error.kind() {
            // Another process made the file in the meantime.
            io::ErrorKind::AlreadyExists => Failure::FileExists { path: self.file.clone() },
            _ => failed(e.error),
        })?;
        self.print_report(&report, output)
    }

    fn print_report(&self, report: &ExportReport, mut output: Output) -> Result<(), Failure> {
        match self.json {
            true => output.json(&Exported {
                name: &report.object,
                sequence: report.sequence,
                pages: report.pages,
                bytes: report.bytes,
                pointers_elsewhere: report.pointers_elsewhere,
            })?,
            false => {
                let file = self.file.display();
                let line = format!("{file}: `{}`, {}", report.object, output::bytes(report.bytes));
                output.line(&output::plain(&line))?;
            }
        }
        output.finish()
    }
}

/// Converts a broken pipe into a failure without a message: the reader may stop early.
fn closed_pipe(error: tools::Error) -> Failure {
    match error {
        tools::Error::Store(Error::Io { source, .. })
            if source.kind() == io::ErrorKind::BrokenPipe =>
        {
            Failure::Output(source)
        }
        other => other.into(),
    }
}

/// Make an object from an exported file
///
/// Makes the store if it does not exist. The object keeps its addresses if they belong to this
/// store and are free. Otherwise it gets others, and its pointers are rewritten as by `evermap
/// store rebase`.
///
/// An imported document still follows its source file; `evermap freeze` ends that.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap store import index.object
  evermap store import index.object other-name")]
pub struct Import {
    /// Exported file; `-` is standard input
    file: PathBuf,
    /// Name of the object in this store [default: its old name]
    name: Option<String>,
    /// Show this many rewritten words of each kind, with their path from the root
    #[arg(long, value_name = "N", default_value_t = 0)]
    samples: usize,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Imported<'a> {
    name: &'a str,
    old_name: &'a str,
    address: String,
    old_address: String,
    file_bytes: u64,
    points_elsewhere: bool,
    relocation: Option<Moved<'a>>,
}

impl Import {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let is_input = self.file == Path::new("-");
        let shown = if is_input { Path::new("standard input") } else { &self.file };
        let mut options =
            ImportOptions::new().create(true).display_name(shown).samples(self.samples);
        if let Some(name) = &self.name {
            options = options.name(names::check_new(name)?);
        }
        let imported = if is_input {
            tools::import(directory, &mut io::stdin().lock(), &options)
        } else {
            let failed = Failure::source(&self.file);
            let file = File::open(&self.file).map_err(failed)?;
            if file.metadata().is_ok_and(|found| found.is_dir()) {
                return Err(Failure::Usage(format!(
                    "cannot read {}: it is a directory; name a file that `evermap store export` wrote",
                    self.file.display()
                )));
            }
            let mut source = BufReader::with_capacity(BUFFER_BYTES, file);
            tools::import(directory, &mut source, &options)
        };
        let report = imported.map_err(|error| match error {
            tools::Error::Store(Error::Foreign { path, found }) if path == shown => {
                Failure::NotAnExport { path, found }
            }
            other => other.into(),
        })?;
        self.print_report(&report)
    }

    fn print_report(&self, report: &ImportReport) -> Result<(), Failure> {
        let mut output = Output::new();
        if self.json {
            output.json(&Imported {
                name: &report.object,
                old_name: &report.old_name,
                address: format!("{:#x}", report.base_address),
                old_address: format!("{:#x}", report.old_base_address),
                file_bytes: report.file_bytes,
                points_elsewhere: report.points_elsewhere,
                relocation: report.relocation.as_ref().map(Moved::of),
            })?;
            return output.finish();
        }
        if let Some(relocation) = &report.relocation {
            show(relocation, false, &mut output)?;
        }
        if report.points_elsewhere {
            output.line("its pointers to other objects of its old store are invalid")?;
        }
        let at = match report.relocation {
            Some(_) => {
                format!("{:#x}, moved from {:#x}", report.base_address, report.old_base_address)
            }
            None => format!("{:#x}, its old address", report.base_address),
        };
        let line = format!("`{}`, {}, at {at}", report.object, output::bytes(report.file_bytes));
        output.line(&output::plain(&line))?;
        output.finish()
    }
}
