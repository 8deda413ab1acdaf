//! `evermap lane bench`.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use evermap_lane::bench::{Cell, Ladder, Launcher, Load, Preset, Results, Rung, serve};

use crate::comparison::{self, Export, Figure, Times};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::result_file;

/// Exit code after Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Measure the effect of each part of a lane on this machine
///
/// Runs a player on each rung of a ladder, from an ordinary program that reads the disk to a
/// program in a lane with its data on the tier, under the same load. Each round has another order,
/// so that drifts of the machine affect all rungs. The load's work is counted with the player and
/// without it; the last column shows the cost of the lane to other programs beyond the player's own
/// work. Ctrl-C ends it with the results of the completed turns. It leaves no files and no
/// processes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap lane bench --seconds 20 --rates 24,60 --hogs 4 --writers 2
  evermap lane bench --background 'stress-ng --cpu 4 --hdd 2' --svg plots")]
pub struct Bench {
    /// Duration of each turn
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,
    /// Number of turns of each rung
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    rounds: usize,
    /// Frames a second
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', default_values_t = [24, 60, 1000])]
    rates: Vec<u32>,
    /// Rungs to measure [default: all]
    #[arg(long, value_name = "RUNG,...", value_delimiter = ',')]
    rungs: Vec<Rung>,
    /// Number of processes that compute
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    hogs: usize,
    /// Number of processes that write
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    writers: usize,
    /// Shell command to run in place of hogs and writers; its work is not counted, so no cost is
    /// shown
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["hogs", "writers"])]
    background: Option<String>,
    /// Also measure the tier with this additional latency of each 4 KiB
    #[arg(long, value_name = "MICROSECONDS,...", value_delimiter = ',')]
    inject: Vec<f64>,
    /// Directory of the clips, on the disk to measure
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Seed of the order of turns
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Draw completions and misses to this directory
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    export: Export,
    /// For the benchmark itself
    #[arg(long, hide = true)]
    child: bool,
}

impl Bench {
    pub fn run(&self) -> Result<(), Failure> {
        if self.child {
            return Ok(serve()?);
        }
        self.export.check()?;
        let ladder = self.ladder()?;
        if let Some(folder) = &self.svg {
            fs::create_dir_all(folder).map_err(Failure::target(folder))?;
        }
        let stop = evermap_transfer::cancelled_by_signals();
        let results = ladder.run_until(&stop, |turn, turns, subject, preset| {
            let name = subject.name();
            // A closed stderr is ignored.
            let _ =
                writeln!(io::stderr(), "turn {turn} of {turns}: {name}, {} a second", preset.fps);
        })?;
        let (done, planned) = (results.turns_done, results.turns_planned);
        if results.cells.is_empty() {
            output::warn(&format!(
                "no results: stopped after {done} of {planned} turns, before any player had a turn"
            ));
            return Err(Failure::CommandEnded { code: INTERRUPTED });
        }
        // Prints the results even if the charts cannot be drawn.
        let times: Vec<Times> = results.cells.iter().map(times).collect();
        let printed = self.print(&results, &times);
        self.draw(&results)?;
        self.export.write(&times)?;
        printed
    }

    fn print(&self, results: &Results, times: &[Times]) -> Result<(), Failure> {
        let mut output = Output::new();
        match self.json {
            true => output.json(results)?,
            false => {
                output.line(results.to_string().trim_end())?;
                let sentences = comparison::sentences(times, Rung::ALL[0].name(), Figure::P99);
                sentences.iter().try_for_each(|sentence| output.line(sentence))?;
            }
        }
        output.finish()
    }

    fn ladder(&self) -> Result<Ladder, Failure> {
        let usage = |what: String| Err(Failure::Usage(what));
        if !(self.seconds > 0.0 && self.seconds <= 86_400.0) {
            return usage(format!(
                "`--seconds {}`: use more than 0 and at most a day",
                self.seconds
            ));
        }
        if !(1..=10_000).contains(&self.rounds) {
            return usage(format!("`--rounds {}`: use 1 to 10,000", self.rounds));
        }
        if let Some(rate) = self.rates.iter().find(|rate| !(1..=100_000).contains(*rate)) {
            return usage(format!("`--rates {rate}`: use 1 to 100,000 frames a second"));
        }
        if let Some(us) = self.inject.iter().find(|us| !(0.0..=1e6).contains(*us)) {
            return usage(format!("`--inject {us}`: use 0 to a second, in microseconds"));
        }
        let program = std::env::current_exe().map_err(Failure::source("/proc/self/exe"))?;
        let arguments = ["lane", "bench", "--child"].map(String::from).into();
        let is_own = self.background.is_none();
        Ok(Ladder {
            launcher: Launcher { program, arguments },
            rungs: if self.rungs.is_empty() { Rung::ALL.into() } else { self.rungs.clone() },
            presets: self.rates.iter().map(|rate| Preset::of_rate(*rate)).collect(),
            inject_ns_per_4k: self.inject.iter().map(|us| (us * 1e3) as u64).collect(),
            turn: Duration::from_secs_f64(self.seconds),
            rounds: self.rounds,
            load: Load {
                hogs: if is_own { self.hogs } else { 0 },
                writers: if is_own { self.writers } else { 0 },
                command: self.background.clone(),
            },
            folder: self.dir.clone(),
            state: None,
            seed: self.seed,
        })
    }

    fn draw(&self, results: &Results) -> Result<(), Failure> {
        let Some(folder) = &self.svg else { return Ok(()) };
        let svgs = results.svgs().map_err(|error| Failure::Usage(error.to_string()))?;
        for (name, svg) in svgs {
            let path = folder.join(name);
            result_file::write(&path, svg)?;
        }
        Ok(())
    }
}

/// Returns the times until the completion of a frame.
fn times(cell: &Cell) -> Times {
    let ms = &cell.completion_ms;
    Times {
        group: format!("{} frames a second", cell.preset.fps),
        name: cell.name.clone(),
        median_s: ms.p50 / 1e3,
        p99_s: ms.p99 / 1e3,
        min_s: ms.min / 1e3,
        max_s: ms.max / 1e3,
        rounds: ms.count as u64,
    }
}
