//! A wall that a program closes around itself.

use std::path::Path;

use seccompiler::SeccompAction;

use super::files::{self, Enforcement, Files};
use super::{allowed, filter};
use crate::error::{Error, Result};

/// Wall that a program closes around itself after opening and mapping what it needs. Afterwards it
/// can compute, access mapped memory, read and write open files, wait, end, and do what the methods
/// here add. Everything else fails with `EPERM` or `EACCES`.
///
/// A closed wall cannot be opened again or relaxed, neither by the program nor by an attacker who
/// takes it over.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is closed before `close`"]
pub struct Wall {
    files: Files,
    writes: bool,
    memory: bool,
    threads: bool,
    commits: bool,
    best_effort: bool,
}

impl Wall {
    /// Creates a wall with no exceptions.
    pub fn new() -> Wall {
        Wall::default()
    }

    /// Allows reading files at or below a path. Querying existence and size then works for all
    /// files, because Landlock does not restrict it.
    pub fn allow_read(mut self, path: impl AsRef<Path>) -> Wall {
        self.files.read(path.as_ref());
        self
    }

    /// Also allows writing, creating, renaming and removing files at or below a path.
    pub fn allow_write(mut self, path: impl AsRef<Path>) -> Wall {
        self.files.write(path.as_ref());
        self.writes = true;
        self
    }

    /// Allows anonymous memory mappings, never executable, for allocators. Without this, glibc's
    /// allocator uses only the heap behind the program (`brk`), in the main thread and in threads
    /// that have already allocated. In a thread that never has, every allocation fails, which ends
    /// a Rust program. Other allocators may fail anywhere.
    pub fn allow_anonymous_memory(mut self) -> Wall {
        self.memory = true;
        self
    }

    /// Allows starting threads, and anonymous memory for their stacks. Never allows processes.
    pub fn allow_threads(mut self) -> Wall {
        self.threads = true;
        self.memory = true;
        self
    }

    /// Allows open sessions to commit, roll back, checkpoint, and grow within their regions (see
    /// [`reserve`](evermap::RawSession::reserve)). A session must have committed twice before: its
    /// first commits create the log and the watch over changed pages. A *new* region must be
    /// recorded in the catalog, which can no longer be opened. Such a commit fails with
    /// `NotPermitted` and can be rolled back.
    ///
    /// Also allows mapping open descriptors and anonymous memory.
    pub fn allow_commits(mut self) -> Wall {
        self.commits = true;
        self
    }

    /// Like [`allow_commits`](Wall::allow_commits), including new regions. The store's directory
    /// stays open for reading and writing, so an attacker who takes over the program can reach
    /// every object of the store.
    pub fn allow_commits_in(self, store: impl AsRef<Path>) -> Wall {
        self.allow_commits().allow_write(store).allow_read("/proc/self")
    }

    /// Proceeds without Landlock if the kernel has none, with the system call filter alone. The
    /// filter opens nothing, but if paths were allowed it opens any file.
    pub fn best_effort(mut self) -> Wall {
        self.best_effort = true;
        self
    }

    /// Closes the wall for all threads of the process and returns how file access is enforced.
    /// Landlock can restrict running threads from ABI 8 on. Before, only the filter restricts them,
    /// which is sufficient if no paths are allowed.
    ///
    /// # Errors
    /// `Path` for a path that does not exist, `NoLandlock`, `NoFilter`, or `ThreadsRun` if other
    /// threads run, paths are allowed, and the kernel cannot restrict those threads. No restriction
    /// is in force after an error, except Landlock's after `NoFilter`.
    pub fn close(self) -> Result<Enforcement> {
        let rules = self.files.rules(self.best_effort)?;
        let mut calls = allowed::computing();
        if self.memory {
            allowed::anonymous_memory(&mut calls);
        }
        if self.threads {
            allowed::threads(&mut calls);
        }
        if self.commits {
            allowed::commits(&mut calls);
        }
        if !self.files.is_empty() {
            allowed::reading(&mut calls);
        }
        if self.writes {
            allowed::writing(&mut calls);
        }
        let program = calls.compile(SeccompAction::Allow, filter::refusal())?;
        let without_clone3 = filter::without_clone3()?;
        let paths_are_open = !self.files.is_empty() && !self.best_effort;
        let held = files::restrict(rules, threads_here()?, paths_are_open)?;
        filter::install_everywhere(&without_clone3)?;
        filter::install_everywhere(&program)?;
        Ok(held)
    }
}

/// Counts the threads of this process.
fn threads_here() -> Result<usize> {
    let failed =
        |source| Error::Kernel { operation: "counting threads in /proc/self/task", source };
    Ok(std::fs::read_dir("/proc/self/task").map_err(failed)?.count())
}
