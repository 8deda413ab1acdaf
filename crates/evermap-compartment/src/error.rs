//! Errors of compartments and walls, with remedies.

use std::io;
use std::path::PathBuf;

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Reason why a compartment or a wall could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No memory protection keys are available or left.
    #[error(
        "no memory protection key for the objects of {classes}: {why}; give more objects the same \
         rights (they share a key), or go without compartments on this machine"
    )]
    NoKey {
        /// Classes that should have received rights.
        classes: String,
        /// Missing feature or resource.
        why: String,
    },
    /// The process has defined the maximum number of classes.
    #[error(
        "cannot define class `{name}`: a process can have {max} classes; let threads share a class"
    )]
    TooManyClasses {
        /// Class to be defined.
        name: String,
        /// Maximum number of classes.
        max: usize,
    },
    /// The object's memory could not be put under its key.
    #[error("object `{object}`: {source}")]
    Object {
        /// Object name.
        object: String,
        /// Error of the `evermap` library.
        source: Box<evermap::Error>,
    },
    /// A path to allow through the wall does not exist or cannot be opened.
    #[error(
        "cannot allow {} through the wall: {source}; name an existing path, or leave it out",
        path.display()
    )]
    Path {
        /// The path.
        path: PathBuf,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The kernel lacks Landlock, or a feature of it that the wall needs.
    #[error(
        "cannot restrict file access: {why}; boot a kernel with Landlock (Linux 6.2 or later, \
         `landlock` in the boot parameter `lsm=`), or use the best-effort option"
    )]
    NoLandlock {
        /// Missing feature.
        why: String,
    },
    /// The process already runs other threads, which Landlock cannot restrict.
    #[error(
        "{threads} threads are running, and this kernel restricts only the calling thread; close the \
         wall before starting other threads"
    )]
    ThreadsRun {
        /// Number of running threads.
        threads: usize,
    },
    /// The system call filter could not be installed.
    #[error("cannot install the system call filter: {why}; use a kernel with seccomp")]
    NoFilter {
        /// Error of the kernel or of the filter compiler.
        why: String,
    },
    /// A system call that the wall needs failed.
    #[error("{operation}: {source}")]
    Kernel {
        /// Operation that failed.
        operation: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
}
