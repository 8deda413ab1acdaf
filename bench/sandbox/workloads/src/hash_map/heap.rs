//! hash-map in a heap: the map is built in place.

use evermap_guest::{Heap, PMap, Snapshot};

use super::{NAME, key, look_up, value};
use crate::error::Outcome;
use crate::options::Options;
use crate::report::{Report, Watch};

type Root = PMap<[u8; 20], u64>;

/// Builds and commits the map.
pub fn prepare(options: &Options, report: &mut Report) -> Outcome<()> {
    let mut watch = Watch::start();
    let mut heap = Heap::open(NAME)?;
    let mut map = heap.root_or::<Root, _>(PMap::new())?;
    map.clear();
    for number in 0..options.entries {
        map.insert(key(number), value(number))?;
    }
    let entries = map.len() as u64;
    report.time("build", watch.lap())?;
    report.time("time", watch.total())?;
    heap.commit()?;
    report.time("durable", watch.lap())?;
    report.count("entries", entries, "entries")?;
    Ok(heap.close()?)
}

/// Opens the map and looks keys up.
pub fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let mut watch = Watch::start();
    let snapshot = Snapshot::open(NAME)?;
    let map = snapshot.root::<Root>()?;
    report.time("load", watch.lap())?;
    let sum = look_up(options, map.len() as u64, |key| map.get(key).copied());
    report.time("lookups", watch.lap())?;
    report.time("time", watch.total())?;
    report.count("entries", map.len() as u64, "entries")?;
    report.checksum(sum)
}
