//! Errors of the workloads. Each names the file or heap, and the remedy if there is one.

use std::io;
use std::path::{Path, PathBuf};

/// Result of fallible functions of this crate.
pub type Outcome<T> = Result<T, Error>;

/// Reason why a program failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// A file exists but has unexpected contents.
    #[error("{}: {problem}", path.display())]
    Data {
        /// Path of the file.
        path: PathBuf,
        /// Problem and remedy.
        problem: String,
    },
    /// A heap could not be opened, read or changed.
    #[error(transparent)]
    Heap(#[from] evermap_guest::Error),
    /// A heap lacks a required item.
    #[error("heap `{heap}` has no `{what}`; {remedy}")]
    NotInHeap {
        /// Name of the heap.
        heap: String,
        /// Missing item.
        what: String,
        /// Command that creates it.
        remedy: &'static str,
    },
    /// The command line names an unknown workload, variant, step or option.
    #[error("{0}")]
    Usage(String),
    /// Standard output could not be written to.
    #[error("standard output: {0}")]
    Output(io::Error),
}

impl From<evermap_guest::HeapError> for Error {
    fn from(error: evermap_guest::HeapError) -> Error {
        Error::Heap(error.into())
    }
}

impl From<lexopt::Error> for Error {
    fn from(error: lexopt::Error) -> Error {
        Error::Usage(error.to_string())
    }
}

/// Adds a path to an I/O error.
pub trait OfFile<T> {
    /// Converts to [`Error::File`].
    fn of(self, path: &Path) -> Outcome<T>;
}

impl<T> OfFile<T> for io::Result<T> {
    fn of(self, path: &Path) -> Outcome<T> {
        self.map_err(|source| Error::File { path: path.to_path_buf(), source })
    }
}

/// Returns an [`Error::Data`].
pub fn damaged(path: &Path, problem: impl Into<String>) -> Error {
    Error::Data { path: path.to_path_buf(), problem: problem.into() }
}
