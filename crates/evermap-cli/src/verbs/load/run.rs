//! `evermap load run`: runs an unmodified program and loads its files.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use evermap_compartment::wall;

use super::{patterns, report as load_report};
use crate::failure::Failure;
use crate::output;
use crate::verbs::command::{CommandLine, pass_on};

/// Environment variable with the path of the shim.
const SHIM_VARIABLE: &str = "EVERMAP_LOAD_SHIM";
const SHIM: &str = "libevermap_load_shim.so";
/// Directory of libraries of `make install`.
const INSTALLED: &str = "/usr/local/lib";
const PRELOAD: &str = "LD_PRELOAD";

/// Run a program and load the files that it maps or reads whole
///
/// The program is unmodified. A library is preloaded into it and all programs it starts. When they
/// map or read files that you name, the library loads these files by the cheapest method. By naming
/// a file you promise that it does not change while the program runs.
///
/// A pattern with `/` matches paths, relative to the current directory. `*` and `?` do not match
/// `/`; `**` does. A pattern without `/` matches file names in any directory.
///
/// The exit code is that of the command, or 128 plus the number of the signal that ended it. It is
/// 127 if the command is not found, 126 if it cannot be started, and 125 if the library is not
/// found.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap load run --map '*.bin' --report -- ./program model.bin")]
pub struct Run {
    /// Load files that match this pattern
    #[arg(long, value_name = "GLOB")]
    map: Vec<String>,
    /// Load files by the rules in FILE, after those of --map
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Report on stderr, after the command has ended, which files were loaded and at what cost
    #[arg(long)]
    report: bool,
    #[command(flatten)]
    command: CommandLine,
}

impl Run {
    pub fn run(&self) -> Result<(), Failure> {
        if self.map.is_empty() && self.rules.is_none() {
            return Err(Failure::Usage(
                "no files to load; use `--map GLOB` or `--rules FILE`".into(),
            ));
        }
        let rules = patterns::rules(&self.map, self.rules.as_deref())?;
        let preload = preload(&shim()?)?;
        let found = self.command.find()?;
        let mut command = found.command();
        command.env("EVERMAP_LOAD_RULES", rules).env(PRELOAD, preload);
        let failed = |source: io::Error| {
            let source = match source.kind() {
                io::ErrorKind::PermissionDenied => {
                    io::Error::other("the program or its interpreter is not executable")
                }
                _ => source,
            };
            Failure::NotStarted { program: found.file.clone(), source }
        };
        if !self.report {
            // Replaces this process, so the exit status needs no forwarding.
            return Err(failed(command.exec()));
        }
        let report =
            tempfile::NamedTempFile::new().map_err(Failure::target(&std::env::temp_dir()))?;
        command.env("EVERMAP_LOAD_REPORT", report.path());
        let status = wall::run(&mut command).map_err(failed)?;
        if let Err(error) = load_report::print(report.path()) {
            output::warn(&format!("cannot read the report of loads: {error}"));
        }
        pass_on(status)
    }
}

/// Finds the library. Looks at the environment variable, then next to this program, in the `lib`
/// directory next to its directory, and where `make install` puts it by default. `cargo install`
/// installs programs only, so after it the last place applies.
fn shim() -> Result<PathBuf, Failure> {
    let looked = match std::env::var_os(SHIM_VARIABLE).filter(|value| !value.is_empty()) {
        Some(path) => vec![PathBuf::from(path)],
        None => {
            let program = std::env::current_exe().and_then(|path| path.canonicalize());
            let program = program.unwrap_or_default();
            let folder = program.parent().unwrap_or(Path::new("/"));
            let prefix = folder.parent().unwrap_or(Path::new("/"));
            vec![folder.join(SHIM), prefix.join("lib").join(SHIM), Path::new(INSTALLED).join(SHIM)]
        }
    };
    // Absolute, because the program may change its directory before it starts another one.
    let found = looked.iter().find(|path| path.is_file()).map(std::path::absolute);
    match found {
        Some(Ok(path)) => Ok(path),
        _ => Err(Failure::NoShim { looked }),
    }
}

/// Returns the value of `LD_PRELOAD`: the shim, then the libraries already in it.
fn preload(shim: &Path) -> Result<OsString, Failure> {
    let is_separator = |byte: &u8| matches!(byte, b' ' | b':');
    if shim.as_os_str().as_encoded_bytes().iter().any(is_separator) {
        let source = io::Error::other(
            "the dynamic linker does not accept a path with a space or a colon; move the library and set EVERMAP_LOAD_SHIM to its path",
        );
        return Err(Failure::Source { path: shim.into(), source });
    }
    let mut preload = shim.as_os_str().to_os_string();
    if let Some(before) = std::env::var_os(PRELOAD).filter(|before| !before.is_empty()) {
        preload.push(OsStr::new(":"));
        preload.push(before);
    }
    Ok(preload)
}
