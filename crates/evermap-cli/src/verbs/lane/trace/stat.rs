//! `evermap lane trace stat`.

use evermap_trace::{FileStatistics, PAGE_BYTES, Period, Quantiles, Statistics, Transfers};

use super::Reading;
use crate::failure::Failure;
use crate::output::{self, Output};

/// Number of files in the text output; `--json` has all.
const FILES_SHOWN: usize = 20;

/// Summarise a trace: requests, bytes, latencies, pages, frames, files
///
/// Sizes and latencies are exact quantiles. A read is sequential if it begins where the previous
/// read of the file ended. Pages have 4 KiB; the share of references to pages that were touched
/// before is the limit of a cache's hits.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap lane trace stat clip.jsonl --fps 24")]
pub struct Stat {
    #[command(flatten)]
    reading: Reading,
    /// Divide the time into frames, at RATE frames a second (24, 23.976 or 24000/1001)
    #[arg(long, value_name = "RATE")]
    fps: Option<Period>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Stat {
    pub fn run(&self) -> Result<(), Failure> {
        let trace = self.reading.read()?;
        let statistics = evermap_trace::stat(&trace, self.fps);
        let mut output = Output::new();
        match self.json {
            true => output.json(&statistics)?,
            false => print(&statistics, &mut output)?,
        }
        output.finish()
    }
}

fn print(statistics: &Statistics, output: &mut Output) -> Result<(), Failure> {
    output.line(&format!(
        "{} of {} in {:.3} s; {}, {}, {}, {}, {}",
        output::counted(statistics.events, "request"),
        statistics.format,
        statistics.duration_s,
        output::counted(statistics.reads.count, "read"),
        output::counted(statistics.writes.count, "write"),
        output::counted(statistics.flushes.count, "flush"),
        output::counted(statistics.discards, "discard"),
        output::counted(statistics.others, "other"),
    ))?;
    output.line("")?;
    print_requests(statistics, output)?;
    let pages = &statistics.pages;
    output.line("")?;
    output.line(&format!(
        "pages of 4 KiB: {} referenced, {} different ({}), {:.1} % repeated",
        output::count(pages.references),
        output::count(pages.distinct),
        output::bytes(pages.distinct.saturating_mul(PAGE_BYTES)),
        pages.again_share * 100.0,
    ))?;
    print_frames(statistics, output)?;
    print_files(statistics, output)
}

fn print_requests(statistics: &Statistics, output: &mut Output) -> Result<(), Failure> {
    let head = [
        "",
        "bytes",
        "size p50",
        "size max",
        "sequential",
        "ms p50",
        "ms p99",
        "ms p99.9",
        "ms max",
    ];
    let row = |name: &str, of: &Transfers| {
        let [p50, p99, p999, max] = latencies(&of.latency_ms);
        [
            name.to_string(),
            output::bytes(of.bytes),
            output::bytes(of.size_bytes.p50 as u64),
            output::bytes(of.size_bytes.max as u64),
            format!("{:.1} %", of.sequential_share * 100.0),
            p50,
            p99,
            p999,
            max,
        ]
    };
    let mut rows = Vec::new();
    for (name, of) in [("reads", &statistics.reads), ("writes", &statistics.writes)] {
        if of.count > 0 {
            rows.push(row(name, of));
        }
    }
    if statistics.flushes.count > 0 {
        let [p50, p99, p999, max] = latencies(&statistics.flushes.latency_ms);
        let none = String::new;
        rows.push(["flushes".into(), none(), none(), none(), none(), p50, p99, p999, max]);
    }
    output.table(head, &rows, &[0])
}

/// Formats latencies, with dashes if nothing was measured.
fn latencies(of: &Quantiles) -> [String; 4] {
    [of.p50, of.p99, of.p999, of.max].map(|ms| match of.count {
        0 => "-".to_string(),
        _ => format!("{ms:.3}"),
    })
}

fn print_frames(statistics: &Statistics, output: &mut Output) -> Result<(), Failure> {
    let Some(frames) = &statistics.frames else { return Ok(()) };
    let length = match frames.period_ms {
        Some(ms) => format!(" of {ms:.3} ms"),
        None => String::new(),
    };
    output.line("")?;
    output.line(&format!(
        "frames: {}{length}, {} with reads; in each of these:",
        output::count(frames.count),
        output::count(frames.reading)
    ))?;
    let row = |name: &str, of: &Quantiles, shown: fn(f64) -> String| {
        [name.to_string(), shown(of.mean), shown(of.p50), shown(of.p99), shown(of.max)]
    };
    let rows = [
        row("reads", &frames.reads, |count| format!("{count:.1}")),
        row("bytes", &frames.read_bytes, |bytes| output::bytes(bytes as u64)),
        row("pages", &frames.read_pages, |count| format!("{count:.1}")),
        row("ms in reads", &frames.read_ms, |ms| format!("{ms:.3}")),
    ];
    output.table(["", "mean", "p50", "p99", "max"], &rows, &[0])
}

fn print_files(statistics: &Statistics, output: &mut Output) -> Result<(), Failure> {
    if statistics.files.is_empty() {
        return Ok(());
    }
    let row = |file: &FileStatistics| {
        [
            output::count(file.reads),
            output::bytes(file.read_bytes),
            output::count(file.writes),
            output::bytes(file.write_bytes),
            output::count(file.distinct_pages),
            output::plain(file.file.as_deref().unwrap_or("(unknown)")).replace('\n', "\\n"),
        ]
    };
    let rows: Vec<_> = statistics.files.iter().take(FILES_SHOWN).map(row).collect();
    output.line("")?;
    // The name is the last column, since it may be long.
    output.table(["reads", "read", "writes", "written", "pages", "file"], &rows, &[5])?;
    match statistics.files.len().checked_sub(FILES_SHOWN) {
        Some(more @ 1..) => output.line(&format!("and {} more", output::count(more as u64))),
        _ => Ok(()),
    }
}
