//! Copies inside the machine: numbered states that are complete under their name, or absent.
//!
//! The sources are on a separate disk that both machines have. So a partial copy after a power
//! failure has the same source and can be continued. Three names are copied to repeatedly: `file`,
//! replacing the previous state or new; `long`, interrupted and resumed; and a new directory for
//! each tree.

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

/// Mount point of the sources.
pub const SOURCES: &str = "/src";
/// Directory of the copies.
pub const TARGETS: &str = "/mnt";

/// Names of the copies.
const FILE: &str = "/mnt/file";
const LONG: &str = "/mnt/long";

/// Every so many states, an interrupted file and a tree are copied.
const LONG_EVERY: u64 = 2;
const TREE_EVERY: u64 = 3;

/// Promise for a name. Numbers begin with 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Name {
    /// Oldest state that it may have; 0 before the first promise.
    floor: u64,
    /// Latest state that it may have.
    ceiling: u64,
    /// True if the name may be missing.
    may_be_free: bool,
}

/// All promises at the time of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    file: Name,
    long: Name,
    /// Data of the last state of `long` that its journal guaranteed when it was interrupted.
    /// Cleared once the copy has its name.
    vouched_bytes: u64,
    /// Number of the tree that exists.
    tree_floor: u64,
    /// Number of a tree that may exist.
    tree_ceiling: u64,
}

impl Default for Promise {
    /// Promises for an empty disk.
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

    /// Parses a line of `to_line`. Returns `None` for any other line.
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
struct Method {
    /// `None`: chosen by the policy.
    engine: Option<EngineKind>,
    durability: Durability,
    /// The existing file is removed before.
    to_a_free_name: bool,
}

/// Engines take turns; after all of them the durability changes.
fn method_of(state: u64) -> Method {
    const ENGINES: [Option<EngineKind>; 6] = [
        None,
        Some(EngineKind::UringDirect),
        Some(EngineKind::MmapDirect),
        Some(EngineKind::MmapWrite),
        Some(EngineKind::Splice),
        Some(EngineKind::ReadWrite),
    ];
    let turns = ENGINES.len() as u64;
    Method {
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
    fn a_promise_round_trips() {
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
