//! `evermap lane observe`.

use std::time::Duration;

use evermap_lane::observe::{self, Observation, Options};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{self, Output};

/// Look at a running program and suggest a policy for it
///
/// Watches when the threads of a process wake and what it reads, and prints a policy that would suit, with comments that say why and what is not
/// known. Nothing is changed, and nothing acts on it by itself: a rhythm of wake-ups need not be that of the deadlines.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  evermap lane observe $(pidof mpv) --seconds 20 > mpv.toml")]
pub struct Observe {
    /// The process
    #[arg(value_name = "PID")]
    process: u32,
    /// For how long
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Count wake-ups instead of asking the kernel for records of them
    #[arg(long)]
    poll: bool,
    /// All that was seen as one object, with the policy as text in it
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    observation: &'a Observation,
    stanza: String,
}

impl Observe {
    pub fn run(&self) -> Result<(), Failure> {
        let time = Duration::from_secs(self.seconds.into());
        // What was seen until a Ctrl-C is told.
        let stop = evermap_transfer::cancelled_by_signals();
        let options = Options { time, only_poll: self.poll, stop };
        let observation = observe::observe(self.process, &options)?;
        if observation.has_ended {
            output::warn(&format!(
                "process {} ended after {:.1} s; what was seen until then:",
                self.process, observation.seconds
            ));
        }
        let stanza = observation.stanza();
        let mut output = Output::new();
        match self.json {
            true => output.json(&Told { observation: &observation, stanza })?,
            false => output.line(stanza.trim_end())?,
        }
        output.finish()
    }
}
