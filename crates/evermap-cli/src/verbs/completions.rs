//! `evermap completions`: prints the completion script of a shell.

use clap_complete::Shell;

use crate::completion;
use crate::failure::Failure;
use crate::output::Output;

/// Print the completion script for a shell
///
/// The script asks this command on each Tab, so it completes the names of stored objects as well.
/// Generate it again after an update of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap completions bash > ~/.local/share/bash-completion/completions/evermap
  evermap completions zsh > ~/.zfunc/_evermap
  evermap completions fish > ~/.config/fish/completions/evermap.fish")]
pub struct Completions {
    shell: Shell,
}

impl Completions {
    pub fn run(&self) -> Result<(), Failure> {
        let script = completion::script(&self.shell.to_string())?;
        let mut output = Output::new();
        output.raw().write_all(&script)?;
        output.finish()
    }
}
