//! `evermap lane run`.

use std::path::PathBuf;

use evermap_lane::Policy;
use evermap_lane::run::{self, Options, Program};

use super::{helper, place, state};
use crate::failure::Failure;
use crate::output;
use crate::result_file;
use crate::verbs::command::CommandLine;

/// Run a program in a lane
///
/// The program need not know of the lane. It gets what the policy sets: a core (lent to other
/// programs while it sleeps, or held for it alone), a real-time policy, exact timers, and its files
/// on the fast tier. Its child processes are ordinary ones. Settings that need a missing right are
/// reported on stderr, and the program runs without them. When the program or this command ends, or
/// is killed, all changes are undone.
///
/// Exits with the command's exit code, or 128 plus the signal that ended it; 127 if the command is
/// not found, 126 if it cannot be started, 125 if the lane is refused.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Policy file (every line is optional; docs/lane.md, section 3, lists all settings):
  [app]
  fps = 24
  priority = 50
  share = \"lend\"

Examples:
  evermap lane run -- mpv film.mkv
  evermap lane run --policy player.toml -- mpv film.mkv")]
pub struct Run {
    /// Policy file [default: lend a core, SCHED_FIFO]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Write the report to FILE as JSON instead of stderr
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Report only settings that were not applied, and events
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    state: state::State,
    #[command(flatten)]
    command: CommandLine,
}

impl Run {
    pub fn run(&self) -> Result<(), Failure> {
        let policy = match &self.policy {
            Some(path) => Policy::read(path)?,
            None => Policy::default(),
        };
        let found = self.command.find()?;
        let program = Program {
            path: found.file,
            name: found.name.clone(),
            arguments: found.arguments.to_vec(),
        };
        result_file::check_writable(self.report.as_deref())?;
        let (view, not_applied) = match policy.tier.files.is_empty() {
            true => Default::default(),
            false => run::view(&policy, &place::watch("placing")).map_err(Failure::NoTier)?,
        };
        let options = Options {
            state: self.state.directory()?,
            helper: Some(helper()?),
            view,
            not_applied,
            ..Options::default()
        };
        let ended = run::run(&policy, &program, &options).map_err(Failure::LaneRefused)?;
        match &self.report {
            Some(path) => {
                let text = serde_json::to_string(&ended).map_err(std::io::Error::from)?;
                result_file::write(path, text + "\n")?;
            }
            None if !self.quiet => output::warn(ended.to_string().trim_end()),
            None => {}
        }
        if self.quiet || self.report.is_some() {
            for lacked in &ended.not_applied {
                output::warn(&format!(
                    "not applied: {}: {}; {}",
                    lacked.what, lacked.why, lacked.remedy
                ));
            }
            ended.events.iter().for_each(|event| output::warn(event));
        }
        match ended.exit_code() {
            0 => Ok(()),
            code => Err(Failure::CommandEnded { code }),
        }
    }
}
