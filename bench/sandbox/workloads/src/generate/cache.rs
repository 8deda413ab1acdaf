//! Files like those in a browser's cache: 3,001 files, most of them small, with most bytes in a few
//! large ones.
//!
//! The shares of kinds and sizes are chosen by hand, in the order known from statistics of the web.
//! Images are the most frequent, then scripts, then pages. Half of the files are smaller than about
//! 20 KB. A few films take a sixth of the space. Images, films and fonts are compressed already, so
//! compressing all files saves only about a third of their bytes.

use std::fmt::Write;

use super::empty_folder;
use super::options::Options;
use super::pools::{Kind, Pools};
use crate::blocks;
use crate::error::Outcome;
use crate::hash::Checksum;
use crate::random::Random;
use crate::report::Report;
use crate::snappy::{CACHE, LIST};

const FILES: u64 = 3001;

/// Properties of a kind of resource.
struct Resource {
    extension: &'static str,
    /// Number of files in a thousand.
    share: usize,
    kind: Kind,
    /// Points of the distribution of sizes: how many of a thousand files are smaller, and the size
    /// in bytes.
    sizes: &'static [(u64, u64)],
}

const RESOURCES: [Resource; 6] = [
    Resource {
        extension: "jpg",
        share: 400,
        kind: Kind::Compressed,
        sizes: &[
            (0, 120),
            (250, 2_500),
            (500, 12_000),
            (750, 40_000),
            (900, 150_000),
            (980, 600_000),
            (1000, 3_000_000),
        ],
    },
    Resource {
        extension: "js",
        share: 335,
        kind: Kind::Text,
        sizes: &[
            (0, 200),
            (250, 3_000),
            (500, 15_000),
            (750, 60_000),
            (900, 220_000),
            (980, 900_000),
            (1000, 3_500_000),
        ],
    },
    Resource {
        extension: "html",
        share: 140,
        kind: Kind::Text,
        sizes: &[
            (0, 300),
            (250, 5_000),
            (500, 25_000),
            (750, 90_000),
            (900, 300_000),
            (980, 900_000),
            (1000, 2_500_000),
        ],
    },
    Resource {
        extension: "woff2",
        share: 55,
        kind: Kind::Compressed,
        sizes: &[(0, 5_000), (250, 15_000), (500, 30_000), (750, 70_000), (1000, 300_000)],
    },
    Resource {
        extension: "mp4",
        share: 10,
        kind: Kind::Compressed,
        sizes: &[
            (0, 50_000),
            (250, 400_000),
            (500, 1_500_000),
            (750, 4_000_000),
            (1000, 12_000_000),
        ],
    },
    Resource {
        extension: "wasm",
        share: 60,
        kind: Kind::Binary,
        sizes: &[(0, 100), (500, 10_000), (900, 300_000), (1000, 4_000_000)],
    },
];

/// Makes the files.
pub fn make(options: &Options, report: &mut Report) -> Outcome<()> {
    let folder = options.data.join(CACHE);
    empty_folder(&folder)?;
    let pools = Pools::collect(&options.sources, options.seed)?;
    for (what, kind) in
        [("text", Kind::Text), ("packed", Kind::Compressed), ("binary", Kind::Binary)]
    {
        report.count(&format!("source_{what}"), pools.bytes(kind) as u64, "bytes")?;
    }
    let mut random = Random::new(options.seed);
    let files = options.scaled(FILES).max(10) as usize;
    let bytes = options.scaled(options.cache_bytes).max(4096);
    let planned = plan(files, bytes, &mut random);

    let (mut list, mut checksum) = (String::new(), Checksum::default());
    for (number, (resource, size)) in planned.iter().enumerate() {
        let contents = pools.take(resource.kind, *size as usize, &mut random);
        let name = format!("{number:04}.{}", resource.extension);
        checksum.add(&contents);
        blocks::write_whole(&folder.join(&name), 1 << 20, &contents)?;
        // Writing to memory cannot fail.
        _ = writeln!(list, "{name} {size}");
    }
    blocks::write_whole(&folder.join(LIST), 1 << 20, list.as_bytes())?;
    report.count("files", planned.len() as u64, "files")?;
    report.count("bytes", planned.iter().map(|(_, size)| size).sum(), "bytes")?;
    report.checksum(checksum.value())
}

/// Returns the planned files with their sizes, which add up to `bytes`.
fn plan(files: usize, bytes: u64, random: &mut Random) -> Vec<(&'static Resource, u64)> {
    let mut planned: Vec<(&Resource, u64)> = (0..files).map(|_| draw(random)).collect();
    let drawn: u64 = planned.iter().map(|(_, size)| size).sum();
    for (_, size) in &mut planned {
        // Stays below 2^64: a size has 24 bits, and the default total 29.
        *size = (*size * bytes / drawn).max(1);
    }
    // The largest file absorbs the rounding error.
    let sum: u64 = planned.iter().map(|(_, size)| size).sum();
    if let Some((_, largest)) = planned.iter_mut().max_by_key(|(_, size)| *size) {
        *largest = (*largest + bytes).saturating_sub(sum).max(1);
    }
    planned
}

fn draw(random: &mut Random) -> (&'static Resource, u64) {
    let mut point = random.below(1000);
    let resource = RESOURCES.iter().find(|resource| {
        let here = point < resource.share;
        point = point.saturating_sub(resource.share);
        here
    });
    let resource = resource.unwrap_or(&RESOURCES[0]);
    (resource, size(resource.sizes, random.number_below(1000)))
}

/// Returns the size at `rank` when a thousand files are sorted by size, interpolated from `sizes`.
fn size(sizes: &[(u64, u64)], rank: u64) -> u64 {
    let above = sizes.partition_point(|(share, _)| *share <= rank).clamp(1, sizes.len() - 1);
    let ((low, smallest), (high, largest)) = (sizes[above - 1], sizes[above]);
    smallest + (largest - smallest) * (rank - low) / (high - low)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_cache_has_the_requested_files_and_bytes() {
        let planned = plan(3001, 440_000_000, &mut Random::new(1));
        assert_eq!(planned.len(), 3001);
        assert_eq!(planned.iter().map(|(_, size)| size).sum::<u64>(), 440_000_000);
    }

    #[test]
    fn most_files_are_small_and_few_files_have_most_bytes() {
        let planned = plan(3001, 440_000_000, &mut Random::new(1));
        let mut sizes: Vec<u64> = planned.iter().map(|(_, size)| *size).collect();
        sizes.sort_unstable();
        assert!((8_000..25_000).contains(&sizes[1500]), "{}", sizes[1500]);
        let largest: u64 = sizes[2700..].iter().sum();
        assert!(largest > 440_000_000 * 7 / 10, "{largest}");
        let packed = planned.iter().filter(|(resource, _)| resource.kind == Kind::Compressed);
        let packed: u64 = packed.map(|(_, size)| size).sum();
        assert!((40..60).contains(&(packed / 4_400_000)), "{packed}");
    }

    #[test]
    fn shares_add_up_to_a_thousand_and_sizes_increase() {
        assert_eq!(RESOURCES.iter().map(|resource| resource.share).sum::<usize>(), 1000);
        for Resource { sizes, .. } in &RESOURCES {
            assert_eq!((sizes[0].0, sizes.last().unwrap().0), (0, 1000));
            assert_eq!((size(sizes, 0), size(sizes, 1000)), (sizes[0].1, sizes.last().unwrap().1));
            assert!(sizes.is_sorted());
        }
    }

    #[test]
    fn a_seed_gives_the_same_files() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str, seed| {
            let data = folder.path().join(name);
            let sources = vec![folder.path().join("nothing")];
            let options =
                Options { data: data.clone(), scale: 0.005, seed, sources, ..Options::default() };
            super::make(&options, &mut Report::new(String::new(), std::io::sink())).unwrap();
            let list = std::fs::read_to_string(data.join(CACHE).join(LIST)).unwrap();
            let files = list.lines().map(|line| {
                let (name, size) = line.split_once(' ').unwrap();
                let contents = std::fs::read(data.join(CACHE).join(name)).unwrap();
                assert_eq!(contents.len(), size.parse::<usize>().unwrap());
                (name.to_string(), contents)
            });
            files.collect::<Vec<_>>()
        };
        let first = make("first", 1);
        assert_eq!(first.len(), 15);
        assert!(first == make("second", 1) && first != make("third", 2));
    }
}
