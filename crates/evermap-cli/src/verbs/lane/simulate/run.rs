//! `evermap lane simulate run`: simulates one run.

use std::path::PathBuf;

use evermap_plot::{Kind, LineChart, Series};
use evermap_simulate::{Frame, Mode, Scenario, Summary, Workload};
use serde::Serialize;

use super::inputs::{Inputs, mode};
use crate::failure::Failure;
use crate::output::Output;
use crate::result_file;

/// Simulate one run
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap lane simulate run --mode nonblocking --device pcram --svg run.svg
  evermap lane simulate run --profile measured --trace player.strace --files '*.mkv'")]
pub struct Run {
    #[command(flatten)]
    inputs: Inputs,
    /// `blocking`: the program gives up its core when it reads; `nonblocking`: it keeps its core
    #[arg(long, value_name = "MODE", value_parser = mode)]
    mode: Option<Mode>,
    /// Device of the profile to read from
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Print a JSON line for each frame and one for the run
    #[arg(long)]
    json: bool,
    /// Draw the completion of each frame to FILE
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Line of `--json` for a frame.
#[derive(Serialize)]
struct OfFrame<'a> {
    frame: usize,
    #[serde(flatten)]
    of: &'a Frame,
}

/// Last line of `--json`.
#[derive(Serialize)]
struct OfRun<'a> {
    profile: &'a str,
    mode: Mode,
    device: &'a str,
    seed: u64,
    period_ms: f64,
    deadline_ms: f64,
    summary: &'a Summary,
}

impl Run {
    pub fn run(&self) -> Result<(), Failure> {
        result_file::check_writable(self.svg.as_deref())?;
        let mut output = Output::beside(self.svg.as_deref());
        let profile = self.inputs.profile()?;
        let workload = self.inputs.workload(&profile)?;
        let (mode, device) = (
            self.mode.unwrap_or(profile.mode()),
            self.device.clone().unwrap_or(profile.device().into()),
        );
        let run = Scenario::of(profile, mode, &device)?.run(&workload, self.inputs.seed)?;
        if let Some(path) = &self.svg {
            result_file::write(path, chart(&run).svg().map_err(evermap_simulate::Error::from)?)?;
        }
        if self.json {
            for (frame, of) in run.frames.iter().enumerate() {
                output.json(&OfFrame { frame, of })?;
            }
            let evermap_simulate::Run { profile, device, summary, .. } = &run;
            let (mode, seed) = (run.mode, run.seed);
            let (period_ms, deadline_ms) = (run.period_ms, run.deadline_ms);
            output.json(&OfRun { profile, mode, device, seed, period_ms, deadline_ms, summary })?;
        } else {
            print(&run, &workload, &mut output)?;
        }
        output.finish()
    }
}

fn print(
    run: &evermap_simulate::Run,
    workload: &Workload,
    output: &mut Output,
) -> Result<(), Failure> {
    let of = &run.summary;
    let drawn = match workload {
        Workload::Traced(traced) => format!("a trace of {} pages", traced.footprint_pages()),
        _ => format!("seed {}", run.seed),
    };
    output.line(&format!(
        "{}: {}, {} I/O on {}, {drawn}",
        run.profile,
        match of.frames {
            1 => "1 frame".into(),
            frames => format!("{frames} frames"),
        },
        run.mode,
        run.device
    ))?;
    output.line(&format!(
        "missed       {} of {} ({:.1} %), deadline {:.2} ms",
        of.missed, of.frames, of.missed_percent, run.deadline_ms
    ))?;
    let ms = of.completion_ms;
    output.line(&format!(
        "completion   p50 {:.2} ms, p99 {:.2}, max {:.2}; mean {:.2}: {:+.1} % of the deadline",
        ms.p50, ms.p99, ms.max, ms.mean, of.completion_change_percent
    ))?;
    output.line(&format!(
        "of a frame   I/O {:.2} ms in {:.1} requests, context switches {:.2} ms, waits {:.2} ms",
        of.io_ms_mean, of.requests_mean, of.switch_ms_mean, of.wait_ms_mean
    ))?;
    output.line(&format!(
        "utilisation  {:.1} %; {:.1} % if context switches are overhead",
        of.utilisation_percent, of.utilisation_less_switches_percent
    ))?;
    output.line(&format!("read         {:.2} MiB/s from the device", of.read_mib_per_s))
}

fn chart(run: &evermap_simulate::Run) -> LineChart {
    let points = run.frames.iter().enumerate();
    let points = points.map(|(frame, of)| (frame as f64, of.completion_ms)).collect();
    LineChart {
        title: format!("Completion of each frame, profile {}, seed {}", run.profile, run.seed),
        x_label: "frame".into(),
        y_label: "completion [ms]".into(),
        series: vec![Series { name: format!("{}, {}", run.mode, run.device), points }],
        levels: vec![(run.deadline_ms, format!("deadline, {:.2} ms", run.deadline_ms))],
        kind: if run.frames.len() > 1_000 { Kind::Points } else { Kind::Lines },
        ..LineChart::default()
    }
}
