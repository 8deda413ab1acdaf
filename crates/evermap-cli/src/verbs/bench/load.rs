//! `evermap bench load`: compares the policy's choice with every method of loading a file.
//!
//! Each load runs in a new process of this command, because a load changes the memory of its
//! process. All processes touch the same pages in the same order, and must read the same bytes.
//! Each prints its cost as a [`Run`].

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::ValueEnum;
use evermap_load::{Change, Error, Latency, Loader, Method, Order};
use serde::{Deserialize, Serialize};

use super::work::{self, Run, Work};
use crate::comparison::{self, Export, Figure, Times};
use crate::failure::Failure;
use crate::output::{self, Output};

/// Name under which the policy's choice is listed beside the methods.
const AUTOMATIC: &str = "automatic";

/// Load a file by each method in turn, and compare the times
///
/// Each load is a new process. The file is not changed: writes go to private copies of the pages.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap bench load model.bin
  evermap bench load model.bin --cold --touched 10 --order random")]
pub(super) struct Load {
    /// File to load
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Part of the file to touch
    #[arg(long, value_name = "PERCENT", default_value = "100", value_parser = clap::value_parser!(u8).range(1..=100))]
    touched: u8,
    /// Part of the file to write, at most the touched part
    #[arg(long, value_name = "PERCENT", default_value = "100", value_parser = clap::value_parser!(u8).range(0..=100))]
    written: u8,
    /// Order of access
    #[arg(long, value_name = "ORDER", default_value = "sequential")]
    order: AccessOrder,
    /// Time that the policy should optimise
    #[arg(long, value_name = "GOAL", default_value = "first-use")]
    latency: Goal,
    /// Drop the file from the page cache before each load; otherwise it is read into the cache
    #[arg(long)]
    cold: bool,
    /// Do not map the file, because other programs may change it
    #[arg(long)]
    changing: bool,
    /// Number of loads with each method
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Measure only these methods
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = method)]
    methods: Vec<Method>,
    /// Print all rounds as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    export: Export,
    /// Load the file once by this method, in this process
    #[arg(long, value_name = "NAME", hide = true)]
    child: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum AccessOrder {
    Sequential,
    Random,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum Goal {
    FirstUse,
    Finish,
}

fn method(name: &str) -> Result<Method, String> {
    Method::from_name(name).ok_or_else(|| {
        let names: Vec<_> = Method::ALL.iter().map(|method| method.name()).collect();
        format!("unknown method; use one of {}", names.join(", "))
    })
}

/// A method, or the policy's choice, with the figures of its loads.
#[derive(Debug, Serialize, Deserialize)]
struct Subject {
    name: String,
    /// Error of a load that failed. The subject is not measured again.
    refused: Option<String>,
    runs: Vec<Run>,
}

/// Output of `--json`.
#[derive(Debug, Serialize)]
struct Report<'t> {
    file: &'t PathBuf,
    bytes: u64,
    cold: bool,
    touched_percent: u8,
    written_percent: u8,
    methods: &'t [Subject],
}

impl Load {
    pub(super) fn run(&self) -> Result<(), Failure> {
        if let Some(name) = &self.child {
            return self.load_once(name);
        }
        self.export.check()?;
        // A file that no method can load is reported here, once.
        let (facts, _) = self.loader(AUTOMATIC).probe()?;
        let mut subjects: Vec<Subject> = self.names().into_iter().map(Subject::new).collect();
        for round in 0..usize::from(self.rounds) {
            for turn in 0..subjects.len() {
                let index = (turn + round) % subjects.len();
                let subject = &mut subjects[index];
                if subject.refused.is_none() {
                    self.prepare()?;
                    self.measure(subject)?;
                }
            }
        }
        self.compare(&subjects)?;
        let times: Vec<Times> = subjects.iter().filter_map(Subject::times).collect();
        let mut output = Output::new();
        match self.json {
            true => output.json(&Report {
                file: &self.file,
                bytes: facts.bytes,
                cold: self.cold,
                touched_percent: self.touched,
                written_percent: self.written.min(self.touched),
                methods: &subjects,
            })?,
            false => {
                self.table(facts.bytes, &subjects, &mut output)?;
                let sentences = comparison::sentences(&times, AUTOMATIC, Figure::Median);
                sentences.iter().try_for_each(|sentence| output.line(sentence))?;
            }
        }
        output.finish()?;
        self.export.write(&times)
    }

    fn names(&self) -> Vec<String> {
        let methods = match self.methods.is_empty() {
            true => &Method::ALL[..],
            false => &self.methods,
        };
        let names = methods.iter().map(|method| method.name().to_string());
        std::iter::once(AUTOMATIC.to_string()).chain(names).collect()
    }

    /// Reads the file into the page cache, or drops it with `--cold`.
    fn prepare(&self) -> Result<(), Failure> {
        let failed = Failure::source(&self.file);
        let mut file = File::open(&self.file).map_err(failed)?;
        if self.cold {
            // Dirty pages stay in the cache, so they are written first. The error is ignored: a
            // read-only file system has no dirty pages.
            let _ = file.sync_all();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
                .map_err(|errno| failed(errno.into()))?;
        } else {
            io::copy(&mut file, &mut io::sink()).map_err(failed)?;
        }
        Ok(())
    }

    /// Measures one load in a new process.
    fn measure(&self, subject: &mut Subject) -> Result<(), Failure> {
        let program = std::env::current_exe()?;
        let mut command = Command::new(&program);
        command.args(["bench", "load", "--child", &subject.name]);
        command.args(["--touched", &self.touched.to_string()]);
        command.args(["--written", &self.written.to_string()]);
        command.args(["--order", name_of(self.order).as_str()]);
        command.args(["--latency", name_of(self.latency).as_str()]);
        if self.changing {
            command.arg("--changing");
        }
        command.arg("--").arg(&self.file).stdin(Stdio::null());
        let child = command.output().map_err(|source| Failure::Measurement {
            what: format!("cannot start {}", program.display()),
            source,
        })?;
        let run = match child.status.success() {
            true => serde_json::from_slice(&child.stdout).map_err(|error| error.to_string()),
            false => {
                let message = String::from_utf8_lossy(&child.stderr);
                let message = message.trim().trim_start_matches("evermap: ");
                let is_silent = message.is_empty();
                Err(if is_silent { child.status.to_string() } else { message.to_string() })
            }
        };
        match run {
            Ok(run) => subject.runs.push(run),
            Err(why) => subject.refused = Some(why),
        }
        Ok(())
    }

    /// The child process: loads the file, touches it, and prints the cost.
    fn load_once(&self, name: &str) -> Result<(), Failure> {
        let work = Work::new(
            std::fs::metadata(&self.file).map_err(Failure::source(&self.file))?.len(),
            (self.touched, self.written),
            self.order == AccessOrder::Random,
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
                AccessOrder::Sequential => Order::Sequential,
                AccessOrder::Random => Order::Random,
            })
            .latency(match self.latency {
                Goal::FirstUse => Latency::FirstUse,
                Goal::Finish => Latency::Finish,
            });
        let loader = match Method::from_name(name) {
            Some(method) => loader.method(method),
            None => loader,
        };
        match self.changing {
            true => loader,
            // SAFETY: without `--changing` the user promises that the file does not change. If it
            // is truncated anyway, only a child process ends, and its method has no figures.
            // Changed bytes are detected by the checksum.
            false => unsafe { loader.may_map() },
        }
    }

    /// Checks that all loads read the same bytes.
    fn compare(&self, subjects: &[Subject]) -> Result<(), Failure> {
        let mut runs = subjects.iter().flat_map(|subject| &subject.runs);
        let first = runs.next().map(|run| run.checksum);
        match runs.all(|run| Some(run.checksum) == first) {
            true => Ok(()),
            false => {
                let (path, change) = (self.file.clone(), Change::Rewritten);
                Err(Error::Changed { path, change }.into())
            }
        }
    }

    fn table(&self, bytes: u64, subjects: &[Subject], output: &mut Output) -> Result<(), Failure> {
        let state = if self.cold { "cold" } else { "cached" };
        output.line(&format!(
            "{}: {}, {state}, {} % touched, {} % written, {}, {}",
            self.file.display(),
            output::bytes(bytes),
            self.touched,
            self.written.min(self.touched),
            name_of(self.order),
            output::counted(u64::from(self.rounds), "round")
        ))?;
        let head = [
            "method",
            "first use",
            "finish",
            "min",
            "processor",
            "faults",
            "private",
            "huge",
            "cached",
            "duplicate",
        ];
        let rows: Vec<[String; 10]> = subjects.iter().map(Subject::row).collect();
        output.table(head, &rows, &[0])?;
        for subject in subjects {
            if let Some(why) = &subject.refused {
                output.line(&format!("{}: {}", subject.name, output::plain(why)))?;
            }
        }
        let policy = subjects.iter().find(|subject| subject.name == AUTOMATIC);
        if let Some(run) = policy.and_then(|subject| subject.runs.last()) {
            let noise = "its row differs from that method's only by measurement noise";
            output.line(&format!("{AUTOMATIC} chose {}; {noise}", run.why))?;
        }
        if let Some(line) = against_best(subjects) {
            output.line(&line)?;
        }
        Ok(())
    }
}

/// Returns the name of an option's value on the command line.
fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}

impl Subject {
    fn new(name: String) -> Subject {
        Subject { name, refused: None, runs: Vec::new() }
    }

    fn median(&self, of: impl Fn(&Run) -> f64) -> Option<f64> {
        comparison::median(self.runs.iter().map(of))
    }

    /// Returns the times of complete loads, if the method could load the file.
    fn times(&self) -> Option<Times> {
        let seconds: Vec<f64> = self.runs.iter().map(|run| run.finish_s).collect();
        Times::of("", &self.name, &seconds).filter(|_| self.refused.is_none())
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
            output::seconds(seconds)
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
            output::seconds(least),
            time(|run| run.usage.user_s + run.usage.system_s),
            output::count(faults.unwrap_or_default() as u64),
            bytes(|run| run.residency.private_bytes),
            bytes(|run| run.residency.huge_bytes),
            bytes(|run| run.residency.cached_bytes),
            bytes(|run| run.residency.duplicate_bytes),
        ]
    }
}

/// Returns a line that compares the policy's choice with the fastest method.
fn against_best(subjects: &[Subject]) -> Option<String> {
    let finish = |subject: &Subject| subject.median(|run| run.finish_s);
    let policy = finish(subjects.iter().find(|subject| subject.name == AUTOMATIC)?)?;
    let others =
        subjects.iter().filter(|subject| subject.name != AUTOMATIC && subject.refused.is_none());
    let (best, seconds) = others
        .filter_map(|subject| Some((subject, finish(subject)?)))
        .min_by(|one, other| one.1.total_cmp(&other.1))?;
    let ratio = policy / seconds;
    Some(format!("{AUTOMATIC} took {ratio:.2} x the time of {}, the fastest method", best.name))
}
