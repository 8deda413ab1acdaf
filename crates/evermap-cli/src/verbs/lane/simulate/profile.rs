//! `evermap lane simulate profile`: the profiles there are, to begin one's own with.

use evermap_lane::simulate::PROFILES;

use super::given::named;
use crate::failure::Failure;
use crate::output::Output;

/// List the profiles that come with the command, or print one
///
/// What is printed is a file for `--profile`: change what is other on your machine.
///
///   $ evermap lane simulate profile measured > mine.toml
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Profile {
    /// Which one to print
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
                    // A file is read and written as it was understood.
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
