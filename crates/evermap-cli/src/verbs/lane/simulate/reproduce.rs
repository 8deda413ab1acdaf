//! `evermap lane simulate reproduce`: reproduces a published simulation.

use std::fs;
use std::path::PathBuf;

use clap::ValueEnum;
use evermap_simulate::{Row, reproduce};

use crate::failure::Failure;
use crate::output::Output;
use crate::result_file;

/// Reproduce a published study: its figures, and its numbers next to the model's
///
/// For each number it shows whether parameters were fitted to it (fitted), it results without such
/// parameters (follows), or it cannot be matched, and why. Writes figures and tables to a
/// directory, as SVG and CSV.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap lane simulate reproduce bahn2019 --to figures")]
pub struct Reproduce {
    /// Study to reproduce
    #[arg(value_name = "STUDY")]
    study: Study,
    /// Directory for figures and tables; made if missing
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Number of runs, with seeds from 1
    #[arg(long, value_name = "N", default_value_t = 200)]
    seeds: u32,
    /// Print a JSON line for each number
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Study {
    /// H. Bahn, Application-Adaptive Performance Improvement in Mobile Systems by Using Persistent
    /// Memory, 2019
    Bahn2019,
}

impl Reproduce {
    pub fn run(&self) -> Result<(), Failure> {
        let Study::Bahn2019 = self.study;
        // Fails before the simulation if the directory cannot be made.
        let failed = Failure::target(&self.to);
        fs::create_dir_all(&self.to).map_err(failed)?;
        let made = reproduce(self.seeds)?;
        for (name, text) in &made.files {
            result_file::write(&self.to.join(name), text)?;
        }
        let mut output = Output::new();
        if self.json {
            made.rows.iter().try_for_each(|row| output.json(row))?;
            return output.finish();
        }
        let head = ["figure", "number", "published", "model", "5-95 %", "", "is"];
        let rows: Vec<_> = made.rows.iter().map(line).collect();
        output.table(head, &rows, &[0, 1, 6])?;
        output.line("")?;
        output.line("why:")?;
        for row in &made.rows {
            output.line(&format!("  {} ({}): {}", row.name, row.role.name(), row.why))?;
        }
        output.line("")?;
        let fitted = made.profile.parameters().filter(|(_, parameter)| parameter.fitted);
        let fitted: Vec<String> =
            fitted.map(|(key, parameter)| format!("{key} = {}", parameter.value)).collect();
        output.line(&format!("fitted ({}): {}", fitted.len(), fitted.join(", ")))?;
        output.line(&format!(
            "{} seeds; figures and tables are in {}",
            made.seeds,
            self.to.display()
        ))?;
        output.finish()
    }
}

fn line(row: &Row) -> [String; 7] {
    let met = match row.is_met {
        Some(true) => "",
        Some(false) => "apart",
        None => "",
    };
    [
        row.figure.clone(),
        row.name.clone(),
        row.paper.map_or("-".into(), |paper| format!("{paper} {}", row.unit)),
        format!("{:.1}", row.mean),
        format!("{:.1} to {:.1}", row.p5, row.p95),
        met.into(),
        row.role.name().into(),
    ]
}
