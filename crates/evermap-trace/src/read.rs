//! Reading: the parsers of all formats, detection, and the loop that feeds lines to a parser.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::blkparse::{self, Blkparse};
use crate::collect::Collector;
use crate::error::{Error, Result};
use crate::event::Trace;
use crate::fio::{self, Fio};
use crate::format::{Format, TimeUnit};
use crate::json::{self, Json};
use crate::lines::{LINE_BYTES_MAX, Line, Lines};
use crate::msr::{self, Msr};
use crate::parser::Parser;
use crate::perf::{self, Perf};
use crate::spc::{self, Spc};
use crate::strace::{self, Strace};
use crate::warning::{Problem, excerpt};

/// Number of bytes used to detect the format.
const HEAD_BYTES_MAX: u64 = 2 * LINE_BYTES_MAX as u64;
const HEAD_LINES_MAX: u64 = 1_000;

/// Options for reading a trace.
#[derive(Clone, Debug)]
pub struct Options {
    /// Format of the trace, or `None` to detect it from the first lines.
    pub format: Option<Format>,
    /// Unit of time in fio logs of version 3. `None` means microseconds, as fio writes them.
    pub time_unit: Option<TimeUnit>,
    /// Counts mapping a file as reading the mapped range. Otherwise it is
    /// [`Operation::Other`](crate::Operation::Other).
    pub mappings_are_reads: bool,
    /// Maximum number of events to keep; more cause a warning. An event takes about 100 bytes.
    pub events_max: usize,
}

impl Default for Options {
    /// Detects the format, does not count mappings as reads, and keeps up to 10 million events.
    fn default() -> Self {
        Self { format: None, time_unit: None, mappings_are_reads: false, events_max: 10_000_000 }
    }
}

impl Trace {
    /// Reads the file `path`, or standard input for `-`. Without a format, detects it from the
    /// first lines.
    ///
    /// # Errors
    /// The file cannot be read, its format is unknown, or it contains no request.
    pub fn read(path: impl AsRef<Path>, format: Option<Format>) -> Result<Trace> {
        Self::read_with(path, &Options { format, ..Options::default() })
    }

    /// Like [`read`](Self::read), with options.
    ///
    /// # Errors
    /// Same errors as [`read`](Self::read).
    pub fn read_with(path: impl AsRef<Path>, options: &Options) -> Result<Trace> {
        let path = path.as_ref();
        if path == Path::new("-") {
            return Self::read_from(io::stdin().lock(), "standard input", options);
        }
        let name = path.display().to_string();
        let failed = |source| Error::Io { operation: "open", name: name.clone(), source };
        let file = File::open(path).map_err(failed)?;
        // Opening a directory succeeds, but reading it fails with the same kind of error.
        Self::read_from(BufReader::with_capacity(1 << 16, file), &name, options)
    }

    /// Reads a trace from a reader. `name` is used in messages.
    ///
    /// Makes one pass, and sorts the events if they are out of order. Stores the events, the names
    /// of files, and one line.
    ///
    /// # Errors
    /// Same errors as [`read`](Self::read).
    pub fn read_from(reader: impl BufRead, name: &str, options: &Options) -> Result<Trace> {
        read(reader, name, options)
    }
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
fn read(mut reader: impl BufRead, name: &str, options: &Options) -> Result<Trace> {
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
