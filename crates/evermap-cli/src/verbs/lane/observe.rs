//! `evermap lane observe`.

use std::time::Duration;

use evermap_lane::observe::{self, Observation, Options};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{self, Output};

/// Observe a running program and suggest a policy for it
///
/// Observes when the threads of a process wake and which files it reads. Prints a suitable policy,
/// with comments on its reasons and on unknowns. Changes nothing, and nothing applies the policy
/// automatically: wake-ups need not have the period of the deadlines.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap lane observe $(pidof mpv) --seconds 20 > mpv.toml")]
pub struct Observe {
    /// Process to observe
    #[arg(value_name = "PID")]
    process: u32,
    /// Seconds to observe
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Count wake-ups instead of recording them with the kernel
    #[arg(long)]
    poll: bool,
    /// Print all observations as one JSON object, with the policy as text
    #[arg(long)]
    json: bool,
}

/// Output of `--json`.
#[derive(Serialize)]
struct JsonReport<'a> {
    #[serde(flatten)]
    observation: &'a Observation,
    stanza: String,
}

impl Observe {
    pub fn run(&self) -> Result<(), Failure> {
        let time = Duration::from_secs(self.seconds.into());
        // Ctrl-C ends it with the observations so far.
        let stop = evermap_transfer::cancelled_by_signals();
        let options = Options { time, only_poll: self.poll, stop };
        let observation = observe::observe(self.process, &options)?;
        if observation.has_ended {
            output::warn(&format!(
                "process {} ended after {:.1} s; observations until then:",
                self.process, observation.seconds
            ));
        }
        let stanza = observation.stanza();
        let mut output = Output::new();
        match self.json {
            true => output.json(&JsonReport { observation: &observation, stanza })?,
            false => output.line(stanza.trim_end())?,
        }
        output.finish()
    }
}
