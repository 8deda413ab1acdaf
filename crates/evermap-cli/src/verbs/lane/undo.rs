//! `evermap lane undo`.

use std::path::PathBuf;

use evermap_lane::guard::{Undone, undo};
use evermap_lane::tier::{Journal, Recovered, recover};
use serde::Serialize;

use super::state;
use crate::failure::Failure;
use crate::output::{Output, plain};

/// Undo lanes whose processes were killed
///
/// Releases held cores, restores the priority of threads, and completes or reverts interrupted
/// moves of files to and from a tier. Leaves running lanes alone. Needed only if a lane, its
/// program and its guardian were killed together; the next `lane run` does it, too. Can be
/// repeated.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap lane undo")]
pub struct Undo {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Directory of records of moved files [default: /var/lib/evermap-lane for root,
    /// $XDG_STATE_HOME/evermap/lane]
    #[arg(long, value_name = "DIR")]
    journal: Option<PathBuf>,
    #[command(flatten)]
    state: state::State,
}

#[derive(Serialize)]
struct JsonReport<'a> {
    lanes: &'a [evermap_lane::guard::UndoneLane],
    running: usize,
    /// Files whose move to the tier was completed.
    placed: Vec<String>,
    /// Files that were moved back.
    returned: Vec<String>,
    /// Files that another process is working on.
    busy: Vec<String>,
    failed: Vec<String>,
}

impl Undo {
    pub fn run(&self) -> Result<(), Failure> {
        let undone = undo(&self.state.or_of_user()?)?;
        // Reports lanes that were undone, even if recovering files fails.
        let (moved, not_looked) = match self.recover() {
            Ok(moved) => (moved, None),
            Err(failure) => (Recovered::default(), Some(failure)),
        };
        let mut output = Output::new();
        if self.json {
            let lanes = undone.failed.iter().map(ToString::to_string);
            let files = moved.left.iter().map(|(_, error)| error.to_string());
            let files = files.chain(not_looked.iter().map(ToString::to_string));
            output.json(&JsonReport {
                lanes: &undone.lanes,
                running: undone.running,
                placed: names(&moved.placed),
                returned: names(&moved.returned),
                busy: names(&moved.busy),
                failed: lanes.chain(files).collect(),
            })?;
        } else {
            let is_whole = undone.failed.is_empty() && moved.left.is_empty();
            print(&undone, &moved, is_whole && not_looked.is_none(), &mut output)?;
        }
        output.finish()?;
        let lanes = undone.failed.into_iter().map(Failure::from);
        let files = moved.left.into_iter().map(|(_, error)| Failure::from(error));
        let mut failed = lanes.chain(files).chain(not_looked);
        let first = failed.next();
        // The caller reports the first failure with the exit code.
        failed.for_each(|failure| failure.print());
        first.map_or(Ok(()), Err)
    }

    /// Completes or reverts interrupted moves of files.
    fn recover(&self) -> Result<Recovered, Failure> {
        let path = match &self.journal {
            Some(path) => path.clone(),
            None => match Journal::path_of_user() {
                Ok(path) => path,
                // Without a home directory, no files were moved.
                Err(_) => return Ok(Recovered::default()),
            },
        };
        Ok(match Journal::find(&path)? {
            Some(journal) => recover(&journal)?,
            None => Recovered::default(),
        })
    }
}

fn names(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path.display().to_string()).collect()
}

/// Prints the results. `is_whole` is true if nothing failed.
fn print(
    undone: &Undone,
    moved: &Recovered,
    is_whole: bool,
    output: &mut Output,
) -> Result<(), Failure> {
    let is_any = !(undone.lanes.is_empty() && moved.placed.is_empty() && moved.returned.is_empty());
    if is_whole && !is_any {
        output.line("nothing was left behind")?;
    }
    for lane in &undone.lanes {
        let core = lane.core.map_or("no core".into(), |core| format!("core {core}"));
        output.line(&plain(&format!("{} of {}, {core}: undone", lane.id, lane.command)))?;
        for did in &lane.did {
            output.line(&plain(&format!("  {did}")))?;
        }
    }
    for (paths, what) in [
        (&moved.placed, "interrupted move completed: now on the tier"),
        (&moved.returned, "interrupted move reverted: back in its place"),
        (&moved.busy, "left alone: another process is working on it"),
    ] {
        for name in names(paths) {
            output.line(&plain(&format!("{name}: {what}")))?;
        }
    }
    if undone.running > 0 {
        output.line(&format!("{} lanes are running and were left alone", undone.running))?;
    }
    Ok(())
}
