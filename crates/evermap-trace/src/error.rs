//! Errors of traces. Each names the input, the cause and the remedy.

use std::io;

use crate::format::Format;

/// Result type of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why no trace was read, imported or recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("cannot {operation} {name}: {source}")]
    Io {
        /// The operation, worded to follow "cannot".
        operation: &'static str,
        /// Name of the file or program.
        name: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// The input is empty.
    #[error("{name} is empty; a trace needs at least one request")]
    Empty {
        /// Name of the trace.
        name: String,
    },
    /// The first lines match no format.
    #[error(
        "{name} is not a trace in a known format; give its format if it is one of {}. Its first line: {first_line}",
        Format::names()
    )]
    UnknownFormat {
        /// Name of the trace.
        name: String,
        /// Beginning of the first line.
        first_line: String,
    },
    /// No request could be read.
    #[error("{name} has no valid request of format {format} in {lines} lines: {why}")]
    NothingUsable {
        /// Name of the trace.
        name: String,
        /// Format used.
        format: Format,
        /// Number of lines read.
        lines: u64,
        /// The first problem, or the requirements of the format.
        why: String,
    },
    /// The trace was written by a later version.
    #[error(
        "{name} is a trace of version {found}; this program reads version {known}: use the program that wrote it, or a later one"
    )]
    NewerVersion {
        /// Name of the trace.
        name: String,
        /// Version in its first line.
        found: u64,
        /// Latest version that this crate reads.
        known: u64,
    },
    /// The recording tool is not installed.
    #[error("{tool} is not installed; install the package {package}")]
    NoTool {
        /// Name of the tool.
        tool: &'static str,
        /// Package that contains the tool.
        package: &'static str,
    },
    /// The recording tool failed.
    #[error("{tool} failed to record: {why}; {remedy}")]
    Refused {
        /// Name of the tool.
        tool: &'static str,
        /// Message of the tool.
        why: String,
        /// Remedy.
        remedy: String,
    },
    /// The program to record could not be started.
    #[error("cannot start {program}: {why}; give the path of an executable file")]
    NotStarted {
        /// Name of the program.
        program: String,
        /// Reason given by the kernel.
        why: String,
    },
}
