//! `evermap bench`: measures engines and loading methods on this machine.

mod load;
mod work;

use std::path::PathBuf;

use clap::Subcommand;
use evermap_transfer::engines::EngineKind;
use evermap_transfer::{Measure, Measurement};

use super::copy::engine;
use crate::comparison::{self, Export, Figure, Times};
use crate::failure::Failure;
use crate::output::{self, Output};

/// Compare engines and loading methods on this machine
#[derive(Debug, clap::Args)]
pub struct Bench {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    Transfer(Transfer),
    Load(load::Load),
}

/// Copy files with each engine in turn, and compare the times
///
/// Uses unnamed temporary files. Times are from opening to closing, in this process.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap bench transfer /mnt/backup --sizes 64K,16M
  evermap bench transfer --cold --sync --engines splice,uring-direct")]
struct Transfer {
    /// Directory of the source files, and of the copies without --into
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Directory of the copies
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
    /// Sizes of the files, such as 4096, 64K or 1G
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "4K,1M,64M", value_parser = size)]
    sizes: Vec<u64>,
    /// Number of copies of each file with each engine
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Measure only these engines
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = engine)]
    engines: Vec<EngineKind>,
    /// Drop the source from the page cache before each round
    #[arg(long)]
    cold: bool,
    /// Measure until the bytes are on the disk
    #[arg(long)]
    sync: bool,
    /// Print all rounds as one JSON list
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    export: Export,
}

/// Parses the size of a file to measure, in bytes.
fn size(text: &str) -> Result<u64, String> {
    match super::transfer::bytes(text)? {
        bytes @ 1..=0x100_0000_0000 => Ok(bytes),
        _ => Err("the size must be 1 byte to 1024G".to_string()),
    }
}

impl Bench {
    pub fn run(&self) -> Result<(), Failure> {
        match &self.benchmark {
            Benchmark::Transfer(transfer) => transfer.run(),
            Benchmark::Load(load) => load.run(),
        }
    }
}

impl Transfer {
    fn run(&self) -> Result<(), Failure> {
        self.export.check()?;
        let mut measure = Measure::new(&self.directory)
            .sizes(self.sizes.iter().copied())
            .rounds(self.rounds.into())
            .cold(self.cold)
            .synced(self.sync);
        if let Some(into) = &self.into {
            measure = measure.into_directory(into);
        }
        if !self.engines.is_empty() {
            measure = measure.engines(self.engines.iter().copied());
        }
        let cells = measure.run()?;
        let times = cells.iter().filter_map(|cell| {
            let size = output::bytes(cell.size_bytes);
            Times::of(&size, cell.engine.name(), &cell.wall_s)
        });
        let times: Vec<Times> = times.collect();
        let mut output = Output::new();
        match self.json {
            true => output.json(&cells)?,
            false => {
                self.table(&cells, &mut output)?;
                let baseline = EngineKind::ReadWrite.name();
                let sentences = comparison::sentences(&times, baseline, Figure::Median);
                sentences.iter().try_for_each(|sentence| output.line(sentence))?;
            }
        }
        output.finish()?;
        self.export.write(&times)
    }

    fn table(&self, cells: &[Measurement], output: &mut Output) -> Result<(), Failure> {
        for size in &self.sizes {
            let of_size: Vec<&Measurement> =
                cells.iter().filter(|cell| cell.size_bytes == *size).collect();
            let base = of_size
                .iter()
                .find(|cell| cell.engine == EngineKind::ReadWrite)
                .and_then(|cell| cell.median_s());
            let rows: Vec<[String; 8]> = of_size.iter().map(|cell| row(cell, base)).collect();
            let state = match (self.cold, self.sync) {
                (true, true) => "cold, until on the disk",
                (true, false) => "cold",
                (false, true) => "cached, until on the disk",
                (false, false) => "cached",
            };
            let rounds = output::counted(u64::from(self.rounds), "round");
            output.line(&format!("{}, {state}, {rounds}", output::bytes(*size)))?;
            let head = [
                "engine",
                "median",
                "min",
                "bytes/ms",
                "processor",
                "calls",
                "switches",
                "read-write =",
            ];
            output.table(head, &rows, &[0])?;
            if let Some(line) = pipes(&of_size) {
                output.line(&line)?;
            }
            output.line("")?;
        }
        Ok(())
    }
}

fn row(cell: &Measurement, base: Option<f64>) -> [String; 8] {
    let time = |seconds: Option<f64>| seconds.map(output::seconds).unwrap_or_default();
    if cell.refused.is_some() {
        let [a, b, c, d, e, f] = <[String; 6]>::default();
        return [cell.engine.to_string(), "-".into(), a, b, c, d, e, f];
    }
    [
        cell.engine.to_string(),
        time(cell.median_s()),
        time(cell.wall_s.first().copied()),
        cell.bytes_per_ms().map(|rate| output::count(rate as u64)).unwrap_or_default(),
        time(cell.processor_median_s()),
        output::count(cell.calls),
        output::count(cell.switches),
        base.zip(cell.median_s())
            .map(|(base, median)| format!("{:.2} x", base / median))
            .unwrap_or_default(),
    ]
}

/// Returns a line that compares two pipes with one, if both were measured.
fn pipes(cells: &[&Measurement]) -> Option<String> {
    let median = |engine| cells.iter().find(|cell| cell.engine == engine)?.median_s();
    let (one, two) = (median(EngineKind::Splice)?, median(EngineKind::DualPipe)?);
    Some(format!("two pipes = {:.2} x one pipe", one / two))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_the_sentence_agree_for_an_even_number_of_rounds() {
        let cell = |engine, wall_s: [f64; 4]| Measurement {
            engine,
            size_bytes: 1000,
            wall_s: wall_s.to_vec(),
            processor_s: wall_s.to_vec(),
            calls: 1,
            switches: 0,
            refused: None,
        };
        let cells = [
            cell(EngineKind::ReadWrite, [1.0, 4.0, 6.0, 9.0]),
            cell(EngineKind::Splice, [1.0, 2.0, 9.0, 9.0]),
        ];
        let base = cells[0].median_s();
        let rows = cells.each_ref().map(|cell| row(cell, base));
        assert_eq!([&rows[0][1], &rows[1][1], &rows[1][7]], ["4.00 s", "2.00 s", "2.00 x"]);
        let times = cells.each_ref().map(|cell| Times::of("", cell.engine.name(), &cell.wall_s));
        let sentences =
            comparison::sentences(&times.map(Option::unwrap), "read-write", Figure::Median);
        assert_eq!(sentences, ["splice ran 2.00 times faster than read-write"]);
    }
}
