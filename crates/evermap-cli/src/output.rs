//! Writes lines, tables, JSON and readable numbers to stdout and stderr.
//!
//! Output is one writer, locked and buffered. Every write can fail: `evermap query .. | head`
//! closes the pipe, and the command must then end without a message. `println!` would panic
//! instead.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::failure::Failure;

/// Large enough that a large result takes few writes, small enough for the heap's free lists.
const BUFFER_BYTES: usize = 64 * 1024;

/// Buffered standard output. Dropping it loses the buffered bytes: call [`finish`](Output::finish).
pub struct Output {
    writer: BufWriter<StdoutLock<'static>>,
}

impl Output {
    pub fn new() -> Output {
        Output { writer: BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock()) }
    }

    /// Writes one value as one line of JSON.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer(&mut self.writer, value).map_err(io::Error::from)?;
        Ok(self.writer.write_all(b"\n")?)
    }

    /// Writes a line and a line feed.
    pub fn line(&mut self, line: &str) -> Result<(), Failure> {
        self.writer.write_all(line.as_bytes())?;
        Ok(self.writer.write_all(b"\n")?)
    }

    /// Returns the writer, for values that write themselves.
    pub fn raw(&mut self) -> &mut dyn Write {
        &mut self.writer
    }

    /// Writes a table. Columns are as wide as their widest cell, and right-aligned except for those
    /// whose numbers are in `left`.
    pub fn table<const N: usize>(
        &mut self,
        head: [&str; N],
        rows: &[[String; N]],
        left: &[usize],
    ) -> Result<(), Failure> {
        let mut widths = head.map(|cell| cell.chars().count());
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let head = head.map(str::to_string);
        for row in std::iter::once(&head).chain(rows) {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                line.push_str(gap);
                let padding = " ".repeat(width - cell.chars().count());
                let (before, after) = match left.contains(&column) {
                    true => ("", padding.as_str()),
                    false => (padding.as_str(), ""),
                };
                line.extend([before, cell, after]);
            }
            self.line(line.trim_end())?;
        }
        Ok(())
    }

    /// Writes the rest of the buffer.
    pub fn finish(mut self) -> Result<(), Failure> {
        Ok(self.writer.flush()?)
    }
}

/// Escapes the control characters of a text, except line feeds. Used for text from files, paths and
/// other processes, so that a terminal does not interpret it.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() && character != '\n' {
            true => plain.extend(character.escape_default()),
            false => plain.push(character),
        }
    }
    plain
}

/// Prints a warning as one line on stderr.
pub fn warn(text: &str) {
    // A closed stderr leaves no way to report anything.
    let _ = writeln!(io::stderr(), "evermap: {}", plain(text));
}

/// Formats a size as `4.10 kB`, in decimal units as file managers and disk vendors use.
pub fn bytes(count: u64) -> String {
    humansize::format_size(count, humansize::DECIMAL)
}

/// Formats a number as `12,345,678`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a number of things as `1 block` or `12,345 blocks`.
pub fn counted(number: u64, singular: &str) -> String {
    if number == 1 {
        return format!("1 {singular}");
    }
    let (stem, ending) = match singular.strip_suffix('y') {
        Some(stem) => (stem, "ies"),
        None if singular.ends_with("sh") => (singular, "es"),
        None => (singular, "s"),
    };
    format!("{} {stem}{ending}", count(number))
}

/// Formats a duration with three digits in µs, ms or s.
pub fn duration(time: Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    let (value, unit) = match us {
        us if us < 1e3 => (us, "µs"),
        us if us < 1e6 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    match value {
        value if value < 10.0 => format!("{value:.2} {unit}"),
        value if value < 100.0 => format!("{value:.1} {unit}"),
        value => format!("{value:.0} {unit}"),
    }
}

/// Returns a duration in milliseconds, rounded to microseconds.
pub fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Formats a time as `2026-01-31T23:59:59Z`. Times before 1970 and after 9999 become the nearest
/// one that it can format.
pub fn utc(time: SystemTime) -> String {
    const END_OF_9999_S: u64 = 253_402_300_799;
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let time = UNIX_EPOCH + Duration::from_secs(seconds.min(END_OF_9999_S));
    humantime::format_rfc3339_seconds(time).to_string()
}

/// Logs the library's trace events to stderr: its steps at 1, its system calls at 2.
pub fn trace_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utc_formats_leap_days_and_year_ends() {
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(at(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(at(1 << 60), "9999-12-31T23:59:59Z");
    }

    #[test]
    fn counts_are_grouped_and_durations_have_three_digits() {
        assert_eq!(count(7), "7");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(
            ["block", "entry", "flush"].map(|one| counted(1, one)),
            ["1 block", "1 entry", "1 flush"]
        );
        assert_eq!(
            ["block", "entry", "flush"].map(|one| counted(0, one)),
            ["0 blocks", "0 entries", "0 flushes"]
        );
        assert_eq!(counted(1_234, "block"), "1,234 blocks");
        assert_eq!(duration(Duration::from_nanos(12_340)), "12.3 µs");
        assert_eq!(duration(Duration::from_micros(1_234)), "1.23 ms");
        assert_eq!(duration(Duration::from_millis(2_500)), "2.50 s");
    }
}
