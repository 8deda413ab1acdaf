//! `evermap export` and `evermap import`: one object as a file, and back.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use evermap::Error;
use evermap::tools::{ExportOptions, ExportReport, ImportOptions, ImportReport};
use serde::Serialize;

use super::rebase::{Moved, show};
use crate::failure::{Failure, folder_of};
use crate::names;
use crate::output::{self, Output};

const BUFFER_BYTES: usize = 1 << 20;
/// Begins the name of a file that is being written.
const PARTIAL_PREFIX: &str = ".evermap-export-";
/// So long after the last write a temporary file is old.
const YOUNG: Duration = Duration::from_secs(60);

/// Write one object to a file, for another store or machine
///
/// The object's last commit, checked on the way; it may be in use. A file appears when it is
/// complete, or not at all.
#[derive(Debug, clap::Args)]
pub struct Export {
    /// Its name: `evermap ls` lists them
    name: String,
    /// The file; `-` is standard output
    file: PathBuf,
    /// Replace a file that is there; export an object although it has pointers to others, which
    /// lead nowhere in another store
    #[arg(long)]
    force: bool,
    /// What was exported, as one JSON object; not with `-`
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Told<'a> {
    name: &'a str,
    sequence: u64,
    pages: u64,
    bytes: u64,
    pointers_elsewhere: u64,
}

/// Removes the temporary files of exports that were killed: those that nobody has locked. A young one may
/// not be locked yet. It is no failure if that is not possible.
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
        let options = ExportOptions::new().force(self.force).called(&self.file);
        let name = names::resolve_closed(directory, &self.name)?;
        let export = |target: &mut dyn Write| {
            evermap::tools::export(directory, &name, target, &options).map_err(closed_pipe)
        };
        if self.file == Path::new("-") {
            if self.json {
                return Err(Failure::Usage("--json needs a file: `-` takes the output".into()));
            }
            let mut target = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
            export(&mut target)?;
            return Ok(target.flush()?);
        }
        let failed = |source| Failure::Target { path: self.file.clone(), source };
        let there = std::fs::metadata(&self.file).ok().map(|found| found.file_type());
        if there.is_some_and(|kind| kind.is_dir()) {
            return Err(Failure::Usage(format!(
                "cannot write {}: it is a folder; name a file in it",
                self.file.display()
            )));
        }
        if there.is_some_and(|kind| !kind.is_file()) {
            // A device or a named pipe: nobody means to have a file in its place.
            let file = File::options().write(true).open(&self.file).map_err(failed)?;
            let mut target = BufWriter::with_capacity(BUFFER_BYTES, file);
            let report = export(&mut target)?;
            target.flush().map_err(failed)?;
            return self.tell(&report);
        }
        if there.is_some() && !self.force {
            return Err(Failure::FileInTheWay { path: self.file.clone() });
        }
        // Beside its place, so that a file of that name is always a whole one.
        let folder = folder_of(&self.file);
        remove_leftovers(folder);
        let mut partial =
            tempfile::Builder::new().prefix(PARTIAL_PREFIX).tempfile_in(folder).map_err(failed)?;
        // Tells other exports that its maker lives. Not all file systems have locks.
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
            // It came while we wrote.
            io::ErrorKind::AlreadyExists => Failure::FileInTheWay { path: self.file.clone() },
            _ => failed(e.error),
        })?;
        self.tell(&report)
    }

    fn tell(&self, report: &ExportReport) -> Result<(), Failure> {
        let mut output = Output::new();
        match self.json {
            true => output.json(&Told {
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

/// Who reads our output may stop before its end.
fn closed_pipe(error: Error) -> Failure {
    match error {
        Error::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => {
            Failure::Output(source)
        }
        other => other.into(),
    }
}

/// Make an object of an exported file
///
/// The store is made if it isn't there.
///
/// At its old addresses if they are this store's and free, else at others: its pointers are
/// rewritten then, as `evermap rebase` does.
#[derive(Debug, clap::Args)]
pub struct Import {
    /// The file; `-` is standard input
    file: PathBuf,
    /// The object's name in this store [default: the one it had]
    name: Option<String>,
    /// Show this many rewritten words of each kind, with their path from the root
    #[arg(long, value_name = "N", default_value_t = 0)]
    samples: usize,
    /// What was imported, as one JSON object
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
        let mut options =
            ImportOptions::new().create(true).called(&self.file).samples(self.samples);
        if let Some(name) = &self.name {
            options = options.name(names::check_given(name)?);
        }
        let report = if self.file == Path::new("-") {
            evermap::tools::import(directory, &mut io::stdin().lock(), &options)?
        } else {
            let failed = |source| Failure::Source { path: self.file.clone(), source };
            let file = File::open(&self.file).map_err(failed)?;
            if file.metadata().is_ok_and(|found| found.is_dir()) {
                return Err(Failure::Usage(format!(
                    "cannot read {}: it is a folder; name a file that `evermap export` wrote",
                    self.file.display()
                )));
            }
            let mut source = BufReader::with_capacity(BUFFER_BYTES, file);
            evermap::tools::import(directory, &mut source, &options)?
        };
        self.tell(&report)
    }

    fn tell(&self, report: &ImportReport) -> Result<(), Failure> {
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
            output.line("its pointers to objects of its old store lead nowhere")?;
        }
        let at = match report.relocation {
            Some(_) => {
                format!("{:#x}, moved from {:#x}", report.base_address, report.old_base_address)
            }
            None => format!("{:#x}, where it was", report.base_address),
        };
        let line = format!("`{}`, {}, at {at}", report.object, output::bytes(report.file_bytes));
        output.line(&output::plain(&line))?;
        output.finish()
    }
}
