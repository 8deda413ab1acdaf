//! `evermap lane simulate profile`: lists and prints profiles.

use evermap_simulate::PROFILES;

use super::inputs::named;
use crate::failure::Failure;
use crate::output::Output;

/// List the built-in profiles, or print one
///
/// The output is a file for `--profile`: change the values that differ on your machine.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap lane simulate profile measured > mine.toml")]
pub struct Profile {
    /// Profile to print
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

impl Profile {
    pub fn run(&self) -> Result<(), Failure> {
        let mut output = Output::new();
        match &self.name {
            Some(name) => {
                let built_in = PROFILES.iter().find(|(known, _)| known == name);
                match built_in {
                    Some((_, text)) => output.line(text.trim_end())?,
                    // Prints a file's profile as it was parsed.
                    None => output.line(named(name)?.to_toml().trim_end())?,
                }
            }
            None => {
                for (name, _) in PROFILES {
                    output.line(&format!("{name}: {}", named(name)?.about()))?;
                }
            }
        }
        output.finish()
    }
}
