//! `evermap sandbox exec`: runs a command restricted by Landlock and seccomp.

use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use evermap_compartment::wall::{Enclosure, has_landlock, run};

use crate::failure::Failure;
use crate::verbs::command::find;

/// Run a command that can open only the files you name
///
/// Runs an ordinary command. It can open only the files named by --read, --write and --store, and
/// those that programs of the system need to start (/usr, /lib and so on, /proc, and some files in
/// /etc). It has no network, and the kernel refuses calls that affect other processes or the
/// machine. The same holds for all processes that it starts. Its input, output and environment are
/// passed on.
///
/// The exit code is the command's, or 128 plus the number of the signal that ended it; 127 if the
/// command does not exist, 126 if it cannot be started, 125 if the restrictions cannot be set up.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap sandbox exec --read page.html -- grep -c '<p' page.html
  evermap sandbox exec --store ~/pages -- evermap --store ~/pages query page.html h1 --stale use")]
pub struct Exec {
    /// Allow reading and executing files at or below PATH
    #[arg(long, value_name = "PATH")]
    read: Vec<PathBuf>,
    /// Allow writing, creating and removing files at or below PATH as well
    #[arg(long, value_name = "PATH")]
    write: Vec<PathBuf>,
    /// Allow use of the store at PATH, which must exist: read and write its folder
    // Same name as the global option, which this verb does not have.
    #[arg(id = "store", long, short, value_name = "PATH")]
    stores: Vec<PathBuf>,
    /// Allow the network and services of this machine
    #[arg(long)]
    net: bool,
    /// Allow changing modes, owners, times and extended attributes of every file that the user may
    /// change
    #[arg(long)]
    attributes: bool,
    /// Deny the files that programs of the system need to start; name those to be read
    #[arg(long)]
    no_system: bool,
    /// Continue if the kernel has no Landlock: files are then not protected
    #[arg(long)]
    best_effort: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = clap::ValueHint::AnyPath)]
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
