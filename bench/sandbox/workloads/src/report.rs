//! Output of figures: one line per figure, `name value unit`, for people and for the calling
//! program.
//!
//! A name is `WORKLOAD.VARIANT.STEP.WHAT`. Figures are printed at once, so that a failing program
//! has printed the earlier ones.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{Error, OfFile, Outcome};
use crate::options::Options;

/// Output of figures.
pub struct Report {
    prefix: String,
    output: Box<dyn Write>,
}

impl Report {
    /// Creates an output for figures with this prefix.
    pub fn new(prefix: String, output: impl Write + 'static) -> Report {
        Report { prefix, output: Box::new(output) }
    }

    /// Reports a count or a size.
    pub fn count(&mut self, what: &str, count: u64, unit: &str) -> Outcome<()> {
        self.line(what, &count.to_string(), unit)
    }

    /// Reports a duration.
    pub fn time(&mut self, what: &str, time: Duration) -> Outcome<()> {
        self.line(what, &format!("{:.3}", time.as_secs_f64() * 1e3), "ms")
    }

    /// Reports the time of one of many operations.
    pub fn operation(&mut self, what: &str, ns: f64) -> Outcome<()> {
        self.line(what, &format!("{ns:.1}"), "ns")
    }

    /// Reports the checksum on which all variants of a workload must agree.
    pub fn checksum(&mut self, checksum: u64) -> Outcome<()> {
        self.checksum_of("checksum", checksum)
    }

    /// Like [`checksum`](Report::checksum), for a part.
    pub fn checksum_of(&mut self, what: &str, checksum: u64) -> Outcome<()> {
        self.line(what, &format!("{checksum:016x}"), "xxh3")
    }

    fn line(&mut self, what: &str, value: &str, unit: &str) -> Outcome<()> {
        writeln!(self.output, "{}.{what} {value} {unit}", self.prefix).map_err(Error::Output)
    }
}

/// Syncs a file to the disk if that is requested, and reports the time.
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

/// Measures consecutive parts of a program.
pub struct Watch {
    start: Instant,
    lap: Instant,
}

impl Watch {
    /// Starts the clock.
    pub fn start() -> Watch {
        let start = Instant::now();
        Watch { start, lap: start }
    }

    /// Returns the duration of the part that ends now.
    pub fn lap(&mut self) -> Duration {
        let now = Instant::now();
        let time = now - self.lap;
        self.lap = now;
        time
    }

    /// Returns the duration from the start to the end of the last part.
    pub fn total(&self) -> Duration {
        self.lap - self.start
    }
}
