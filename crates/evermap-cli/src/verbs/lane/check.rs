//! `evermap lane check`.

use std::path::PathBuf;

use evermap_lane::guard::{self, StateDirectory};
use evermap_lane::machine::{self, CheckResult, CheckTargets, Machine};

use crate::failure::Failure;
use crate::output::Output;

/// Check which parts of a lane work on this machine, and why others do not
///
/// Tries each operation if possible, since no setting describes everything that may forbid it.
/// Leaves nothing changed. Exits with 14 if no ordinary lane (with SCHED_FIFO) is possible.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap lane check ~/videos /mnt/fast")]
pub struct Check {
    /// Directories and files that programs in lanes would read, or directories for the tier
    #[arg(value_name = "PATH")]
    places: Vec<PathBuf>,
    /// Print a JSON object for each check
    #[arg(long)]
    json: bool,
}

impl Check {
    pub fn run(&self) -> Result<(), Failure> {
        let machine = Machine::detect()?;
        let state = StateDirectory::path_of_user();
        // Without a state directory no lanes exist; this verb does not make one.
        let taken = match state.exists() {
            true => {
                StateDirectory::at(&state).map(|state| guard::claimed(&state)).unwrap_or_default()
            }
            false => Vec::new(),
        };
        let targets = CheckTargets { places: self.places.clone(), taken, state: Some(state) };
        let statements = machine::check(&machine, &targets);
        let mut output = Output::new();
        for statement in &statements {
            match self.json {
                true => output.json(statement)?,
                false => print(statement, &mut output)?,
            }
        }
        output.finish()?;
        if !machine::can_lend_with_fifo(&statements) {
            return Err(Failure::NoLane);
        }
        let absent = self.places.iter().find_map(|path| Some((path, path.metadata().err()?)));
        match absent {
            Some((path, source)) => Err(Failure::Source { path: path.clone(), source }),
            None => Ok(()),
        }
    }
}

fn print(statement: &CheckResult, output: &mut Output) -> Result<(), Failure> {
    let CheckResult { name, place, able, why, remedy, .. } = statement;
    let answer = if *able { "yes" } else { "no" };
    let place = place.as_ref().map_or(String::new(), |place| format!("{}: ", place.display()));
    output.line(&crate::output::plain(&format!("{answer:<3}  {name:<18}  {place}{why}")))?;
    if let Some(remedy) = remedy {
        output.line(&crate::output::plain(&format!("{:25}{remedy}", "")))?;
    }
    Ok(())
}
