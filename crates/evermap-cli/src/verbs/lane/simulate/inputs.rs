//! Options common to the simulator's verbs: profile and changes to it, trace, and output files.

use std::fs::File;
use std::path::{Path, PathBuf};

use evermap_simulate::{Mode, PROFILES, Profile, Traced, Workload};
use evermap_trace::{Period, Trace};

use crate::failure::Failure;
use crate::limits::read_text;

/// Maximum size of a profile or a file of targets. Bounds the memory for other files.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// Profile and changes to it.
#[derive(Debug, clap::Args)]
pub struct Inputs {
    /// Profile of a program and a machine: `bahn2019`, `measured`, or a file (list them with
    /// `simulate profile`)
    #[arg(long, value_name = "NAME|FILE", default_value = "bahn2019")]
    profile: String,
    /// Change a parameter of the profile
    #[arg(long, value_name = "KEY=VALUE", value_parser = change)]
    set: Vec<(String, f64)>,
    /// Number of frames of a run
    #[arg(long, value_name = "N")]
    frames: Option<u32>,
    /// Size of the cache, in percent of the pages used
    #[arg(long, value_name = "PERCENT")]
    capacity: Option<f64>,
    /// Wait for the processor after each blocking request, in percent of a time slice
    #[arg(long, value_name = "PERCENT")]
    wait: Option<f64>,
    /// Take references from this trace, in any format of `lane trace import`, instead of drawing
    /// them
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Use only files of the trace that match this pattern: by path if it contains `/`, else by
    /// name
    #[arg(long, value_name = "GLOB", requires = "trace")]
    files: Option<String>,
    /// Seed of random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

fn change(text: &str) -> Result<(String, f64), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    let value = value.trim();
    Ok((key.trim().into(), value.parse().map_err(|_| format!("`{value}` is not a number"))?))
}

pub fn mode(text: &str) -> Result<Mode, String> {
    text.parse().map_err(|error: evermap_simulate::Error| error.to_string())
}

impl Inputs {
    /// Profile with all changes. The specific options override `--set`.
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

    /// Workload of the program: drawn, or from a trace.
    pub fn workload(&self, profile: &Profile) -> Result<Workload, Failure> {
        let Some(path) = &self.trace else { return Ok(Workload::Drawn) };
        let trace = Trace::read(path, None)?;
        for warning in &trace.warnings {
            crate::output::warn(&warning.to_string());
        }
        let rate = profile.get("frames.rate_per_s").map_or(0.0, |rate| rate.value);
        let period = period_of(rate).ok_or_else(|| {
            Failure::Usage(format!(
                "a trace cannot be divided into {rate} frames a second: use 0.001 to 1,000,000"
            ))
        })?;
        let traced = match &self.files {
            Some(pattern) => Traced::of_files(&trace, period, pattern)?,
            None => Traced::of(&trace, period)?,
        };
        Ok(Workload::Traced(traced))
    }
}

/// Period of this rate, rounded to thousandths of a frame a second.
fn period_of(rate_per_s: f64) -> Option<Period> {
    Period::of_rate((rate_per_s * 1e3).round() as u64, 1_000)
}

/// Built-in profile, or one from a file.
pub fn named(name: &str) -> Result<Profile, Failure> {
    if PROFILES.iter().any(|(known, _)| *known == name) {
        return Ok(Profile::built_in(name)?);
    }
    let path = Path::new(name);
    if !path.exists() && !name.contains(['/', '.']) {
        // A misspelt name rather than a missing file.
        return Ok(Profile::built_in(name)?);
    }
    text_of(path)?.parse().map_err(|error| in_file(path, error))
}

/// Error with the name of the file.
pub fn in_file(path: &Path, error: evermap_simulate::Error) -> Failure {
    Failure::InFile { path: path.into(), source: Box::new(error) }
}

/// Reads a profile or a list of targets.
pub fn text_of(path: &Path) -> Result<String, Failure> {
    let file = File::open(path).map_err(Failure::source(path))?;
    read_text(path, file, TEXT_BYTES_MAX)
}
