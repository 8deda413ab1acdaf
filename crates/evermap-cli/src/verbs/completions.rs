//! `evermap completions`: prints the completion script of a shell.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::output::Output;

/// Print the completion script for a shell
///
/// For bash: evermap completions bash > ~/.local/share/bash-completion/completions/evermap
#[derive(Debug, clap::Args)]
pub struct Completions {
    shell: Shell,
}

impl Completions {
    pub fn run(&self) -> Result<(), Failure> {
        // `generate` panics if it cannot write, so it writes to memory.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "evermap", &mut script);
        let mut output = Output::new();
        output.raw().write_all(&script)?;
        output.finish()
    }
}
