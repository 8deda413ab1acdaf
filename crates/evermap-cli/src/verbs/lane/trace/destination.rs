//! Where a trace is written to.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use evermap_lane::trace::Trace;

use crate::failure::{Failure, folder_of};
use crate::output::Output;

/// The options that say where.
#[derive(Debug, clap::Args)]
pub struct To {
    /// Write to FILE; - for standard output
    #[arg(short, long = "output", value_name = "FILE")]
    output: PathBuf,
    /// Replace FILE if it is there
    #[arg(long)]
    force: bool,
}

impl To {
    /// Looks whether it can be written, before anything is done for it.
    pub fn prepare(&self) -> Result<Destination<'_>, Failure> {
        let failed = |source| Failure::Target { path: self.output.clone(), source };
        if self.output == Path::new("-") {
            return Ok(Destination::Output);
        }
        let there = std::fs::metadata(&self.output).ok().map(|found| found.file_type());
        match there {
            Some(kind) if kind.is_dir() => Err(Failure::Usage(format!(
                "cannot write {}: it is a folder; name a file in it",
                self.output.display()
            ))),
            Some(kind) if kind.is_file() && !self.force => {
                Err(Failure::FileInTheWay { path: self.output.clone() })
            }
            // A device or a named pipe: nobody means to have a file in its place.
            Some(kind) if !kind.is_file() => {
                let file = File::options().write(true).open(&self.output).map_err(failed)?;
                Ok(Destination::Device { file, path: &self.output })
            }
            // Tried without a name: a recording may be killed, and nothing of it shall stay beside its output.
            _ => {
                tempfile::tempfile_in(folder_of(&self.output)).map_err(failed)?;
                Ok(Destination::File { to: self })
            }
        }
    }
}

/// Something to write a trace to.
pub enum Destination<'a> {
    Output,
    Device { file: File, path: &'a Path },
    File { to: &'a To },
}

impl Destination<'_> {
    pub fn write(self, trace: &Trace) -> Result<(), Failure> {
        match self {
            Destination::Output => {
                let mut output = Output::new();
                trace.write(output.raw())?;
                output.finish()
            }
            Destination::Device { file, path } => {
                let failed = |source| Failure::Target { path: path.into(), source };
                trace.write(&file).map_err(failed)
            }
            Destination::File { to } => {
                let failed = |source| Failure::Target { path: to.output.clone(), source };
                // Beside its place, so that a file of that name is always a whole one.
                let partial = tempfile::Builder::new()
                    .prefix(".evermap-trace-")
                    .tempfile_in(folder_of(&to.output));
                let mut partial = partial.map_err(failed)?;
                trace.write(partial.as_file_mut()).map_err(failed)?;
                let persisted = match to.force {
                    true => partial.persist(&to.output),
                    false => partial.persist_noclobber(&to.output),
                };
                persisted.map(|_| ()).map_err(|error| match error.error.kind() {
                    // It came while the trace was made.
                    io::ErrorKind::AlreadyExists => {
                        Failure::FileInTheWay { path: to.output.clone() }
                    }
                    _ => failed(error.error),
                })
            }
        }
    }
}
