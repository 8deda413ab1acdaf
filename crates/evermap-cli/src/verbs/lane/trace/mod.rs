//! `evermap lane trace`: records, imports and summarises a program's reads and writes.

mod destination;
mod import;
mod record;
mod stat;

use std::path::PathBuf;

use clap::Subcommand;
use evermap_trace::{Format, Options, TimeUnit};

use crate::failure::Failure;
use crate::output;

/// Record, import and summarise reads and writes of a program
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

/// Input trace and its options.
#[derive(Debug, clap::Args)]
struct Reading {
    /// Trace file (- for standard input)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Format: json, strace, perf, blkparse, fio, msr, spc [default: detected in the first lines]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Unit of times in a fio log: ns, us, ms [default: fio's own]
    #[arg(long, value_name = "UNIT")]
    ts_unit: Option<TimeUnit>,
    /// Count mapping a file as reading all mapped bytes (strace)
    #[arg(long)]
    mappings: bool,
    /// Read at most N requests
    #[arg(long, value_name = "N", default_value_t = Options::default().events_max)]
    max_events: usize,
}

impl Reading {
    fn read(&self) -> Result<evermap_trace::Trace, Failure> {
        let options = Options {
            format: self.format,
            time_unit: self.ts_unit,
            mappings_are_reads: self.mappings,
            events_max: self.max_events,
        };
        let trace = evermap_trace::Trace::read_with(&self.file, &options)?;
        warn(&trace);
        Ok(trace)
    }
}

/// Prints the warnings of a trace.
fn warn(trace: &evermap_trace::Trace) {
    for warning in &trace.warnings {
        output::warn(&warning.to_string());
    }
}
