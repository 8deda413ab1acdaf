//! `evermap sandbox exec`: runs a command restricted by Landlock and seccomp.

use std::path::{Path, PathBuf};

use evermap_compartment::wall::{Enclosure, has_landlock, run};

use crate::failure::Failure;
use crate::verbs::command::{CommandLine, pass_on};

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
    #[command(flatten)]
    command: CommandLine,
}

impl Exec {
    pub fn run(&self) -> Result<(), Failure> {
        let found = self.command.find()?;
        if self.best_effort && !has_landlock() {
            eprintln!("evermap: this kernel has no Landlock: files are not protected");
        }
        let enclosure = self.enclosure(&found.file);
        let mut command = found.command();
        enclosure.enclose(&mut command)?;
        let status = run(&mut command)
            .map_err(|source| Failure::NotStarted { program: found.file, source })?;
        pass_on(status)
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
