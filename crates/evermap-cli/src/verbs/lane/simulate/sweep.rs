//! `evermap lane simulate sweep`: varies parameters.

use std::path::PathBuf;

use evermap_simulate::{Axis, Mode, SweepRow};

use super::inputs::{Inputs, mode};
use crate::failure::Failure;
use crate::output::Output;
use crate::result_file;

/// Simulate over one or two parameters
///
/// With several modes and devices, each mode is simulated on each device.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap lane simulate sweep --over capacity=10..100:10 --over wait=0,20,50 --svg sweep.svg
  evermap lane simulate sweep --over wait=0..100:10 --device nand --device pcram")]
pub struct Sweep {
    #[command(flatten)]
    inputs: Inputs,
    /// Parameter and its values; give it twice for two parameters
    #[arg(long, value_name = "KEY=VALUES", required = true)]
    over: Vec<String>,
    /// `blocking` or `nonblocking`
    #[arg(long, value_name = "MODE", value_parser = mode)]
    mode: Vec<Mode>,
    /// Device to read from
    #[arg(long, value_name = "NAME")]
    device: Vec<String>,
    /// Runs at each point; the results are their means
    #[arg(long, value_name = "N", default_value_t = 1)]
    seeds: u32,
    /// Print a JSON line for each point
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values
    #[arg(long)]
    csv: bool,
    /// Draw the misses to FILE
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

impl Sweep {
    pub fn run(&self) -> Result<(), Failure> {
        result_file::check_writable(self.svg.as_deref())?;
        let mut output = Output::beside(self.svg.as_deref());
        let profile = self.inputs.profile()?;
        let workload = self.inputs.workload(&profile)?;
        let axes = self.over.iter().map(|over| over.parse());
        let axes = axes.collect::<Result<Vec<Axis>, evermap_simulate::Error>>()?;
        let own = (vec![profile.mode()], vec![profile.device().to_string()]);
        let modes = if self.mode.is_empty() { &own.0 } else { &self.mode };
        let devices = if self.device.is_empty() { &own.1 } else { &self.device };
        let of_mode = |mode: &Mode| {
            let mode = *mode;
            devices.iter().map(move |device| (mode, device.clone()))
        };
        let cases: Vec<(Mode, String)> = modes.iter().flat_map(of_mode).collect();
        let sweep = evermap_simulate::Sweep::new(&profile, &cases, &axes)?;
        let rows = sweep.run(&workload, self.inputs.seed, self.seeds)?;
        if let Some(path) = &self.svg {
            let chart = sweep.chart(&rows).svg();
            result_file::write(path, chart.map_err(evermap_simulate::Error::from)?)?;
        }
        if self.json {
            rows.iter().try_for_each(|row| output.json(row))?;
        } else if self.csv {
            output.raw().write_all(sweep.csv(&rows).as_bytes())?;
        } else {
            print(&axes, &rows, &mut output)?;
        }
        output.finish()
    }
}

fn print(axes: &[Axis], rows: &[SweepRow], output: &mut Output) -> Result<(), Failure> {
    let short = |axis: &Axis| axis.parameter().rsplit('.').next().unwrap_or_default().to_string();
    let names: Vec<String> = axes.iter().map(short).collect();
    let head = [
        "mode",
        "device",
        &names.join(", "),
        "missed %",
        "5-95 %",
        "mean ms",
        "p99 ms",
        "utilised %",
    ];
    let line = |row: &SweepRow| {
        let at: Vec<String> = row.at.iter().map(f64::to_string).collect();
        [
            row.mode.to_string(),
            row.device.clone(),
            at.join(", "),
            format!("{:.1}", row.missed_percent),
            format!("{:.1}-{:.1}", row.missed_percent_p5, row.missed_percent_p95),
            format!("{:.2}", row.completion_ms_mean),
            format!("{:.2}", row.completion_ms_p99),
            format!("{:.1}", row.utilisation_percent),
        ]
    };
    output.table(head, &rows.iter().map(line).collect::<Vec<_>>(), &[0, 1])
}
