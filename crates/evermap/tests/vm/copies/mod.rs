//! What is copied inside the machine: numbered states, whole under their name or not there.
//!
//! Sources lie on a disk of their own, which both machines have: so a part that a cut left is one of the same source, and can
//! be gone on with. Three names are copied to again and again: `file`, in place of the state before or
//! anew; `long`, interrupted and resumed; and a new directory for each tree.

mod journal;
mod judge;
mod make;
mod same;
mod sources;

use std::path::PathBuf;

use evermap_transfer::Durability;
use evermap_transfer::engines::EngineKind;

pub use judge::Judged;
pub use make::make_copies;
pub use sources::make_sources;

/// Where the sources are mounted.
pub const SOURCES: &str = "/src";
/// Where copies go.
pub const TARGETS: &str = "/mnt";

/// The names that are copied to.
const FILE: &str = "/mnt/file";
const LONG: &str = "/mnt/long";

/// Every so many states a file is copied that is interrupted, and a tree.
const LONG_EVERY: u64 = 2;
const TREE_EVERY: u64 = 3;

/// What was promised of a name. Numbers begin with 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Name {
    /// The oldest state that it may have; 0 before one was promised.
    floor: u64,
    /// The latest.
    ceiling: u64,
    /// Whether it may have none.
    may_be_free: bool,
}

/// What was promised when a mark was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    file: Name,
    long: Name,
    /// Of the last state of `long`, as long as it has not the name: what its journal vouched for when it was interrupted.
    vouched_bytes: u64,
    /// The tree that is there.
    tree_floor: u64,
    /// This one may be there, too.
    tree_ceiling: u64,
}

impl Default for Promise {
    /// Of an empty disk.
    fn default() -> Promise {
        let free = Name { may_be_free: true, ..Name::default() };
        Promise { file: free, long: free, vouched_bytes: 0, tree_floor: 0, tree_ceiling: 0 }
    }
}

impl Promise {
    pub fn to_line(self) -> String {
        let Promise { file, long, vouched_bytes, tree_floor, tree_ceiling } = self;
        let name =
            |name: Name| format!("{} {} {}", name.floor, name.ceiling, u8::from(name.may_be_free));
        format!(
            "copies {} {} {vouched_bytes} {tree_floor} {tree_ceiling} .",
            name(file),
            name(long)
        )
    }

    /// The opposite; `None` for any other line.
    pub fn of_line(line: &str) -> Option<Promise> {
        let words = line.strip_prefix("copies ")?.strip_suffix(" .")?.split(' ');
        let mut numbers = words.map_while(|word| word.parse::<u64>().ok());
        let mut next = || numbers.next();
        let mut name =
            || Some(Name { floor: next()?, ceiling: next()?, may_be_free: next()? == 1 });
        let (file, long) = (name()?, name()?);
        Some(Promise {
            file,
            long,
            vouched_bytes: next()?,
            tree_floor: next()?,
            tree_ceiling: next()?,
        })
    }
}

/// How a state is copied.
#[derive(Clone, Copy, Debug)]
struct Manner {
    /// `None`: as policy picks.
    engine: Option<EngineKind>,
    durability: Durability,
    /// What had the name is removed before.
    to_a_free_name: bool,
}

/// Engines take turns; after all of them the durability changes.
fn manner_of(state: u64) -> Manner {
    const ENGINES: [Option<EngineKind>; 6] = [
        None,
        Some(EngineKind::UringDirect),
        Some(EngineKind::MmapDirect),
        Some(EngineKind::MmapWrite),
        Some(EngineKind::Splice),
        Some(EngineKind::ReadWrite),
    ];
    let turns = ENGINES.len() as u64;
    Manner {
        engine: ENGINES[(state % turns) as usize],
        durability: match state / turns % 2 {
            0 => Durability::Full,
            _ => Durability::Data,
        },
        to_a_free_name: state.is_multiple_of(5),
    }
}

fn file_source(state: u64) -> PathBuf {
    format!("{SOURCES}/file-{state}").into()
}

fn long_source(state: u64) -> PathBuf {
    format!("{SOURCES}/long-{state}").into()
}

fn tree_source(state: u64) -> PathBuf {
    format!("{SOURCES}/tree-{state}").into()
}

fn tree_target(state: u64) -> PathBuf {
    format!("{TARGETS}/tree-{state}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_read_as_it_was_written() {
        let name = |floor| Name { floor, ceiling: floor + 1, may_be_free: floor == 7 };
        let promise = Promise {
            file: name(7),
            long: name(4),
            vouched_bytes: 65_536,
            tree_floor: 3,
            tree_ceiling: 6,
        };
        assert_eq!(Promise::of_line(&promise.to_line()), Some(promise));
        assert_eq!(Promise::of_line("copies 1 2 3"), None);
    }
}
