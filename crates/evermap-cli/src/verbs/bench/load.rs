//! `evermap bench load`: each way to load a file of the user's, beside what the policy picks.
//!
//! Each load is a new process, this command itself, as a load leaves its marks in the memory of who made it. It touches the same pages in
//! the same order as all others, and prints what that took: [`Run`]. All have to see the same bytes.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use evermap_load::{Change, Error, Latency, Loader, Method, Order};
use serde::{Deserialize, Serialize};

use super::work::{self, Run, Work};
use crate::failure::Failure;
use crate::output::{self, Output};

/// What the policy is called among the methods.
const AUTOMATIC: &str = "automatic";

/// Load a file by every method there is, in turns, and compare
///
/// Each load is a process of its own. The file is not changed: what is written is private.
#[derive(Debug, clap::Args)]
pub(super) struct Load {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// How much of it is touched
    #[arg(long, value_name = "PERCENT", default_value = "100", value_parser = clap::value_parser!(u8).range(1..=100))]
    touched: u8,
    /// How much of it is written, of what is touched
    #[arg(long, value_name = "PERCENT", default_value = "100", value_parser = clap::value_parser!(u8).range(0..=100))]
    written: u8,
    /// In which order
    #[arg(long, value_name = "ORDER", default_value = "sequential")]
    order: Touches,
    /// What is to be soon, for what the policy picks
    #[arg(long, value_name = "WHAT", default_value = "first-use")]
    latency: Soon,
    /// Drop the file from the page cache before each load; else it is read into it
    #[arg(long)]
    cold: bool,
    /// Somebody may change the file meanwhile: don't map it
    #[arg(long)]
    changing: bool,
    /// How often each method loads it
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Only these methods
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = method)]
    methods: Vec<Method>,
    /// All rounds, as one JSON object
    #[arg(long)]
    json: bool,
    /// One load by this method, in this process
    #[arg(long, value_name = "NAME", hide = true)]
    child: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum Touches {
    Sequential,
    Random,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum Soon {
    FirstUse,
    Finish,
}

fn method(name: &str) -> Result<Method, String> {
    Method::from_name(name).ok_or_else(|| {
        let names: Vec<_> = Method::ALL.iter().map(|method| method.name()).collect();
        format!("no method has this name; there are {}", names.join(", "))
    })
}

/// All loads by one method.
#[derive(Debug, Serialize, Deserialize)]
struct Cell {
    name: String,
    /// Why it cannot load this file.
    refused: Option<String>,
    runs: Vec<Run>,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Told<'t> {
    file: &'t PathBuf,
    bytes: u64,
    cold: bool,
    touched_percent: u8,
    written_percent: u8,
    methods: &'t [Cell],
}

impl Load {
    pub(super) fn run(&self) -> Result<(), Failure> {
        if let Some(name) = &self.child {
            return self.load_once(name);
        }
        // A file that cannot be loaded at all is said to be so once.
        let (facts, _) = self.loader(AUTOMATIC).probe()?;
        let mut cells: Vec<Cell> = self.names().into_iter().map(Cell::new).collect();
        for round in 0..usize::from(self.rounds) {
            for turn in 0..cells.len() {
                let index = (turn + round) % cells.len();
                let cell = &mut cells[index];
                if cell.refused.is_none() {
                    self.prepare()?;
                    self.measure(cell)?;
                }
            }
        }
        self.compare(&cells)?;
        let mut output = Output::new();
        match self.json {
            true => output.json(&Told {
                file: &self.file,
                bytes: facts.bytes,
                cold: self.cold,
                touched_percent: self.touched,
                written_percent: self.written.min(self.touched),
                methods: &cells,
            })?,
            false => self.table(facts.bytes, &cells, &mut output)?,
        }
        output.finish()
    }

    fn names(&self) -> Vec<String> {
        let methods = match self.methods.is_empty() {
            true => &Method::ALL[..],
            false => &self.methods,
        };
        let names = methods.iter().map(|method| method.name().to_string());
        std::iter::once(AUTOMATIC.to_string()).chain(names).collect()
    }

    /// The file is in the page cache, or is not.
    fn prepare(&self) -> Result<(), Failure> {
        let failed = |source| Failure::Source { path: self.file.clone(), source };
        let mut file = File::open(&self.file).map_err(failed)?;
        if self.cold {
            // Pages that are not on the disk yet stay; a file system that is only read has none.
            let _ = file.sync_all();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
                .map_err(|errno| failed(errno.into()))?;
        } else {
            io::copy(&mut file, &mut io::sink()).map_err(failed)?;
        }
        Ok(())
    }

    /// One load in a process of its own.
    fn measure(&self, cell: &mut Cell) -> Result<(), Failure> {
        let program = std::env::current_exe()?;
        let mut command = Command::new(&program);
        command.args(["bench", "load", "--child", &cell.name]);
        command.args(["--touched", &self.touched.to_string()]);
        command.args(["--written", &self.written.to_string()]);
        command.args(["--order", name_of(self.order).as_str()]);
        command.args(["--latency", name_of(self.latency).as_str()]);
        if self.changing {
            command.arg("--changing");
        }
        command.arg("--").arg(&self.file).stdin(Stdio::null());
        let ended = command
            .output()
            .map_err(|source| Failure::NotStarted { program: program.clone(), source })?;
        let run = match ended.status.success() {
            true => serde_json::from_slice(&ended.stdout).map_err(|error| error.to_string()),
            false => {
                let said = String::from_utf8_lossy(&ended.stderr);
                let said = said.trim().trim_start_matches("evermap: ");
                Err(if said.is_empty() { ended.status.to_string() } else { said.to_string() })
            }
        };
        match run {
            Ok(run) => cell.runs.push(run),
            Err(why) => cell.refused = Some(why),
        }
        Ok(())
    }

    /// The child: loads, works, tells.
    fn load_once(&self, name: &str) -> Result<(), Failure> {
        let work = Work::new(
            std::fs::metadata(&self.file)
                .map_err(|source| Failure::Source { path: self.file.clone(), source })?
                .len(),
            (self.touched, self.written),
            self.order == Touches::Random,
        );
        let run = work::run(&self.loader(name), &work)?;
        let mut output = Output::new();
        output.json(&run)?;
        output.finish()
    }

    fn loader(&self, name: &str) -> Loader {
        let loader = Loader::open(&self.file)
            .touched(f64::from(self.touched) / 100.0)
            .written(f64::from(self.written.min(self.touched)) / 100.0)
            .order(match self.order {
                Touches::Sequential => Order::Sequential,
                Touches::Random => Order::Random,
            })
            .latency(match self.latency {
                Soon::FirstUse => Latency::FirstUse,
                Soon::Finish => Latency::Finish,
            });
        let loader = match Method::from_name(name) {
            Some(method) => loader.method(method),
            None => loader,
        };
        match self.changing {
            true => loader,
            // SAFETY: without `--changing` the user promises it. Should somebody cut the file short nevertheless, that ends a child,
            // and its method has no figures; other bytes are seen by their checksum.
            false => unsafe { loader.may_map() },
        }
    }

    /// All have seen the same.
    fn compare(&self, cells: &[Cell]) -> Result<(), Failure> {
        let mut runs = cells.iter().flat_map(|cell| &cell.runs);
        let first = runs.next().map(|run| run.checksum);
        match runs.all(|run| Some(run.checksum) == first) {
            true => Ok(()),
            false => {
                let (path, change) = (self.file.clone(), Change::Rewritten);
                Err(Error::Changed { path, change }.into())
            }
        }
    }

    fn table(&self, bytes: u64, cells: &[Cell], output: &mut Output) -> Result<(), Failure> {
        let state = if self.cold { "cold" } else { "cached" };
        output.line(&format!(
            "{}: {}, {state}, {} % touched, {} % written, {}, {} rounds",
            self.file.display(),
            output::bytes(bytes),
            self.touched,
            self.written.min(self.touched),
            name_of(self.order),
            self.rounds
        ))?;
        let head = [
            "method",
            "first use",
            "finish",
            "least",
            "processor",
            "faults",
            "private",
            "huge",
            "cached",
            "twice",
        ];
        let rows: Vec<[String; 10]> = cells.iter().map(Cell::row).collect();
        output.table(head, &rows, &[0])?;
        for cell in cells {
            if let Some(why) = &cell.refused {
                output.line(&format!("{}: {}", cell.name, output::plain(why)))?;
            }
        }
        let policy = cells.iter().find(|cell| cell.name == AUTOMATIC);
        if let Some(run) = policy.and_then(|cell| cell.runs.last()) {
            output.line(&format!("{AUTOMATIC} = {}", run.why))?;
        }
        if let Some(line) = against_best(cells) {
            output.line(&line)?;
        }
        Ok(())
    }
}

/// As it is given.
fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}

impl Cell {
    fn new(name: String) -> Cell {
        Cell { name, refused: None, runs: Vec::new() }
    }

    fn median(&self, of: impl Fn(&Run) -> f64) -> Option<f64> {
        let mut values: Vec<f64> = self.runs.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        match values.len() {
            0 => None,
            length if length % 2 == 1 => Some(values[middle]),
            _ => Some((values[middle - 1] + values[middle]) / 2.0),
        }
    }

    fn row(&self) -> [String; 10] {
        if self.refused.is_some() || self.runs.is_empty() {
            let mut row = <[String; 10]>::default();
            row[0] = self.name.clone();
            row[1] = "-".into();
            return row;
        }
        let time = |of: fn(&Run) -> f64| {
            let seconds = self.median(of).unwrap_or_default();
            output::duration(Duration::from_secs_f64(seconds.max(0.0)))
        };
        let bytes = |of: fn(&Run) -> u64| {
            output::bytes(self.median(|run| of(run) as f64).unwrap_or_default() as u64)
        };
        let least = self.runs.iter().map(|run| run.finish_s).fold(f64::INFINITY, f64::min);
        let faults = self.median(|run| (run.usage.minor_faults + run.usage.major_faults) as f64);
        [
            self.name.clone(),
            time(|run| run.first_use_s),
            time(|run| run.finish_s),
            output::duration(Duration::from_secs_f64(least.max(0.0))),
            time(|run| run.usage.user_s + run.usage.system_s),
            output::count(faults.unwrap_or_default() as u64),
            bytes(|run| run.residency.private_bytes),
            bytes(|run| run.residency.huge_bytes),
            bytes(|run| run.residency.cached_bytes),
            bytes(|run| run.residency.duplicate_bytes),
        ]
    }
}

/// How much the policy's pick is behind the one that finished first.
fn against_best(cells: &[Cell]) -> Option<String> {
    let finish = |cell: &Cell| cell.median(|run| run.finish_s);
    let policy = finish(cells.iter().find(|cell| cell.name == AUTOMATIC)?)?;
    let others = cells.iter().filter(|cell| cell.name != AUTOMATIC && cell.refused.is_none());
    let (best, seconds) = others
        .filter_map(|cell| Some((cell, finish(cell)?)))
        .min_by(|one, other| one.1.total_cmp(&other.1))?;
    Some(format!("{AUTOMATIC} = {:.2} x {}, which finished first", policy / seconds, best.name))
}
