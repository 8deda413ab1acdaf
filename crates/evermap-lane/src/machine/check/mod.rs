//! Checks which parts of a lane this process can use here: each with yes or no, the cause, and a
//! remedy.
//!
//! Checks try the operations, since no setting describes everything that may forbid them: in
//! threads and children that end at once, and with unnamed files. They leave nothing changed.

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

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CheckResult {
    /// Name of the check: `fifo`, `exclusive-core`. Names are stable.
    pub name: &'static str,
    /// File or directory that the check is about, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<PathBuf>,
    /// The operation is possible, or the fact is as a lane needs it.
    pub able: bool,
    /// Cause, or the finding.
    pub why: String,
    /// Remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl CheckResult {
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

/// Objects to check in addition to the machine.
#[derive(Clone, Debug, Default)]
pub struct CheckTargets {
    /// Directories and files that programs in lanes would read.
    pub places: Vec<PathBuf>,
    /// Cores that other lanes have.
    pub taken: Vec<u32>,
    /// State directory of lanes, which need not exist.
    pub state: Option<PathBuf>,
}

/// Runs all checks, in reading order: core, scheduling, memory, I/O, kernel, then each place.
///
/// Cost: some threads, two children, a ring, and for each place some unnamed files of one page;
/// tens of milliseconds.
///
/// ```
/// use evermap_lane::machine::{CheckTargets, Machine, check};
/// let machine = Machine::detect()?;
/// for statement in check(&machine, &CheckTargets::default()) {
///     println!("{}: {} ({})", statement.name, statement.able, statement.why);
/// }
/// # Ok::<(), evermap_lane::Error>(())
/// ```
pub fn check(machine: &Machine, targets: &CheckTargets) -> Vec<CheckResult> {
    let mut all = cores::check(machine, &targets.taken);
    all.extend(scheduling::check(machine, &targets.taken));
    all.extend(memory::check(machine));
    all.extend(kernel::check(machine, targets.state.as_deref()));
    all.extend(targets.places.iter().flat_map(|place| places::check(machine, place)));
    all
}

/// Returns true if the checks allow a program to be lent a core with `SCHED_FIFO`.
pub fn can_lend_with_fifo(statements: &[CheckResult]) -> bool {
    ["core", "affinity", "fifo"]
        .iter()
        .all(|name| statements.iter().any(|one| one.name == *name && one.able))
}

/// Runs a trial in a new thread, whose settings end with it.
fn in_new_thread<T: Send>(trial: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("lane-check".into()).spawn_scoped(scope, trial)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread of the trial panicked")))
    })
}

/// Formats bytes as KiB or MiB.
fn mib(bytes: u64) -> String {
    match bytes {
        small if small < 1 << 20 => format!("{} KiB", small >> 10),
        bytes => format!("{} MiB", bytes >> 20),
    }
}
