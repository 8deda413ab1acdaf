//! `evermap lane bench`.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use evermap_lane::bench::{Ladder, Launcher, Load, Preset, Results, Rung, serve};

use crate::failure::Failure;
use crate::output::{self, Output};

/// As a program's that a Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Measure what each part of a lane brings on this machine
///
/// A player has its turn on each rung of a ladder, from an ordinary program that reads the disk to one in a lane whose data are on the tier, beside the same
/// load: in rounds, each in another order, so that what drifts drifts for all. The load's own work is counted, with the player and without: what a
/// lane costs the others beyond the player's own work is the last column. A Ctrl-C ends it with what the turns came to that were done. Nothing is left
/// behind, whenever it ends.
///
///     evermap lane bench --seconds 20 --rates 24,60 --hogs 4 --writers 2
///     evermap lane bench --background 'stress-ng --cpu 4 --hdd 2' --svg plots
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Bench {
    /// How long each turn is
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,
    /// How many turns each rung has
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    rounds: usize,
    /// Frames a second
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', default_values_t = [24, 60, 1000])]
    rates: Vec<u32>,
    /// Which rungs; all, unless it is said
    #[arg(long, value_name = "RUNG,...", value_delimiter = ',')]
    rungs: Vec<Rung>,
    /// Processes that compute beside it
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    hogs: usize,
    /// Processes that write beside it
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    writers: usize,
    /// A shell's command beside it, in place of hogs and writers; what it gets done is not counted, so that no cost is told
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["hogs", "writers"])]
    background: Option<String>,
    /// Measure the tier with every 4 KiB taking so many microseconds longer, too
    #[arg(long, value_name = "MICROSECONDS,...", value_delimiter = ',')]
    inject: Vec<f64>,
    /// Where the clips are: which disk is measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Of the order of turns
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// The results as JSON
    #[arg(long)]
    json: bool,
    /// Draw completions and misses into this directory
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// For the benchmark itself
    #[arg(long, hide = true)]
    child: bool,
}

impl Bench {
    pub fn run(&self) -> Result<(), Failure> {
        if self.child {
            return Ok(serve()?);
        }
        let ladder = self.ladder()?;
        if let Some(folder) = &self.svg {
            fs::create_dir_all(folder)
                .map_err(|source| Failure::Target { path: folder.clone(), source })?;
        }
        let stop = evermap_transfer::cancelled_by_signals();
        let results = ladder.run_until(&stop, |turn, turns, subject, preset| {
            let name = subject.name();
            // Nobody is left to tell when stderr is closed.
            let _ =
                writeln!(io::stderr(), "turn {turn} of {turns}: {name}, {} a second", preset.fps);
        })?;
        let (done, planned) = (results.turns_done, results.turns_planned);
        if results.cells.is_empty() {
            output::warn(&format!(
                "no results: it was ended after {done} of {planned} turns, and no player's was among them"
            ));
            return Err(Failure::CommandEnded { code: INTERRUPTED });
        }
        // Whatever cannot be drawn: what was measured is told.
        let told = self.tell(&results);
        self.draw(&results)?;
        told
    }

    fn tell(&self, results: &Results) -> Result<(), Failure> {
        let mut output = Output::new();
        match self.json {
            true => output.json(results)?,
            false => output.line(results.to_string().trim_end())?,
        }
        output.finish()
    }

    fn ladder(&self) -> Result<Ladder, Failure> {
        let usage = |what: String| Err(Failure::Usage(what));
        if !(self.seconds > 0.0 && self.seconds <= 86_400.0) {
            return usage(format!("`--seconds {}`: more than 0, a day at most", self.seconds));
        }
        if !(1..=10_000).contains(&self.rounds) {
            return usage(format!("`--rounds {}`: 1 to 10,000", self.rounds));
        }
        if let Some(rate) = self.rates.iter().find(|rate| !(1..=100_000).contains(*rate)) {
            return usage(format!("`--rates {rate}`: 1 to 100,000 frames a second"));
        }
        if let Some(us) = self.inject.iter().find(|us| !(0.0..=1e6).contains(*us)) {
            return usage(format!("`--inject {us}`: 0 to a second, in microseconds"));
        }
        let program = std::env::current_exe()
            .map_err(|source| Failure::Source { path: "/proc/self/exe".into(), source })?;
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
            fs::write(&path, svg).map_err(|source| Failure::Target { path, source })?;
        }
        Ok(())
    }
}
