//! What of a lane this process could have here: each capability with yes or no, why, and what to do.
//!
//! What can be tried is tried, since no setting tells all of what forbids it: in threads and children that end at once, and in files
//! without names. Nothing is left changed.

mod cores;
mod kernel;
mod memory;
mod places;
mod rights;
mod scheduling;

use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use serde::Serialize;

use super::Machine;
pub(crate) use scheduling::why_refused;

/// Whether one thing is possible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Statement {
    /// What it is: `fifo`, `exclusive-core`. Names stay.
    pub name: &'static str,
    /// Of which file or directory, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<PathBuf>,
    /// Whether it is possible, or of a fact, whether it is as a lane would have it.
    pub able: bool,
    /// Why, or what was found.
    pub why: String,
    /// What would make it possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Statement {
    fn yes(name: &'static str, why: impl Into<String>) -> Self {
        Self { name, place: None, able: true, why: why.into(), remedy: None }
    }

    fn no(name: &'static str, why: impl Into<String>) -> Self {
        Self { name, place: None, able: false, why: why.into(), remedy: None }
    }

    fn is(name: &'static str, able: bool, why: impl Into<String>) -> Self {
        Self { name, place: None, able, why: why.into(), remedy: None }
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    fn at(mut self, place: &Path) -> Self {
        self.place = Some(place.to_owned());
        self
    }
}

/// What is to be checked beside the machine itself.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// Directories and files that programs in lanes would read.
    pub places: Vec<PathBuf>,
    /// The cores that other lanes have.
    pub taken: Vec<u32>,
    /// Where lanes would write their state; it need not be there yet.
    pub state: Option<PathBuf>,
}

/// Checks everything, in an order for people: the core, its scheduling, memory, I/O, the kernel, then each place.
///
/// Cost: some threads, two children, a ring, and for each place some files of a page without names; tens of milliseconds.
///
/// ```
/// use evermap_lane::machine::{Machine, Subject, check};
/// let machine = Machine::look()?;
/// for statement in check(&machine, &Subject::default()) {
///     println!("{}: {} ({})", statement.name, statement.able, statement.why);
/// }
/// # Ok::<(), evermap_lane::Error>(())
/// ```
pub fn check(machine: &Machine, subject: &Subject) -> Vec<Statement> {
    let mut all = cores::check(machine, &subject.taken);
    all.extend(scheduling::check(machine, &subject.taken));
    all.extend(memory::check(machine));
    all.extend(kernel::check(machine, subject.state.as_deref()));
    all.extend(subject.places.iter().flat_map(|place| places::check(machine, place)));
    all
}

/// Whether a program could be lent a core with `SCHED_FIFO`, by what was checked.
pub fn can_lend_with_fifo(statements: &[Statement]) -> bool {
    ["core", "affinity", "fifo"]
        .iter()
        .all(|name| statements.iter().any(|one| one.name == *name && one.able))
}

/// Tries something in a thread that ends right after, and takes with it what it changed of itself.
fn apart<T: Send>(trial: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("lane-check".into()).spawn_scoped(scope, trial)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that tried it panicked")))
    })
}

/// `kB` as people read them.
fn mib(bytes: u64) -> String {
    match bytes {
        small if small < 1 << 20 => format!("{} KiB", small >> 10),
        bytes => format!("{} MiB", bytes >> 20),
    }
}
