//! What the verbs of the simulator have in common: a profile and changes to it, a trace, files to write.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use evermap_lane::Period;
use evermap_lane::simulate::{Mode, PROFILES, Profile, Traced, Workload};
use evermap_lane::trace::Trace;

use crate::failure::Failure;
use crate::limits::read_text;

/// More than any profile or targets, and no reason to fill memory with something else.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// A profile, and what is other than in it.
#[derive(Debug, clap::Args)]
pub struct Given {
    /// Of which program and machine: `bahn2019`, `measured`, or a file; `simulate profile` shows those there are
    #[arg(long, value_name = "NAME|FILE", default_value = "bahn2019")]
    profile: String,
    /// Give a parameter another value, by its name in the profile
    #[arg(long, value_name = "KEY=VALUE", value_parser = change)]
    set: Vec<(String, f64)>,
    /// How many frames a run has
    #[arg(long, value_name = "N")]
    frames: Option<u32>,
    /// Pages that the cache holds, in percent of those that are used
    #[arg(long, value_name = "PERCENT")]
    capacity: Option<f64>,
    /// What is waited for the processor with each request that blocks, in percent of a time slice
    #[arg(long, value_name = "PERCENT")]
    wait: Option<f64>,
    /// Take the references of this trace instead of drawing them: of any format that `lane trace import` reads
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Of the trace, take the files alone that this pattern matches: by path if it has a `/`, else by name
    #[arg(long, value_name = "GLOB", requires = "trace")]
    files: Option<String>,
    /// What random numbers begin with
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

fn change(text: &str) -> Result<(String, f64), String> {
    let (key, value) = text.split_once('=').ok_or("it is KEY=VALUE")?;
    let value = value.trim();
    Ok((key.trim().into(), value.parse().map_err(|_| format!("`{value}` is no number"))?))
}

pub fn mode(text: &str) -> Result<Mode, String> {
    text.parse().map_err(|error: evermap_lane::simulate::Error| error.to_string())
}

impl Given {
    /// The profile as it is after all changes; those of options of their own count more than `--set`.
    pub fn profile(&self) -> Result<Profile, Failure> {
        let mut profile = named(&self.profile)?;
        for (key, value) in &self.set {
            profile.set(key, *value)?;
        }
        let options = [
            ("frames", self.frames.map(f64::from)),
            ("capacity", self.capacity),
            ("wait", self.wait),
        ];
        for (key, value) in options {
            if let Some(value) = value {
                profile.set(key, value)?;
            }
        }
        Ok(profile)
    }

    /// What the program reads: drawn, or from a trace.
    pub fn workload(&self, profile: &Profile) -> Result<Workload, Failure> {
        let Some(path) = &self.trace else { return Ok(Workload::Drawn) };
        let trace = Trace::read(path, None)?;
        for warning in &trace.warnings {
            crate::output::warn(&warning.to_string());
        }
        let rate = profile.get("frames.rate_per_s").map_or(0.0, |rate| rate.value);
        let period = period_of(rate).ok_or_else(|| {
            Failure::Usage(format!(
                "a trace is not cut into {rate} frames a second; take 0.001 to 1,000,000"
            ))
        })?;
        let traced = match &self.files {
            Some(pattern) => Traced::of_files(&trace, period, pattern)?,
            None => Traced::of(&trace, period)?,
        };
        Ok(Workload::Traced(traced))
    }
}

/// The period of this rate, in thousandths of a frame a second.
fn period_of(rate_per_s: f64) -> Option<Period> {
    Period::of_rate((rate_per_s * 1e3).round() as u64, 1_000)
}

/// A built-in profile, or one in a file.
pub fn named(name: &str) -> Result<Profile, Failure> {
    if PROFILES.iter().any(|(known, _)| *known == name) {
        return Ok(Profile::built_in(name)?);
    }
    let path = Path::new(name);
    if !path.exists() && !name.contains(['/', '.']) {
        // A misspelt name rather than a file that is missing.
        return Ok(Profile::built_in(name)?);
    }
    text_of(path)?.parse().map_err(|error| in_file(path, error))
}

/// A mistake in a file, said with its name.
pub fn in_file(path: &Path, error: evermap_lane::simulate::Error) -> Failure {
    Failure::InFile { path: path.into(), source: Box::new(error) }
}

/// A profile's or a list of targets' text.
pub fn text_of(path: &Path) -> Result<String, Failure> {
    let file = File::open(path).map_err(|source| Failure::Source { path: path.into(), source })?;
    read_text(path, file, TEXT_BYTES_MAX)
}

pub fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|source| Failure::Target { path: path.into(), source })
}
