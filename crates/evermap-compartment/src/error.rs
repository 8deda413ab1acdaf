//! What can go wrong, with the remedy.

use std::io;
use std::path::PathBuf;

/// A result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a compartment or a wall could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There are no memory protection keys to be had, or none are left.
    #[error(
        "no memory protection key for the objects of {classes}: {why}; give more objects the same \
         rights (they share a key), or go without compartments on this machine"
    )]
    NoKey {
        /// The classes that were to have rights.
        classes: String,
        /// What is missing.
        why: String,
    },
    /// Too many classes.
    #[error("class `{name}` is one too many: a process has up to {max}; let threads share a class")]
    TooManyClasses {
        /// The class that was to be defined.
        name: String,
        /// How many there can be.
        max: usize,
    },
    /// An object could not be put under its key.
    #[error("object `{object}`: {source}")]
    Object {
        /// Its name.
        object: String,
        /// What the library said.
        source: Box<evermap::Error>,
    },
    /// A path that was to be reachable from inside a wall is not there.
    #[error(
        "cannot let {} through the wall: {source}; name what is there, or leave it out",
        path.display()
    )]
    Path {
        /// The path.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel has no Landlock, or not what is needed of it.
    #[error(
        "this kernel keeps no process from files: {why}; boot one with Landlock (Linux 6.2 or later, \
         `landlock` in the boot parameter `lsm=`), or do without by asking for the best effort"
    )]
    NoLandlock {
        /// What is missing.
        why: String,
    },
    /// The process has threads that Landlock would not hold.
    #[error(
        "{threads} threads run already, and this kernel restricts only the one that asks: close the \
         wall before other threads are started"
    )]
    ThreadsRun {
        /// How many there are.
        threads: usize,
    },
    /// The filter of system calls could not be put in force.
    #[error("the filter of system calls was refused: {why}; a kernel with seccomp is needed")]
    NoFilter {
        /// What the kernel or the compiler of the filter said.
        why: String,
    },
    /// A system call that the wall needs failed.
    #[error("{operation}: {source}")]
    Kernel {
        /// What was tried.
        operation: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}
