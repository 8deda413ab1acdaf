//! Output of traces.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use evermap_trace::Trace;

use crate::failure::{Failure, parent_directory};
use crate::output::{Output, is_standard_output};

/// Output options.
#[derive(Debug, clap::Args)]
pub struct To {
    /// Write to FILE (- for standard output)
    #[arg(short, long = "output", value_name = "FILE")]
    output: PathBuf,
    /// Replace an existing FILE
    #[arg(long)]
    force: bool,
}

impl To {
    /// Checks whether the output can be written, before any other work.
    pub fn prepare(&self) -> Result<Destination<'_>, Failure> {
        let failed = Failure::target(&self.output);
        if self.output == Path::new("-") || is_standard_output(&self.output) {
            return Ok(Destination::Output);
        }
        let there = std::fs::metadata(&self.output).ok().map(|found| found.file_type());
        match there {
            Some(kind) if kind.is_dir() => Err(Failure::Usage(format!(
                "cannot write {}: it is a directory; name a file in it",
                self.output.display()
            ))),
            Some(kind) if kind.is_file() && !self.force => {
                Err(Failure::FileExists { path: self.output.clone() })
            }
            // Writes to a device or a named pipe instead of replacing it.
            Some(kind) if !kind.is_file() => {
                let file = File::options().write(true).open(&self.output).map_err(failed)?;
                Ok(Destination::Device { file, path: &self.output })
            }
            // The trial file is unnamed, so a killed recording leaves nothing beside its output.
            _ => {
                tempfile::tempfile_in(parent_directory(&self.output)).map_err(failed)?;
                Ok(Destination::File { to: self })
            }
        }
    }
}

/// Target of a trace.
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
                let failed = Failure::target(path);
                trace.write(&file).map_err(failed)
            }
            Destination::File { to } => {
                let failed = Failure::target(&to.output);
                // A temporary file in the same directory, so that a file of this name is always
                // complete.
                let partial = tempfile::Builder::new()
                    .prefix(".evermap-trace-")
                    .tempfile_in(parent_directory(&to.output));
                let mut partial = partial.map_err(failed)?;
                trace.write(partial.as_file_mut()).map_err(failed)?;
                let persisted = match to.force {
                    true => partial.persist(&to.output),
                    false => partial.persist_noclobber(&to.output),
                };
                persisted.map(|_| ()).map_err(|error| match error.error.kind() {
                    // The file appeared during the recording.
                    io::ErrorKind::AlreadyExists => Failure::FileExists { path: to.output.clone() },
                    _ => failed(error.error),
                })
            }
        }
    }
}
