//! `evermap lane undo`.

use std::path::PathBuf;

use evermap_lane::guard::{Undone, undo};
use evermap_lane::tier::{Journal, Recovered, recover};
use serde::Serialize;

use super::state;
use crate::failure::Failure;
use crate::output::{Output, plain};

/// Undo what lanes left behind whose processes were killed
///
/// That is cores that were held, threads that were put before others, and files on their way to a tier or back. Lanes that run
/// are left alone. When this returns, nothing is left of the others; done again, it finds nothing. It is needed only when
/// a lane, its program and its guardian were killed together, and the next lane does it, too.
///
///   evermap lane undo
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Undo {
    /// As one JSON object
    #[arg(long)]
    json: bool,
    /// Where it is written down what was moved [default: /var/lib/evermap-lane for root, $XDG_STATE_HOME/evermap/lane]
    #[arg(long, value_name = "DIR")]
    journal: Option<PathBuf>,
    #[command(flatten)]
    state: state::State,
}

#[derive(Serialize)]
struct Told<'a> {
    lanes: &'a [evermap_lane::guard::UndoneLane],
    running: usize,
    /// Files that were on their way, and are on the tier now.
    placed: Vec<String>,
    /// Files that were on their way, and are where they were before.
    returned: Vec<String>,
    /// Records of files that another process is at.
    busy: Vec<String>,
    failed: Vec<String>,
}

impl Undo {
    pub fn run(&self) -> Result<(), Failure> {
        let undone = undo(&self.state.or_of_user()?)?;
        // Whatever becomes of the files: what was undone of lanes is told.
        let (moved, not_looked) = match self.recover() {
            Ok(moved) => (moved, None),
            Err(failure) => (Recovered::default(), Some(failure)),
        };
        let mut output = Output::new();
        if self.json {
            let lanes = undone.failed.iter().map(ToString::to_string);
            let files = moved.left.iter().map(|(_, error)| error.to_string());
            let files = files.chain(not_looked.iter().map(ToString::to_string));
            output.json(&Told {
                lanes: &undone.lanes,
                running: undone.running,
                placed: names(&moved.placed),
                returned: names(&moved.returned),
                busy: names(&moved.busy),
                failed: lanes.chain(files).collect(),
            })?;
        } else {
            let is_whole = undone.failed.is_empty() && moved.left.is_empty();
            tell(&undone, &moved, is_whole && not_looked.is_none(), &mut output)?;
        }
        output.finish()?;
        let lanes = undone.failed.into_iter().map(Failure::from);
        let files = moved.left.into_iter().map(|(_, error)| Failure::from(error));
        let mut failed = lanes.chain(files).chain(not_looked);
        let first = failed.next();
        // The last is said with the exit code.
        failed.for_each(|failure| failure.say());
        first.map_or(Ok(()), Err)
    }

    /// Files that were on their way to a tier, or back, arrive or return.
    fn recover(&self) -> Result<Recovered, Failure> {
        let path = match &self.journal {
            Some(path) => path.clone(),
            None => match Journal::path_of_user() {
                Ok(path) => path,
                // Without a home nobody has moved anything.
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

/// `is_whole`: there is nothing that could not be undone.
fn tell(
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
        (&moved.placed, "was on its way, and is on the tier"),
        (&moved.returned, "was on its way, and is where it was before"),
        (&moved.busy, "another process is at it: left alone"),
    ] {
        for name in names(paths) {
            output.line(&plain(&format!("{name}: {what}")))?;
        }
    }
    if undone.running > 0 {
        output.line(&format!("{} lanes run, and are left alone", undone.running))?;
    }
    Ok(())
}
