//! Why there is no trace: the thing, the cause, the remedy.

use std::io;

use super::Format;

/// As everywhere in this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Nothing was read, imported or recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call failed.
    #[error("cannot {operation} {name}: {source}")]
    Io {
        /// What was tried, as in "cannot ...".
        operation: &'static str,
        /// On what.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// There is no line in it.
    #[error("{name} is empty; a trace has at least one request")]
    Empty {
        /// The trace.
        name: String,
    },
    /// Its first lines are none of the formats.
    #[error(
        "{name} is no trace of a kind that is known here; say which it is: {}. Its first line: {first_line}",
        Format::names()
    )]
    UnknownFormat {
        /// The trace.
        name: String,
        /// What stood there, cut.
        first_line: String,
    },
    /// Not one request in it could be read.
    #[error("{name} has no request that can be read as {format} in {lines} lines: {why}")]
    NothingUsable {
        /// The trace.
        name: String,
        /// What it was read as.
        format: Format,
        /// How many lines were looked at.
        lines: u64,
        /// The first thing that was wrong, or what such a trace needs.
        why: String,
    },
    /// Made by a later version of this crate.
    #[error(
        "{name} is a trace of version {found}; this program reads version {known}: use the one that wrote it, or a later one"
    )]
    NewerVersion {
        /// The trace.
        name: String,
        /// The version that its first line says.
        found: u64,
        /// What is read here.
        known: u64,
    },
    /// What would record is not there.
    #[error("there is no {tool} here; install the package {package}")]
    NoTool {
        /// The program.
        tool: &'static str,
        /// What it comes with.
        package: &'static str,
    },
    /// It is there, and could not do what it is for.
    #[error("{tool} could not record: {why}; {remedy}")]
    Refused {
        /// The program.
        tool: &'static str,
        /// What it said.
        why: String,
        /// What would help.
        remedy: String,
    },
    /// The program that was to be recorded.
    #[error("cannot start {program}: {why}; give the path of an executable file")]
    NotStarted {
        /// Its name.
        program: String,
        /// The kernel's reason.
        why: String,
    },
}
