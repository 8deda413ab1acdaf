//! `evermap lane undo`.

use evermap_lane::guard::undo;
use serde::Serialize;

use super::state;
use crate::failure::Failure;
use crate::output::Output;

/// Undo what lanes left behind whose processes were killed
///
/// Lanes that run are left alone. When this returns, nothing is left of the others; done again, it finds nothing. It is needed only when
/// a lane, its program and its guardian were killed together, and the next lane does it, too.
///
///   evermap lane undo
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Undo {
    /// As one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: state::State,
}

#[derive(Serialize)]
struct Told<'a> {
    lanes: &'a [evermap_lane::guard::UndoneLane],
    running: usize,
    failed: Vec<String>,
}

impl Undo {
    pub fn run(&self) -> Result<(), Failure> {
        let undone = undo(&self.state.or_of_user()?)?;
        let mut output = Output::new();
        if self.json {
            let failed = undone.failed.iter().map(ToString::to_string).collect();
            output.json(&Told { lanes: &undone.lanes, running: undone.running, failed })?;
        } else {
            if undone.lanes.is_empty() {
                output.line("nothing was left behind")?;
            }
            for lane in &undone.lanes {
                let core = lane.core.map_or("no core".into(), |core| format!("core {core}"));
                output.line(&format!("{} of {}, {core}: undone", lane.id, lane.command))?;
                for did in &lane.did {
                    output.line(&format!("  {did}"))?;
                }
            }
            if undone.running > 0 {
                output.line(&format!("{} lanes run, and are left alone", undone.running))?;
            }
        }
        output.finish()?;
        let mut failed = undone.failed.into_iter().map(Failure::from);
        let first = failed.next();
        // The last is said with the exit code.
        failed.for_each(|failure| failure.say());
        first.map_or(Ok(()), Err)
    }
}
