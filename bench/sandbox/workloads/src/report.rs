//! What a program says: one line a figure, `name value unit`, for people and for the program that
//! started it.
//!
//! A name is `WORKLOAD.VARIANT.STEP.WHAT`. Figures come as they are known, so that a program that
//! fails has said what came before.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{Error, OfFile, Outcome};
use crate::options::Options;

/// Where figures go.
pub struct Report {
    prefix: String,
    output: Box<dyn Write>,
}

impl Report {
    /// For figures whose names begin like this.
    pub fn new(prefix: String, output: impl Write + 'static) -> Report {
        Report { prefix, output: Box::new(output) }
    }

    /// A count or a size.
    pub fn count(&mut self, what: &str, count: u64, unit: &str) -> Outcome<()> {
        self.line(what, &count.to_string(), unit)
    }

    /// How long something took.
    pub fn time(&mut self, what: &str, time: Duration) -> Outcome<()> {
        self.line(what, &format!("{:.3}", time.as_secs_f64() * 1e3), "ms")
    }

    /// How long one of many operations took.
    pub fn operation(&mut self, what: &str, ns: f64) -> Outcome<()> {
        self.line(what, &format!("{ns:.1}"), "ns")
    }

    /// What the variants of a workload have to agree on.
    pub fn checksum(&mut self, checksum: u64) -> Outcome<()> {
        self.checksum_of("checksum", checksum)
    }

    /// As [`checksum`](Report::checksum), for a part.
    pub fn checksum_of(&mut self, what: &str, checksum: u64) -> Outcome<()> {
        self.line(what, &format!("{checksum:016x}"), "xxh3")
    }

    fn line(&mut self, what: &str, value: &str, unit: &str) -> Outcome<()> {
        writeln!(self.output, "{}.{what} {value} {unit}", self.prefix).map_err(Error::Output)
    }
}

/// Flushes a file to the disk, if that is wanted, and reports how long it took.
pub fn make_durable(
    options: &Options,
    file: &File,
    path: &Path,
    watch: &mut Watch,
    report: &mut Report,
) -> Outcome<()> {
    if !options.durable {
        return Ok(());
    }
    file.sync_all().of(path)?;
    report.time("durable", watch.lap())
}

/// Measures the parts of a program one after the other.
pub struct Watch {
    start: Instant,
    lap: Instant,
}

impl Watch {
    /// Starts to measure.
    pub fn start() -> Watch {
        let start = Instant::now();
        Watch { start, lap: start }
    }

    /// How long the part took that ends now.
    pub fn lap(&mut self) -> Duration {
        let now = Instant::now();
        let time = now - self.lap;
        self.lap = now;
        time
    }

    /// How long it took from the start to the end of the last part.
    pub fn total(&self) -> Duration {
        self.lap - self.start
    }
}
