//! `evermap lane status`.

use std::time::{Duration, UNIX_EPOCH};

use evermap_lane::guard::{LaneStatus, status};

use super::state;
use crate::failure::Failure;
use crate::output::{self, Output};

/// List lanes
///
/// Prints one line for each lane: its core, its state, its processes and its program; then other
/// remains. Lanes of other users and of other state directories are not shown.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap lane status")]
pub struct Status {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: state::State,
}

impl Status {
    pub fn run(&self) -> Result<(), Failure> {
        let state = self.state.or_of_user()?;
        let status = status(&state)?;
        let mut output = Output::new();
        if self.json {
            output.json(&status)?;
            return output.finish();
        }
        if status.lanes.is_empty() {
            output.line("no lanes")?;
        } else {
            let rows: Vec<[String; 7]> = status.lanes.iter().map(row).collect();
            let head = ["core", "state", "lane", "guardian", "program", "since", "command"];
            output.table(head, &rows, &[1, 5, 6])?;
        }
        let unused: Vec<String> = status
            .claimed
            .iter()
            .filter(|core| !status.lanes.iter().any(|lane| lane.core == Some(**core)))
            .map(u32::to_string)
            .collect();
        if !unused.is_empty() {
            output.line(&format!("claimed without a journal: core {}", unused.join(", ")))?;
        }
        for group in &status.unknown_groups {
            let name = group.display().to_string();
            output.line(&output::plain(&format!("group of an unknown lane: {name}")))?;
        }
        for damaged in &status.damaged {
            output.line(&output::plain(damaged))?;
        }
        if status.lanes.iter().any(|lane| !lane.is_running) {
            output.line("run `evermap lane undo` to undo lanes that were left behind")?;
        }
        output.finish()
    }
}

fn row(lane: &LaneStatus) -> [String; 7] {
    let number = |number: Option<u32>| number.map_or("-".into(), |number| number.to_string());
    let state = match (lane.is_running, lane.guardian_pid) {
        (true, Some(_)) => "running",
        (true, None) => "running, unguarded",
        (false, Some(_)) => "being undone",
        (false, None) => "left behind",
    };
    [
        number(lane.core),
        state.into(),
        lane.lane_pid.to_string(),
        number(lane.guardian_pid),
        number(lane.program_pid),
        output::utc(UNIX_EPOCH + Duration::from_secs(lane.since_unix_s)),
        output::plain(&lane.command),
    ]
}
