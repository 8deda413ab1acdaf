//! calls: the cost of one operation: reading or writing a block of a file, or copying it out of or
//! into a heap.
//!
//! The file is warm, and is read and written from start to end without a buffer: one system call
//! for each block (in a guest, a host call and a system call). The heap's pages are already mapped.
//! Contents are the same on both sides.

mod heap;

use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Seek, Write};
use std::time::{Duration, Instant};

use crate::blocks;
use crate::error::{OfFile, Outcome};
use crate::hash::{Checksum, checksum_of};
use crate::options::Options;
use crate::random::mix;
use crate::report::Report;

/// Name of the file, and of the block in the heap.
pub const NAME: &str = "calls";

const BYTES: usize = 16 << 20;
const CLOCK_CALLS: usize = 10_000;
const BLOCK_BYTES: [usize; 3] = [512, 4096, 65536];

/// Runs one step of the program.
pub fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    match (options.variant.as_str(), options.step.as_str()) {
        ("file", "run") => with_file(options, report),
        ("heap", "run") => heap::run(options, report),
        _ => Err(options.unknown("`file run` and `heap run`")),
    }
}

fn with_file(options: &Options, report: &mut Report) -> Outcome<()> {
    let path = options.file(NAME);
    let bytes = bytes(options);
    // Writes small blocks, as programs do: a large write gets large folios in the page cache, and
    // each small write into one costs many times as much on ext4.
    blocks::write_whole(&path, BLOCK_BYTES[1], &contents(bytes))?;
    let file = File::options().read(true).write(true).open(&path).of(&path)?;
    let mut medium = OfFiles { file, path: path.clone() };
    measure(options, bytes, &mut medium, report)?;
    measure_clock(options, report)?;
    if options.check {
        report.checksum(checksum_of(&blocks::read_whole(&path, 1 << 20)?))?;
    }
    Ok(())
}

/// Returns the bytes of a round, a multiple of each block size.
pub fn bytes(options: &Options) -> usize {
    options.bytes.unwrap_or(BYTES).next_multiple_of(BLOCK_BYTES[2])
}

/// Returns the initial contents.
pub fn contents(bytes: usize) -> Vec<u8> {
    (0..bytes as u64 / 8).flat_map(|number| mix(number).to_le_bytes()).collect()
}

/// Medium that is read and written.
pub trait Medium {
    /// Moves to the beginning.
    fn rewind(&mut self) -> Outcome<()>;
    /// Reads the next block.
    fn read(&mut self, block: &mut [u8]) -> Outcome<()>;
    /// Writes the next block.
    fn write(&mut self, block: &[u8]) -> Outcome<()>;
}

struct OfFiles {
    file: File,
    path: std::path::PathBuf,
}

impl Medium for OfFiles {
    fn rewind(&mut self) -> Outcome<()> {
        self.file.rewind().of(&self.path)
    }

    fn read(&mut self, block: &mut [u8]) -> Outcome<()> {
        self.file.read_exact(block).of(&self.path)
    }

    fn write(&mut self, block: &[u8]) -> Outcome<()> {
        self.file.write_all(block).of(&self.path)
    }
}

/// Reads and writes with each block size, and reports the median of the rounds.
pub fn measure(
    options: &Options,
    bytes: usize,
    medium: &mut impl Medium,
    report: &mut Report,
) -> Outcome<()> {
    let mut seen = Checksum::default();
    for block_bytes in BLOCK_BYTES {
        let mut block = vec![0; block_bytes];
        let operations = bytes / block_bytes;
        // The first round warms up and does not count.
        let mut reads = Vec::new();
        for _ in 0..=options.rounds {
            medium.rewind()?;
            let start = Instant::now();
            for _ in 0..operations {
                medium.read(black_box(&mut block))?;
            }
            reads.push(start.elapsed());
            seen.add(black_box(&block));
        }
        tell("read", block_bytes, operations, &mut reads, report)?;

        let mut writes = Vec::new();
        for round in 0..=options.rounds {
            block.fill(round as u8);
            medium.rewind()?;
            let start = Instant::now();
            for _ in 0..operations {
                medium.write(black_box(&block))?;
            }
            writes.push(start.elapsed());
        }
        tell("write", block_bytes, operations, &mut writes, report)?;
    }
    report.checksum_of("seen_checksum", seen.value())
}

/// Measures a call that does almost nothing: in a guest, the way to the host and back.
fn measure_clock(options: &Options, report: &mut Report) -> Outcome<()> {
    let mut rounds: Vec<Duration> = (0..=options.rounds)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..CLOCK_CALLS {
                black_box(Instant::now());
            }
            start.elapsed()
        })
        .collect();
    report.operation("clock", median_ns(&mut rounds, CLOCK_CALLS))
}

fn tell(
    operation: &str,
    block_bytes: usize,
    operations: usize,
    rounds: &mut [Duration],
    report: &mut Report,
) -> Outcome<()> {
    let ns = median_ns(rounds, operations);
    report.operation(&format!("{operation}_{block_bytes}"), ns)?;
    // Bytes per nanosecond are thousands of megabytes per second.
    let megabytes = block_bytes as f64 / ns * 1e3;
    report.count(&format!("{operation}_{block_bytes}_volume"), megabytes as u64, "MB/s")
}

/// Returns the time of an operation: the median of the rounds without the first.
fn median_ns(rounds: &mut [Duration], operations: usize) -> f64 {
    let counted = &mut rounds[1..];
    counted.sort_unstable();
    counted[counted.len() / 2].as_nanos() as f64 / operations as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_round_does_not_count() {
        let mut rounds = [900, 30, 10, 20].map(Duration::from_micros);
        assert_eq!(median_ns(&mut rounds, 100), 200.0);
    }

    #[test]
    fn a_round_has_whole_blocks_of_each_size() {
        let bytes = bytes(&Options { bytes: Some(100_000), ..Options::default() });
        assert_eq!((bytes, contents(bytes).len()), (131_072, 131_072));
    }
}
