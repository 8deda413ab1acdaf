//! `evermap load run`: a program that knows nothing of loading, whose files are loaded.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use evermap_compartment::wall;

use super::{patterns, told};
use crate::failure::Failure;
use crate::output;
use crate::verbs::command::find;

/// Names the shim when it is elsewhere.
const SHIM_VARIABLE: &str = "EVERMAP_LOAD_SHIM";
const SHIM: &str = "libevermap_load_shim.so";
const PRELOAD: &str = "LD_PRELOAD";

/// Run a program, and load the files that it maps or reads whole
///
/// The program is an ordinary one: what it maps or reads of the files that you name is brought into its memory by the cheapest way there is, by a library
/// that is preloaded into it and all that it starts. By naming a file you promise that nobody changes it while the program runs.
///
/// A pattern with `/` is for paths, from the current directory if it is relative: `*` and `?` stand for no `/`, `**` does. One without `/` is for
/// names in any directory.
///
/// The exit code is that of the command, or 128 and the number of the signal that ended it; 127 when there is no such command, 126 when it
/// cannot be started, 125 when there is no library to preload.
#[derive(Debug, clap::Args)]
pub struct Run {
    /// Load the files that this pattern matches
    #[arg(long, value_name = "GLOB")]
    map: Vec<String>,
    /// Load files as the rules in FILE say, after those of --map
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Tell on stderr, when the command has ended, what was loaded and what that cost
    #[arg(long)]
    report: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Run {
    pub fn run(&self) -> Result<(), Failure> {
        let Some((name, arguments)) = self.command.split_first() else {
            return Err(Failure::Usage("no command".to_string()));
        };
        if self.map.is_empty() && self.rules.is_none() {
            return Err(Failure::Usage(
                "no file would be loaded: name some by `--map GLOB` or `--rules FILE`".into(),
            ));
        }
        let rules = patterns::rules(&self.map, self.rules.as_deref())?;
        let preload = preload(&shim()?)?;
        let program = find(name).ok_or_else(|| Failure::NoCommand { name: name.clone() })?;
        let mut command = Command::new(&program);
        command.arg0(name).args(arguments);
        command.env("EVERMAP_LOAD_RULES", rules).env(PRELOAD, preload);
        let failed = |source: io::Error| {
            let source = match source.kind() {
                io::ErrorKind::PermissionDenied => {
                    io::Error::other("it is not executable, or what it is to be interpreted by")
                }
                _ => source,
            };
            Failure::NotStarted { program: program.clone(), source }
        };
        if !self.report {
            // The command is this process from now on: its end needs no passing on.
            return Err(failed(command.exec()));
        }
        let report = tempfile::NamedTempFile::new()
            .map_err(|source| Failure::Target { path: std::env::temp_dir(), source })?;
        command.env("EVERMAP_LOAD_REPORT", report.path());
        let status = wall::run(&mut command).map_err(failed)?;
        if let Err(error) = told::tell(report.path()) {
            output::warn(&format!("what was loaded cannot be told: {error}"));
        }
        match status.code() {
            Some(0) => Ok(()),
            code => {
                let code = code.or(status.signal().map(|signal| 128 + signal));
                Err(Failure::CommandEnded { code: code.map_or(125, |code| code as u8) })
            }
        }
    }
}

/// Where the library is: as the environment says, else beside this program, else where libraries are beside it.
fn shim() -> Result<PathBuf, Failure> {
    let looked = match std::env::var_os(SHIM_VARIABLE).filter(|value| !value.is_empty()) {
        Some(path) => vec![PathBuf::from(path)],
        None => {
            let program = std::env::current_exe().and_then(|path| path.canonicalize());
            let program = program.unwrap_or_default();
            let folder = program.parent().unwrap_or(Path::new("/"));
            let prefix = folder.parent().unwrap_or(Path::new("/"));
            vec![folder.join(SHIM), prefix.join("lib").join(SHIM)]
        }
    };
    // The program may go elsewhere before it starts another one.
    let found = looked.iter().find(|path| path.is_file()).map(std::path::absolute);
    match found {
        Some(Ok(path)) => Ok(path),
        _ => Err(Failure::NoShim { looked }),
    }
}

/// What the dynamic linker is told: the library, and what it was to load anyway.
fn preload(shim: &Path) -> Result<OsString, Failure> {
    let is_separator = |byte: &u8| matches!(byte, b' ' | b':');
    if shim.as_os_str().as_encoded_bytes().iter().any(is_separator) {
        let source = io::Error::other(
            "the dynamic linker takes no path with a space or a colon; put it elsewhere, and its path into EVERMAP_LOAD_SHIM",
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
