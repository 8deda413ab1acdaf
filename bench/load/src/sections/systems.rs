//! Measures all subjects on each file system: all read in order, all written in order, and 10 %
//! written at random; cold and warm.
//!
//! On compressing file systems, half of each page is compressible. A cold step on packed ones
//! (squashfs, erofs) empties all caches, because unpacked data is cached elsewhere, too; on the
//! others it drops the file's own pages.

use std::path::Path;

use harness::Outcome;
use harness::bench::skip_on_error;
use harness::units::{GIB, MIB, size};
use harness::volumes::{Packed, Volume};

use super::tables;
use crate::bench::Bench;
use crate::compete::{Cell, Standings, compete};
use crate::corpus::{self, Content};
use crate::work::{Order, Work};

const WORKS: [Work; 3] = [
    Work::read(100, Order::Sequential),
    Work::written(100, Order::Sequential),
    Work::written(10, Order::Random),
];
const PACKED: [(&str, Packed); 3] = [
    ("squashfs", Packed::SquashfsZstd),
    ("erofs", Packed::ErofsPlain),
    ("erofs-lz4hc", Packed::ErofsLz4hc),
];
const FILE: &str = "file";

pub fn report(bench: &mut Bench) -> Outcome {
    let mut sizes_bytes = bench.options.sizes_bytes.clone();
    if sizes_bytes.is_empty() {
        sizes_bytes.push(64 * MIB);
        if bench.options.full {
            sizes_bytes.push(GIB);
        }
    }
    let mut all = Vec::new();
    for bytes in sizes_bytes {
        for name in ["ext4", "xfs", "btrfs", "tmpfs"] {
            if !bench.options.selects("file-systems", name) {
                continue;
            }
            let Some(volume) = bench.volume(name) else { continue };
            corpus::make(volume.folder(), FILE, bytes, Content::Random)?;
            all.extend(measure(bench, &volume, name, bytes, false)?);
        }
        for (option, how) in PACKED {
            if !bench.options.selects("file-systems", option) {
                continue;
            }
            let Some(volume) = packed(bench, how, bytes)? else { continue };
            all.extend(measure(bench, &volume, how.name(), bytes, true)?);
        }
    }
    if all.is_empty() {
        println!("No selected file system is available here.\n");
        return Ok(());
    }
    println!("### Automatic compared with the best\n\n{}", tables::verdicts(&all));
    tables::say_within(&all);
    bench.own.standings.extend(all);
    Ok(())
}

/// Mounts a packed file system with one file in it. Prints the reason and returns `None` if that
/// fails.
pub(super) fn packed(bench: &mut Bench, how: Packed, bytes: u64) -> Outcome<Option<Volume>> {
    let folder = content(bench, bytes)?;
    let volume = skip_on_error(how.name(), bench.volumes.packed(how, &folder));
    std::fs::remove_dir_all(folder)?;
    Ok(volume)
}

/// Creates the folder that is packed.
pub(super) fn content(bench: &Bench, bytes: u64) -> Outcome<std::path::PathBuf> {
    let folder = bench.folder("content")?;
    corpus::make(&folder, FILE, bytes, Content::HalfCompressible)?;
    Ok(folder)
}

/// Path of the file in a content folder.
pub(super) fn file_in(folder: &Path) -> std::path::PathBuf {
    folder.join(FILE)
}

fn measure(
    bench: &mut Bench,
    volume: &Volume,
    name: &str,
    bytes: u64,
    is_packed: bool,
) -> Outcome<Vec<Standings>> {
    let subjects = bench.own.subjects.clone();
    let mut all = Vec::new();
    for is_cold in [true, false] {
        let is_wanted = match is_cold {
            true => bench.options.wants_of_pair("cold", "warm"),
            false => bench.options.wants_of_pair("warm", "cold"),
        };
        let is_possible = !(is_cold && (volume.is_memory() || is_packed && !bench.can_drop));
        if !is_wanted || !is_possible {
            continue;
        }
        let mut group = Vec::new();
        for work in WORKS {
            let state = tables::state(is_cold);
            let name = format!("{name}, {}, {state}, {}", size(bytes), work.name());
            let file = file_in(volume.folder());
            let section = "systems";
            let cell = Cell { section, name, file, bytes, is_cold, work, is_packed };
            group.push(compete(bench, &cell, &subjects)?);
        }
        println!("### {name}, {}, {}\n", size(bytes), tables::state(is_cold));
        let columns = WORKS.map(|work| work.name());
        println!("{}", tables::by_subject("finished, ms", &columns, &group, tables::finished));
        println!("{}", tables::by_subject("first page, ms", &columns, &group, tables::first_page));
        println!("{}:\n\n{}", group[1].cell.name, tables::costs(&group[1]));
        tables::failures(&group);
        all.extend(group);
    }
    Ok(all)
}
