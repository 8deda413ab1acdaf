//! `evermap lane run`.

use std::ffi::OsString;
use std::path::PathBuf;

use evermap_lane::Policy;
use evermap_lane::run::{self, Options, Program};

use super::{helper, place, result_file, state};
use crate::failure::Failure;
use crate::output;
use crate::verbs::command::find;

/// Run a program in a lane
///
/// The program is an ordinary one. It gets what the policy says: a core (lent to the others while it sleeps, or held for it alone),
/// a real-time policy, exact timers, its files from the fast tier. What it starts is ordinary. What cannot be had for lack of a right is
/// said on stderr, and the program runs without it. When it ends, or is killed, or this command is, everything is as before.
///
///   evermap lane run --policy player.toml -- mpv film.mkv
///
/// The policy is a file like this; all of it may be left out (docs/lane.md, section 3, has the rest):
///
///   [app]
///   fps = 24
///   priority = 50
///   share = "lend"
///
/// The exit code is that of the command, or 128 and the number of the signal that ended it; 127 when there is no such command, 126 when it cannot be
/// started, 125 when the lane is refused.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Run {
    /// What the program is to get; without it a core that is lent, and SCHED_FIFO
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Write what it had and how it ended to FILE, as JSON; without it that is told on stderr
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Tell on stderr nothing but what the program could not have
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    state: state::State,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Run {
    pub fn run(&self) -> Result<(), Failure> {
        let Some((name, arguments)) = self.command.split_first() else {
            return Err(Failure::Usage("no command".to_string()));
        };
        let policy = match &self.policy {
            Some(path) => Policy::read(path)?,
            None => Policy::default(),
        };
        let path = find(name).ok_or_else(|| Failure::NoCommand { name: name.clone() })?;
        let program = Program { path, name: name.clone(), arguments: arguments.to_vec() };
        result_file::ask(self.report.as_deref())?;
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
                std::fs::write(path, text + "\n")
                    .map_err(|source| Failure::Target { path: path.clone(), source })?;
            }
            None if !self.quiet => output::warn(ended.to_string().trim_end()),
            None => {}
        }
        if self.quiet || self.report.is_some() {
            for lacked in &ended.not_applied {
                output::warn(&format!(
                    "had not {}: {}; {}",
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
