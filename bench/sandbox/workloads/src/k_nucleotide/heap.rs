//! k-nucleotide in a heap: reads the record in place.

use evermap_guest::Snapshot;

use super::Counters;
use crate::error::{Error, Outcome};
use crate::fasta;
use crate::named;
use crate::options::Options;
use crate::report::{Report, Watch};

const REMEDY: &str = "write it with `fasta heap run`";

/// Counts the sequences.
pub fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let mut watch = Watch::start();
    let snapshot = Snapshot::open(fasta::NAME)?;
    let text = named::in_snapshot(&snapshot, fasta::NAME, REMEDY)?;
    let mut counters = Counters::new(&options.k);
    counters.feed(record(text).ok_or_else(|| Error::NotInHeap {
        heap: fasta::NAME.to_string(),
        what: "record THREE".to_string(),
        remedy: REMEDY,
    })?);
    report.time("time", watch.lap())?;
    counters.write_to(report)
}

/// Returns the sequence of the last record.
fn record(text: &[u8]) -> Option<&[u8]> {
    let headers = memchr::memchr_iter(b'>', text);
    headers.filter_map(|start| text[start..].strip_prefix(fasta::HEADERS[2])).next()
}
