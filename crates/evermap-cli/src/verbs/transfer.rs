//! Output shared by the verbs that move bytes.

use std::time::Duration;

use evermap_transfer::net::Traffic;
use evermap_transfer::{Durability, Report, Residency, TreeSummary};

use crate::failure::Failure;
use crate::output::{self, Output};

/// Below this size rates reflect calls, not bytes.
const RATED_BYTES_MIN: u64 = 1 << 20;

/// Values of `--durability`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum Level {
    None,
    Data,
    Full,
}

impl Level {
    /// Returns the name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Level::None => "none",
            Level::Data => "data",
            Level::Full => "full",
        }
    }
}

impl From<Level> for Durability {
    fn from(level: Level) -> Durability {
        match level {
            Level::None => Durability::None,
            Level::Data => Durability::Data,
            Level::Full => Durability::Full,
        }
    }
}

/// Parses a number of bytes: `4096`, `64K`, `20G`. Units are powers of 1024.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        Some((at, 'T' | 't')) => (&text[..at], 40),
        _ => (text, 0),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "expected a number of bytes, such as 4096, 64K or 1G".to_string())?;
    number.checked_mul(1 << unit).ok_or_else(|| "the number of bytes is too large".to_string())
}

/// Prints a report as text, one line per topic.
pub fn explain(name: &str, report: &Report, output: &mut Output) -> Result<(), Failure> {
    let usage = &report.usage;
    let rate = match usage.wall_s > 0.0 {
        true => output::bytes((report.data_bytes as f64 / usage.wall_s) as u64),
        false => output::bytes(0),
    };
    output.line(&format!(
        "{name}: {} in {}, {rate}/s",
        output::bytes(report.size_bytes),
        output::seconds(usage.wall_s)
    ))?;
    let mut row = |name: &str, text: String| output.line(&format!("  {name:<9} {text}"));
    if let Some(tree) = &report.tree {
        row("tree", of_a_tree(tree))?;
    }
    for used in &report.engines {
        row("engine", format!("{}: {}", used.engine, output::bytes(used.bytes)))?;
    }
    if !report.why.is_empty() {
        row("because", report.why.clone())?;
    }
    for line in &report.log {
        row("tried", line.clone())?;
    }
    for not in &report.not_used {
        row("not", format!("{}: {}", not.engine, not.why))?;
    }
    let resumed = match report.resumed_bytes {
        0 => String::new(),
        bytes => format!(", {} from an earlier copy", output::bytes(bytes)),
    };
    row(
        "bytes",
        format!(
            "{} data, {} holes{resumed}",
            output::bytes(report.data_bytes),
            output::bytes(report.hole_bytes)
        ),
    )?;
    let each = report
        .processor_ms_per_gib()
        .filter(|_| report.data_bytes >= RATED_BYTES_MIN)
        .map(|ms| format!("; {ms:.0} ms of processor time per GiB"))
        .unwrap_or_default();
    row(
        "time",
        format!(
            "{} user, {} system, {} flushing{each}",
            output::seconds(usage.user_s),
            output::seconds(usage.system_s),
            output::seconds(report.flush_s)
        ),
    )?;
    if let Some(copies) = report.copies_per_byte() {
        row("copies", format!("{copies:.2} per byte, by the processor"))?;
    }
    if report.tree.is_none() {
        row("calls", format!("{} that moved data", output::count(report.calls)))?;
    }
    row(
        "switches",
        format!(
            "{} voluntary, {} not",
            output::count(usage.voluntary_switches),
            output::count(usage.involuntary_switches)
        ),
    )?;
    row(
        "faults",
        format!(
            "{} minor, {} major",
            output::count(usage.minor_faults),
            output::count(usage.major_faults)
        ),
    )?;
    if let Some(line) = cached(report) {
        row("cached", line)?;
    }
    if let (Some(device), Some(share)) = (report.device, report.device_share())
        && report.data_bytes >= RATED_BYTES_MIN
    {
        row(
            "device",
            format!(
                "reads {}/s and writes {}/s by itself: {:.0} % of the slower",
                output::bytes(device.read_bytes_per_s as u64),
                output::bytes(device.write_bytes_per_s as u64),
                share * 100.0
            ),
        )?;
    }
    if report.verified {
        row("verified", "read back from the disk, identical".into())?;
    }
    Ok(())
}

/// Formats the entry counts of a tree.
fn of_a_tree(tree: &TreeSummary) -> String {
    let counts = &tree.counts;
    let named = [
        (counts.files, "file"),
        (counts.directories, "directory"),
        (counts.links, "hard link"),
        (counts.symlinks, "symbolic link"),
        (counts.special, "special file"),
    ];
    let there: Vec<String> = named
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(number, name)| output::counted(*number, name))
        .collect();
    format!("{}; {}", there.join(", "), output::counted(tree.threads as u64, "thread"))
}

/// Formats the cached shares of both files.
fn cached(report: &Report) -> Option<String> {
    let share = |residency: Option<Residency>| {
        residency.map(|residency| match report.size_bytes {
            0 => "0 %".to_string(),
            size => format!(
                "{:.0} %",
                (residency.resident_bytes as f64 / size as f64 * 100.0).min(100.0)
            ),
        })
    };
    let before = share(report.source_resident_before)?;
    let after = share(report.source_resident_after).unwrap_or_default();
    let target = share(report.target_resident_after).unwrap_or_default();
    Some(format!("source {before} before and {after} after, target {target}"))
}

/// Formats the cost of a network transfer: `4.10 MB in 12.3 ms (333 MB/s) by splice`.
pub fn format_traffic(size_bytes: u64, traffic: &Traffic) -> String {
    let wall_s = traffic.usage.wall_s.max(1e-9);
    let rate = output::bytes((traffic.bytes as f64 / wall_s) as u64);
    let holes = match size_bytes.saturating_sub(traffic.bytes) {
        0 => String::new(),
        bytes => format!(", {} of them holes", output::bytes(bytes)),
    };
    let engine = traffic.engine().map(|engine| format!(" by {engine}")).unwrap_or_default();
    let connections = match traffic.connections.len() {
        0 | 1 => String::new(),
        several => format!(" over {several} connections"),
    };
    format!(
        "{}{holes} in {} ({rate}/s){engine}{connections}",
        output::bytes(size_bytes),
        output::duration(Duration::from_secs_f64(wall_s)),
    )
}
