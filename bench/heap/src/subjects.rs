//! Subjects with their names, and the child process that performs one measurement of a subject.

use std::path::{Path, PathBuf};
use std::time::Instant;

use evermap::Store;

use crate::allocators::{Evermap, Glibc, Mimalloc};
use crate::bump::Bump;
use crate::foreign::Programs;
use crate::tree::Allocator;
use harness::Outcome;
use harness::children;
use harness::files::text;
use harness::running::Ended;

/// Evermap, its peers, and the limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    Evermap,
    /// Evermap with an object that was committed before, so that its memory is private copies of
    /// the file's pages.
    EvermapCommitted,
    Glibc,
    Mimalloc,
    BumpFile,
    BumpAnonymous,
    Boost,
    Pmdk,
    /// PMDK with `msync`, which durability on a disk requires.
    PmdkFlushed,
    Lmdb,
    Redb,
    Rkyv,
    RkyvChecked,
    /// Prepared bytes, written and flushed.
    Write,
}

/// All subjects, with their name in a child's arguments and in reports.
const NAMES: [(Subject, &str, &str); 14] = [
    (Subject::Evermap, "evermap", "**Evermap**"),
    (Subject::EvermapCommitted, "evermap-committed", "Evermap, in an object committed before"),
    (Subject::Glibc, "glibc", "glibc `malloc`"),
    (Subject::Mimalloc, "mimalloc", "mimalloc"),
    (Subject::BumpFile, "bump", "limit: bump pointer, the same mapping"),
    (Subject::BumpAnonymous, "bump-anonymous", "limit: bump pointer, anonymous memory"),
    (Subject::Boost, "boost", "Boost `managed_mapped_file`"),
    (Subject::Pmdk, "pmdk", "PMDK, `PMEM_IS_PMEM_FORCE=1`: not durable on a disk"),
    (Subject::PmdkFlushed, "pmdk-flushed", "PMDK, with `msync`"),
    (Subject::Lmdb, "lmdb", "LMDB, one transaction"),
    (Subject::Redb, "redb", "redb, one transaction"),
    (Subject::Rkyv, "rkyv", "rkyv: boxes, then an archive"),
    (Subject::RkyvChecked, "rkyv-checked", "rkyv, the archive validated"),
    (Subject::Write, "write", "floor: write and fsync of prepared bytes"),
];

impl Subject {
    pub fn parse(word: &str) -> Outcome<Subject> {
        let found = NAMES.iter().find(|(_, name, _)| *name == word);
        Ok(found.ok_or_else(|| format!("unknown subject: {word}"))?.0)
    }

    /// Returns the name in a child's arguments, and the name in reports.
    fn names(self) -> (&'static str, &'static str) {
        let found = NAMES.iter().find(|(subject, ..)| *subject == self);
        found.map_or(("", ""), |(_, word, name)| (word, name))
    }

    pub fn name(self) -> &'static str {
        self.names().1
    }

    /// Runs `verb` for this subject in a new process: this program, or the peer's compiled program.
    /// Returns `None` if that program is not available.
    pub fn run(
        self,
        programs: &Programs,
        verb: &str,
        folder: &Path,
        numbers: &[u64],
    ) -> Outcome<Option<Ended>> {
        let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
        let mut arguments = vec![verb, self.names().0, text(folder)?];
        arguments.extend(numbers.iter().map(String::as_str));
        let program = match self {
            Subject::Boost => &programs.boost,
            Subject::Pmdk | Subject::PmdkFlushed => &programs.pmdk,
            _ => return Ok(Some(children::run(&arguments)?)),
        };
        let Some(program) = program else { return Ok(None) };
        if self != Subject::Pmdk {
            return Ok(Some(children::run_program(program, &arguments)?));
        }
        // `env` sets a variable for the program.
        arguments.splice(0..0, ["PMEM_IS_PMEM_FORCE=1", text(program)?]);
        Ok(Some(children::run_program(Path::new("/usr/bin/env"), &arguments)?))
    }
}

/// Work for an allocator of any type.
pub trait Job {
    fn run<A: Allocator>(self, allocator: &A) -> Outcome;
}

/// Runs the job with the subject's allocator, in a child.
pub fn with_allocator(subject: Subject, folder: &Path, job: impl Job) -> Outcome {
    match subject {
        Subject::Glibc => job.run(&Glibc),
        Subject::Mimalloc => job.run(&Mimalloc),
        Subject::BumpFile => job.run(&Bump::in_file(&bump_file(folder))?),
        Subject::BumpAnonymous => job.run(&Bump::anonymous()?),
        Subject::Evermap => {
            let store = Store::create_new(folder.join(STORE))?;
            store.create_raw(OBJECT)?;
            let session = store.write_raw(OBJECT)?;
            job.run(&Evermap(session.heap()))?;
            Ok(session.close()?)
        }
        _ => Err(format!("{} is not an allocator of this process", subject.name()).into()),
    }
}

pub const STORE: &str = "store";
pub const OBJECT: &str = "tree";

pub fn bump_file(folder: &Path) -> PathBuf {
    folder.join("bump")
}

/// Returns the result of `work` and its time in microseconds.
pub fn clock<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = work();
    (result, children::us_since(start))
}
