//! Names of trace formats, and units of their times.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

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

    pub(crate) fn names() -> String {
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
