//! Trace formats: names, detection, and the loop that feeds lines to a parser.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufRead, Read};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::blkparse::{self, Blkparse};
use super::fio::{self, Fio};
use super::json::{self, Json};
use super::lines::{LINE_BYTES_MAX, Line, Lines};
use super::msr::{self, Msr};
use super::perf::{self, Perf};
use super::spc::{self, Spc};
use super::strace::{self, Strace};
use super::warning::{Problem, excerpt};
use super::{Collector, Error, Options, Result, Trace};

/// Number of bytes used to detect the format.
const HEAD_BYTES_MAX: u64 = 2 * LINE_BYTES_MAX as u64;
const HEAD_LINES_MAX: u64 = 1_000;

/// Format of a trace. The name in brackets is used by [`FromStr`] and the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Format {
    /// JSON lines, as written by this crate (`json`).
    Json,
    /// `strace -f -ttt -T -y` (`strace`).
    Strace,
    /// `perf script` of `block:block_rq_issue` and `block:block_rq_complete` (`perf`).
    Perf,
    /// Default format of `blkparse` (`blkparse`).
    Blkparse,
    /// Log of fio's `write_iolog`, version 2 and 3 (`fio`).
    Fio,
    /// MSR Cambridge: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime` (`msr`).
    Msr,
    /// UMass SPC: `ASU,LBA,Size,Opcode,Timestamp` (`spc`).
    Spc,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 7] = [
        Format::Json,
        Format::Strace,
        Format::Perf,
        Format::Blkparse,
        Format::Fio,
        Format::Msr,
        Format::Spc,
    ];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Format::Json => "json",
            Format::Strace => "strace",
            Format::Perf => "perf",
            Format::Blkparse => "blkparse",
            Format::Fio => "fio",
            Format::Msr => "msr",
            Format::Spc => "spc",
        }
    }

    pub(super) fn names() -> String {
        Format::ALL.map(Format::name).join(", ")
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Format::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| format!("`{text}` is not a format; use one of {}", Format::names()))
    }
}

/// Unit of the times in a log without units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeUnit {
    /// Nanoseconds (`ns`).
    Ns,
    /// Microseconds (`us`).
    Us,
    /// Milliseconds (`ms`).
    Ms,
}

impl TimeUnit {
    /// Returns the number of nanoseconds in the unit.
    pub fn ns(self) -> u64 {
        match self {
            TimeUnit::Ns => 1,
            TimeUnit::Us => 1_000,
            TimeUnit::Ms => 1_000_000,
        }
    }
}

impl FromStr for TimeUnit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ns" => Ok(TimeUnit::Ns),
            "us" => Ok(TimeUnit::Us),
            "ms" => Ok(TimeUnit::Ms),
            _ => Err(format!("`{text}` is not a unit of time; use ns, us or ms")),
        }
    }
}

/// Parser of a format, line by line.
pub(super) trait Parser {
    /// Parses a line that is not empty. Returns false if it is not a line of the format.
    fn take(&mut self, line: &str, collector: &mut Collector) -> bool;

    /// Called after the last line: adds events that are still pending.
    fn end(&mut self, _: &mut Collector) {}
}

impl Format {
    fn parser(self, options: &Options) -> Box<dyn Parser> {
        match self {
            Format::Json => Box::new(Json),
            Format::Strace => Box::new(Strace::new(options.mappings_are_reads)),
            Format::Perf => Box::new(Perf::default()),
            Format::Blkparse => Box::new(Blkparse::default()),
            Format::Fio => Box::new(Fio::new(options.time_unit)),
            Format::Msr => Box::new(Msr),
            Format::Spc => Box::new(Spc),
        }
    }

    /// Returns true if `line` may be a line of this format. Used for detection.
    fn is_line(self, line: &str) -> bool {
        match self {
            Format::Json => json::is_line(line),
            Format::Strace => strace::is_line(line),
            Format::Perf => perf::is_line(line),
            Format::Blkparse => blkparse::is_line(line),
            Format::Fio => fio::is_line(line),
            Format::Msr => msr::is_line(line),
            Format::Spc => spc::is_line(line),
        }
    }

    /// Returns how to make a valid trace.
    fn remedy(self) -> &'static str {
        match self {
            Format::Json => "create it with `evermap lane trace import`",
            Format::Strace => "record it with `strace -f -ttt -T -y -o FILE`",
            Format::Perf => {
                "record it with `perf record -a -e block:block_rq_issue,block:block_rq_complete`, then `perf script`"
            }
            Format::Blkparse => "create it with `blkparse -i DEVICE`, in its default format",
            Format::Fio => "record it with `fio --write_iolog=FILE`",
            Format::Msr => {
                "a line has seven fields: Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime"
            }
            Format::Spc => "a line has five fields: ASU,LBA,Size,Opcode,Timestamp",
        }
    }
}

/// Reads a trace with the parser of its format.
pub(super) fn read(mut reader: impl BufRead, name: &str, options: &Options) -> Result<Trace> {
    let failed = |source| Error::Io { operation: "read", name: name.to_string(), source };
    let mut head = Vec::new();
    reader.by_ref().take(HEAD_BYTES_MAX).read_to_end(&mut head).map_err(failed)?;
    let format = match options.format {
        Some(format) => format,
        None => detect(&head, name)?,
    };
    if format == Format::Json {
        check_version(&head, name)?;
    }
    let mut parser = format.parser(options);
    let mut lines = Lines::new(io::Cursor::new(head).chain(reader));
    let mut collector = Collector::new(format, options.events_max);
    while let Some((number, line)) = lines.next().map_err(failed)? {
        collector.at_line(number);
        take(&mut *parser, line, &mut collector);
        if collector.is_full() {
            break;
        }
    }
    parser.end(&mut collector);
    if lines.number() == 0 {
        return Err(Error::Empty { name: name.into() });
    }
    if collector.is_empty() {
        let why = match collector.first_warning() {
            Some(warning) => format!("{warning}; {}", format.remedy()),
            None => format.remedy().to_string(),
        };
        let (name, lines) = (name.to_string(), lines.number());
        return Err(Error::NothingUsable { name, format, lines, why });
    }
    Ok(collector.finish())
}

fn take(parser: &mut dyn Parser, line: Line<'_>, collector: &mut Collector) {
    let (text, is_whole) = match line {
        Line::TooLong(text) => return collector.warn(Problem::LineTooLong, &text),
        Line::Text { text, is_whole } => (text, is_whole),
    };
    if matches!(text, Cow::Owned(_)) {
        collector.warn(Problem::NotText, &text);
    }
    if text.trim().is_empty() || parser.take(&text, collector) {
        return;
    }
    collector.warn(if is_whole { Problem::Malformed } else { Problem::Truncated }, &text);
}

/// Detects the format as the one that matches most of the first lines.
fn detect(head: &[u8], name: &str) -> Result<Format> {
    let mut lines = Lines::new(head);
    let mut counts = [0_u32; Format::ALL.len()];
    let mut first_line = String::new();
    // Reading from memory cannot fail.
    while let Ok(Some((number, line))) = lines.next() {
        let (Line::Text { text, .. } | Line::TooLong(text)) = line;
        if first_line.is_empty() {
            first_line = excerpt(&text);
        }
        if number > HEAD_LINES_MAX {
            break;
        }
        for (count, format) in counts.iter_mut().zip(Format::ALL) {
            *count += u32::from(format.is_line(&text));
        }
    }
    let most = counts.iter().copied().max().unwrap_or(0);
    let found = counts.iter().position(|&count| count == most && most > 0);
    match found {
        Some(index) => Ok(Format::ALL[index]),
        None if head.is_empty() => Err(Error::Empty { name: name.into() }),
        None => Err(Error::UnknownFormat { name: name.into(), first_line }),
    }
}

/// Rejects traces of a later version, in which the same keys could have another meaning.
fn check_version(head: &[u8], name: &str) -> Result<()> {
    let mut lines = Lines::new(head);
    let Ok(Some((_, Line::Text { text, .. }))) = lines.next() else {
        return Ok(());
    };
    match json::version(&text) {
        Some(found) if found > json::VERSION => {
            Err(Error::NewerVersion { name: name.into(), found, known: json::VERSION })
        }
        _ => Ok(()),
    }
}
