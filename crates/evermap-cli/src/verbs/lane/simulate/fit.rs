//! `evermap lane simulate fit`: fits parameters to targets.

use std::path::{Path, PathBuf};

use evermap_simulate::{Fitted, Targets};

use super::inputs::{in_file, named, text_of};
use crate::failure::Failure;
use crate::output::Output;
use crate::result_file;

/// Fit parameters of a profile to targets
///
/// A file of targets names the free parameters with their ranges, and the target numbers with their
/// tolerances; `bahn2019` is the published study. The score is the sum of squared deviations in
/// units of the tolerance.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
File of targets:
  profile = \"measured\"

  [[free]]
  parameter = \"frames.decode_ms_mean\"
  from = 5
  to = 20

  [[target]]
  name = \"misses while others compute\"
  measure = \"missed_percent\"
  value = 12
  tolerance = 1
  at = { mode = \"blocking\", device = \"virtio\", \"io.wait_percent\" = 100 }

Example:
  evermap lane simulate fit --targets bahn2019 --steps 2000 --to fitted.toml")]
pub struct Fit {
    /// Targets: `bahn2019` or a file
    #[arg(long, value_name = "NAME|FILE")]
    targets: PathBuf,
    /// Profile to begin with [default: the one that the targets name]
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    /// Number of steps of the search
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    steps: u32,
    /// Seed of random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the fitted profile to FILE
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

impl Fit {
    pub fn run(&self) -> Result<(), Failure> {
        result_file::check_writable(self.to.as_deref())?;
        let mut output = Output::beside(self.to.as_deref());
        let targets = if self.targets == Path::new("bahn2019") {
            Targets::bahn2019()?
        } else {
            let read = text_of(&self.targets)?.parse();
            read.map_err(|error| in_file(&self.targets, error))?
        };
        let profile = named(self.profile.as_ref().unwrap_or(&targets.profile))?;
        let fitted = evermap_simulate::Fit::new(profile, targets)?.run(self.steps, self.seed)?;
        if let Some(path) = &self.to {
            result_file::write(path, fitted.profile.to_toml())?;
        }
        match self.json {
            true => output.json(&fitted)?,
            false => print(&fitted, &mut output)?,
        }
        output.finish()
    }
}

fn print(fitted: &Fitted, output: &mut Output) -> Result<(), Failure> {
    output.line(&format!(
        "score {:.2}, before {:.2}; kept {} of {} steps, seed {}",
        fitted.score, fitted.score_before, fitted.kept, fitted.steps, fitted.seed
    ))?;
    output.line("")?;
    let parameters: Vec<_> = fitted
        .parameters
        .iter()
        .map(|of| {
            let range = format!("{} to {}", of.from, of.to);
            [of.name.clone(), format!("{:.4}", of.before), format!("{:.4}", of.value), range]
        })
        .collect();
    output.table(["parameter", "before", "now", "may be"], &parameters, &[0])?;
    output.line("")?;
    let targets: Vec<_> = fitted
        .residuals
        .iter()
        .map(|of| {
            let target = of.target.map_or("-".into(), |target| target.to_string());
            let (before, value) = (format!("{:.2}", of.before), format!("{:.2}", of.value));
            [of.name.clone(), target, before, value, of.role.name().into()]
        })
        .collect();
    output.table(["target", "should be", "before", "now", "is"], &targets, &[0, 4])
}
