//! A program's own wall, closed behind it.

use std::path::Path;

use seccompiler::SeccompAction;

use super::files::{self, Files, Held};
use super::{allowed, filter};
use crate::error::{Error, Result};

/// A wall that a program closes around itself once it has opened and mapped what it needs. What it may do
/// then: compute, load from and store into what is mapped, read and write what is open, wait, end;
/// and what the methods here add. Everything else fails with `EPERM` or `EACCES`.
///
/// Nothing of it can be taken back, and there is no way to open more later: not by this program, and
/// not by whoever takes it over.
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
    /// A wall without a gap.
    pub fn new() -> Wall {
        Wall::default()
    }

    /// Lets files at or below a path be opened for reading, and asked about. (Asking whether a file is
    /// there and how large it is works for all files then: Landlock does not restrict that.)
    pub fn allow_read(mut self, path: impl AsRef<Path>) -> Wall {
        self.files.read(path.as_ref());
        self
    }

    /// Lets files at or below a path be opened for writing as well, made, renamed and removed.
    pub fn allow_write(mut self, path: impl AsRef<Path>) -> Wall {
        self.files.write(path.as_ref());
        self.writes = true;
        self
    }

    /// Lets the program map memory without a file, never executable: for allocators. Without it glibc's
    /// takes everything from the heap behind the program (`brk`), in the main thread and in threads that
    /// allocated something before; a thread that never did is refused even a byte, which ends a
    /// Rust program. Other allocators may fail anywhere.
    pub fn allow_anonymous_memory(mut self) -> Wall {
        self.memory = true;
        self
    }

    /// Lets the program start threads (and so memory, for their stacks); never processes.
    pub fn allow_threads(mut self) -> Wall {
        self.threads = true;
        self.memory = true;
        self
    }

    /// Lets open sessions commit, roll back and checkpoint, and grow within their regions (see
    /// [`reserve`](evermap::RawSession::reserve)). A session has to have committed twice before: the first commits
    /// make its log and its watch over changed pages. A *new* region has to be recorded in the
    /// catalog, which nobody can open any more: such a commit fails with `NotPermitted`, and can be
    /// rolled back.
    ///
    /// Open descriptors may be mapped then, and memory without a file.
    pub fn allow_commits(mut self) -> Wall {
        self.commits = true;
        self
    }

    /// The same for all that a session of a store may do, new regions included: the store's folder
    /// stays open for reading and writing. So every object of the store does, for whoever takes the program
    /// over.
    pub fn allow_commits_in(self, store: impl AsRef<Path>) -> Wall {
        self.allow_commits().allow_write(store).allow_read("/proc/self")
    }

    /// Goes on where the kernel has no Landlock, with the filter of system calls alone. That one lets
    /// nothing be opened, unless paths were allowed: then it lets everything be opened.
    pub fn best_effort(mut self) -> Wall {
        self.best_effort = true;
        self
    }

    /// Closes it, for all threads of the process. Says how the process is kept from files: threads
    /// that run already can be held by Landlock from ABI 8 on; before, they are held by the filter
    /// alone, which is enough as long as no paths are allowed.
    ///
    /// # Errors
    /// `Path` for a path that is not there, `NoLandlock`, `NoFilter`; `ThreadsRun` when there are other
    /// threads, paths are allowed, and the kernel cannot hold them. Nothing is closed then, or, after
    /// `NoFilter`, Landlock alone.
    pub fn close(self) -> Result<Held> {
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

/// Threads of this process.
fn threads_here() -> Result<usize> {
    let failed =
        |source| Error::Kernel { operation: "counting threads in /proc/self/task", source };
    Ok(std::fs::read_dir("/proc/self/task").map_err(failed)?.count())
}
