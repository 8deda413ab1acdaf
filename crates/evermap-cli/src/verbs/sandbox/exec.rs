//! `evermap sandbox exec`: a command behind a wall of Landlock and seccomp.

use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use evermap_compartment::wall::{Enclosure, has_landlock, run};

use crate::failure::Failure;
use crate::verbs::command::find;

/// Run a command that can open only the files you name
///
/// The command is an ordinary one. It can open what is named by --read, --write and --store, and what
/// programs of the system need to start (/usr, /lib and so on, /proc, and some files in /etc); it has no
/// network, and the kernel refuses it calls that reach for other processes or for the machine. The same
/// holds for all that it starts. Its input, output and environment are passed on.
///
/// The exit code is that of the command, or 128 and the number of the signal that ended it; 127 when
/// there is no such command, 126 when it cannot be started, 125 when there can be no wall.
#[derive(Debug, clap::Args)]
pub struct Exec {
    /// Let files at or below PATH be read and executed
    #[arg(long, value_name = "PATH")]
    read: Vec<PathBuf>,
    /// Let files at or below PATH be written, made and removed as well
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,
    /// Let the command use the store at PATH: read and write its folder
    // The name of the option that all verbs have, which is not there for this one.
    #[arg(id = "store", long, short, value_name = "PATH")]
    stores: Vec<PathBuf>,
    /// Let it use the network, and services of this machine
    #[arg(long)]
    net: bool,
    /// Let it change modes, owners, times and extended attributes, of any file that you may
    #[arg(long)]
    attributes: bool,
    /// Without the files that programs of the system need: name what is to be read
    #[arg(long)]
    no_system: bool,
    /// Go on where the kernel has no Landlock: files are not protected then
    #[arg(long)]
    best_effort: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Exec {
    pub fn run(&self) -> Result<(), Failure> {
        let Some((name, arguments)) = self.command.split_first() else {
            return Err(Failure::Usage("no command".to_string()));
        };
        let program = find(name).ok_or_else(|| Failure::NoCommand { name: name.clone() })?;
        if self.best_effort && !has_landlock() {
            eprintln!("evermap: this kernel has no Landlock: files are not protected");
        }
        let enclosure = self.enclosure(&program);
        let mut command = Command::new(&program);
        command.arg0(name).args(arguments);
        enclosure.enclose(&mut command)?;
        let status = run(&mut command).map_err(|source| Failure::NotStarted { program, source })?;
        match status.code() {
            Some(0) => Ok(()),
            code => {
                let code = code.or(status.signal().map(|signal| 128 + signal));
                Err(Failure::CommandEnded { code: code.map_or(125, |code| code as u8) })
            }
        }
    }

    fn enclosure(&self, program: &Path) -> Enclosure {
        let mut enclosure = Enclosure::new().read(program);
        for path in &self.read {
            enclosure = enclosure.read(path);
        }
        for path in self.write.iter().chain(&self.stores) {
            enclosure = enclosure.write(path);
        }
        if self.net {
            enclosure = enclosure.network();
        }
        if self.attributes {
            enclosure = enclosure.attributes();
        }
        if self.no_system {
            enclosure = enclosure.no_system();
        }
        if self.best_effort {
            enclosure = enclosure.best_effort();
        }
        enclosure
    }
}
