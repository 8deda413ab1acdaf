//! What can go wrong: which file, what about it, and what to do.

use std::io;
use std::path::{Path, PathBuf};

/// The result of anything here that can fail.
pub type Outcome<T> = Result<T, Error>;

/// Why a program could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is there, but not what was expected.
    #[error("{}: {problem}", path.display())]
    Data {
        /// The file.
        path: PathBuf,
        /// What was found, and what to do.
        problem: String,
    },
    /// A heap could not be opened, read or changed.
    #[error(transparent)]
    Heap(#[from] evermap_guest::Error),
    /// What is needed is not in the heap.
    #[error("heap `{heap}` has no `{what}`; {remedy}")]
    NotInHeap {
        /// The heap's name.
        heap: String,
        /// What is missing.
        what: String,
        /// What makes it.
        remedy: &'static str,
    },
    /// The command line asks for something that there is not.
    #[error("{0}")]
    Usage(String),
    /// Standard output could not be written to.
    #[error("standard output: {0}")]
    Output(io::Error),
}

impl From<evermap::Error> for Error {
    fn from(error: evermap::Error) -> Error {
        Error::Heap(error.into())
    }
}

impl From<lexopt::Error> for Error {
    fn from(error: lexopt::Error) -> Error {
        Error::Usage(error.to_string())
    }
}

/// Adds a file's name to what the system said about it.
pub trait OfFile<T> {
    /// See [`Error::File`].
    fn of(self, path: &Path) -> Outcome<T>;
}

impl<T> OfFile<T> for io::Result<T> {
    fn of(self, path: &Path) -> Outcome<T> {
        self.map_err(|source| Error::File { path: path.to_path_buf(), source })
    }
}

/// An [`Error::Data`].
pub fn damaged(path: &Path, problem: impl Into<String>) -> Error {
    Error::Data { path: path.to_path_buf(), problem: problem.into() }
}
