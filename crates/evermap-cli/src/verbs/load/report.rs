//! Formats the shim's reports for people.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

use serde::Deserialize;

use crate::output;

/// Line of the shim's report, with the fields that are shown.
#[derive(Debug, Deserialize)]
struct ReportLine {
    pid: u32,
    program: String,
    call: String,
    path: String,
    bytes: u64,
    calls: u64,
    method: Option<String>,
    why: String,
    first_use_s: Option<f64>,
    complete_s: Option<f64>,
    minor_faults: u64,
    major_faults: u64,
    error: Option<String>,
}

/// Prints a table of the reports in a file to stderr, because stdout belongs to the command.
pub fn print(report: &Path) -> io::Result<()> {
    let text = std::fs::read_to_string(report)?;
    // A killed process may leave an incomplete line.
    let lines: Vec<ReportLine> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut errors = io::stderr().lock();
    if lines.is_empty() {
        return writeln!(
            errors,
            "evermap: no file was loaded: no matching file was mapped, or read in calls of at least 1 MiB"
        );
    }
    let head = ["program", "call", "file", "bytes", "method", "first use", "all", "faults"];
    let mut rows = vec![head.map(str::to_string)];
    rows.extend(lines.iter().map(row));
    let mut widths = [0; 8];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(errors, "{}", output::plain(line.trim_end()))?;
    }
    let reasons: BTreeSet<&str> =
        lines.iter().filter(|line| line.error.is_none()).map(|line| line.why.as_str()).collect();
    for why in reasons {
        writeln!(errors, "  {}", output::plain(why))?;
    }
    for line in lines.iter().filter(|line| line.error.is_some()) {
        let error = line.error.as_deref().unwrap_or_default();
        writeln!(errors, "  not loaded: {}: {}", line.path, output::plain(error))?;
    }
    Ok(())
}

fn row(line: &ReportLine) -> [String; 8] {
    let time = |seconds: Option<f64>| match seconds {
        Some(seconds) => output::seconds(seconds),
        None => "-".into(),
    };
    let call = match line.calls {
        1 => line.call.clone(),
        calls => format!("{} x {}", line.call, output::count(calls)),
    };
    [
        format!("{} [{}]", line.program, line.pid),
        call,
        line.path.clone(),
        output::bytes(line.bytes),
        line.method.clone().unwrap_or("-".into()),
        time(line.first_use_s),
        time(line.complete_s),
        format!("{}", line.minor_faults + line.major_faults),
    ]
}
