//! `evermap lane trace`: what a program reads and writes, recorded, brought into one form, summed up.

mod destination;
mod import;
mod record;
mod stat;

use std::path::PathBuf;

use clap::Subcommand;
use evermap_lane::trace::{self, Format, Options, TimeUnit};

use crate::failure::Failure;
use crate::output;

/// Record, read and summarise what a program reads and writes
#[derive(Debug, clap::Args)]
pub struct Trace {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Record(record::Record),
    Import(import::Import),
    Stat(stat::Stat),
}

impl Trace {
    pub fn run(&self) -> Result<(), Failure> {
        match &self.what {
            What::Record(record) => record.run(),
            What::Import(import) => import.run(),
            What::Stat(stat) => stat.run(),
        }
    }
}

/// A trace to read, and how.
#[derive(Debug, clap::Args)]
struct Reading {
    /// The trace; - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// What it is: json, strace, perf, blkparse, fio, msr, spc; looked for in its first lines if not said
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// The unit of a fio log's times: ns, us, ms; else what fio itself uses
    #[arg(long, value_name = "UNIT")]
    ts_unit: Option<TimeUnit>,
    /// Count mapping a file as reading all that is mapped (strace)
    #[arg(long)]
    mappings: bool,
    /// Read no more than N requests
    #[arg(long, value_name = "N", default_value_t = Options::default().events_max)]
    max_events: usize,
}

impl Reading {
    fn read(&self) -> Result<trace::Trace, Failure> {
        let options = Options {
            format: self.format,
            time_unit: self.ts_unit,
            mappings_are_reads: self.mappings,
            events_max: self.max_events,
        };
        let trace = trace::Trace::read_with(&self.file, &options)?;
        warn(&trace);
        Ok(trace)
    }
}

/// What was noticed when it was read.
fn warn(trace: &trace::Trace) {
    for warning in &trace.warnings {
        output::warn(&warning.to_string());
    }
}
