//! What the shim has told of loads, for people.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::output;

/// A line of the shim's; all of it that is shown.
#[derive(Debug, Deserialize)]
struct Told {
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

/// Writes a table of what was told in a file to stderr: stdout is the command's.
pub fn tell(report: &Path) -> io::Result<()> {
    let text = std::fs::read_to_string(report)?;
    // A process that was killed may have left half a line.
    let told: Vec<Told> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut errors = io::stderr().lock();
    if told.is_empty() {
        return writeln!(
            errors,
            "evermap: nothing was loaded: no file that matches was mapped, or read in pieces of 1 MiB or more"
        );
    }
    let head = ["program", "call", "file", "bytes", "method", "first use", "all", "faults"];
    let mut rows = vec![head.map(str::to_string)];
    rows.extend(told.iter().map(row));
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
        told.iter().filter(|told| told.error.is_none()).map(|told| told.why.as_str()).collect();
    for why in reasons {
        writeln!(errors, "  {}", output::plain(why))?;
    }
    for told in told.iter().filter(|told| told.error.is_some()) {
        let error = told.error.as_deref().unwrap_or_default();
        writeln!(errors, "  left to the program: {}: {}", told.path, output::plain(error))?;
    }
    Ok(())
}

fn row(told: &Told) -> [String; 8] {
    let time = |seconds: Option<f64>| match seconds {
        Some(seconds) => output::duration(Duration::from_secs_f64(seconds.max(0.0))),
        None => "-".into(),
    };
    let call = match told.calls {
        1 => told.call.clone(),
        calls => format!("{} x {}", told.call, output::count(calls)),
    };
    [
        format!("{} [{}]", told.program, told.pid),
        call,
        told.path.clone(),
        output::bytes(told.bytes),
        told.method.clone().unwrap_or("-".into()),
        time(told.first_use_s),
        time(told.complete_s),
        format!("{}", told.minor_faults + told.major_faults),
    ]
}
