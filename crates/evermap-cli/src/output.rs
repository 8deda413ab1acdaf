//! Writes lines, tables and JSON to stdout, and warnings to stderr. Verbs find the formats of
//! [`text`](crate::text) here, too.
//!
//! Output is one writer, locked and buffered. Every write can fail: `evermap query .. | head`
//! closes the pipe, and the command must then end without a message. `println!` would panic
//! instead.

use std::io::{self, BufWriter, IsTerminal, Stderr, Write};
use std::path::Path;

use rustix::fs::{FileType, Stat, fstat, stat};
use serde::Serialize;

use crate::failure::Failure;

pub use crate::text::{bytes, count, counted, duration, milliseconds, plain, seconds, utc};

/// Large enough that a large result takes few writes, small enough for the heap's free lists.
const BUFFER_BYTES: usize = 64 * 1024;

/// Standard output without a buffer. Unlike Rust's own it reports that it is closed (`EBADF`).
pub struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(rustix::stdio::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Flushes Rust's standard output, and fails if standard output is closed.
pub fn check_open() -> io::Result<()> {
    io::stdout().flush()?;
    // A write of no bytes changes nothing, but the kernel checks the descriptor.
    Stdout.write(&[]).map(drop)
}

/// Buffered standard output. Dropping it loses the buffered bytes: call [`finish`](Output::finish).
pub struct Output {
    writer: BufWriter<Stream>,
}

enum Stream {
    Stdout(Stdout),
    /// Not locked: other threads draw progress bars there and warn.
    Stderr(Stderr),
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Stdout(stream) => stream.write(bytes),
            Stream::Stderr(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Stdout(stream) => stream.flush(),
            Stream::Stderr(stream) => stream.flush(),
        }
    }
}

impl Output {
    pub fn new() -> Output {
        Output::to(Stream::Stdout(Stdout))
    }

    /// Returns the output for the report of a verb that writes its data to `file`: stderr if the
    /// file is standard output, so that the report is not mixed into the data. Call it before the
    /// data is written, because a verb may replace the file.
    pub fn beside(file: Option<&Path>) -> Output {
        match file.is_some_and(is_standard_output) {
            true => Output::to(Stream::Stderr(io::stderr())),
            false => Output::new(),
        }
    }

    fn to(stream: Stream) -> Output {
        Output { writer: BufWriter::with_capacity(BUFFER_BYTES, stream) }
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

/// Returns true if the path leads to the file, pipe or socket that is standard output, as
/// `/dev/stdout` does. Returns false for terminals and other devices: data and report do not mix on
/// `/dev/null`, and on a terminal both streams do.
pub fn is_standard_output(path: &Path) -> bool {
    let identity = |stat: Stat| (stat.st_dev, stat.st_ino);
    let (Ok(file), Ok(stdout)) = (stat(path), fstat(io::stdout())) else { return false };
    let is_device = FileType::from_raw_mode(file.st_mode) == FileType::CharacterDevice;
    !is_device && identity(file) == identity(stdout)
}

/// Prints a warning as one line on stderr.
pub fn warn(text: &str) {
    // A closed stderr leaves no way to report anything.
    let _ = writeln!(io::stderr(), "evermap: {}", plain(text));
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
