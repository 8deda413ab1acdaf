//! k-nucleotide: counts the sequences of k nucleotides in the last record of fasta's output.
//!
//! A nucleotide is two bits and a sequence a number, so k is at most 31. Short sequences are
//! counted in an array with an entry for each, longer ones in a hash table. All lengths are counted
//! in one pass.

mod heap;

use std::io::BufRead;

use crate::blocks;
use crate::error::{OfFile, Outcome, damaged};
use crate::fasta;
use crate::hash::{Checksum, Map};
use crate::options::Options;
use crate::report::{Report, Watch};

/// Runs one step of the program.
pub fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    match (options.variant.as_str(), options.step.as_str()) {
        ("file", "run") => in_file(options, report),
        ("heap", "run") => heap::run(options, report),
        _ => Err(options.unknown("`file run` and `heap run`, after those of fasta")),
    }
}

fn in_file(options: &Options, report: &mut Report) -> Outcome<()> {
    let path = options.file(fasta::NAME);
    let mut watch = Watch::start();
    let mut reader = blocks::reader(&path, options.block_bytes)?;
    skip_to_record(&mut reader, options)?;
    let mut counters = Counters::new(&options.k);
    loop {
        let piece = reader.fill_buf().of(&path)?;
        if piece.is_empty() {
            break;
        }
        counters.feed(piece);
        let bytes = piece.len();
        reader.consume(bytes);
    }
    report.time("time", watch.lap())?;
    counters.write_to(report)
}

/// Skips to the sequence of the last record.
fn skip_to_record(reader: &mut impl BufRead, options: &Options) -> Outcome<()> {
    let path = options.file(fasta::NAME);
    let mut header = Vec::new();
    while header != fasta::HEADERS[2][1..] {
        header.clear();
        let before = reader.skip_until(b'>').of(&path)?;
        if before == 0 || reader.read_until(b'\n', &mut header).of(&path)? == 0 {
            return Err(damaged(&path, "has no record THREE; run `fasta file run`"));
        }
    }
    Ok(())
}

/// Counts for each length.
pub struct Counters {
    counters: Vec<Counter>,
}

struct Counter {
    k: usize,
    /// The last k nucleotides.
    sequence: u64,
    /// Number of nucleotides seen, up to k.
    nucleotides: usize,
    counts: Counts,
}

/// Counts by sequence.
enum Counts {
    /// Array with an entry for every possible sequence.
    Direct(Vec<u32>),
    /// Hash table of the sequences that occur.
    Hashed(Map<u64, u32>),
}

/// Largest k with an array, which then fits into a processor's cache.
const DIRECT_K_MAX: usize = 8;

impl Counts {
    fn of(k: usize) -> Counts {
        if k <= DIRECT_K_MAX {
            Counts::Direct(vec![0; 1 << (2 * k)])
        } else {
            Counts::Hashed(Map::default())
        }
    }

    /// Returns the sequences that occur, sorted.
    fn sorted(&self) -> Vec<(u64, u32)> {
        match self {
            Counts::Direct(counts) => {
                (0..).zip(counts.iter().copied()).filter(|(_, count)| *count > 0).collect()
            }
            Counts::Hashed(counts) => {
                let mut sorted: Vec<(u64, u32)> = counts.iter().map(|(s, n)| (*s, *n)).collect();
                sorted.sort_unstable();
                sorted
            }
        }
    }
}

impl Counters {
    /// Creates counters for these lengths.
    pub fn new(lengths: &[usize]) -> Counters {
        let counter = |&k| Counter { k, sequence: 0, nucleotides: 0, counts: Counts::of(k) };
        Counters { counters: lengths.iter().map(counter).collect() }
    }

    /// Counts in the next piece of a record; skips line ends.
    pub fn feed(&mut self, piece: &[u8]) {
        for counter in &mut self.counters {
            counter.feed(piece);
        }
    }

    /// Reports the counts.
    pub fn write_to(&self, report: &mut Report) -> Outcome<()> {
        let mut checksum = Checksum::default();
        for Counter { k, counts, .. } in &self.counters {
            let counts = counts.sorted();
            report.count(&format!("different_{k}"), counts.len() as u64, "sequences")?;
            for (sequence, count) in counts {
                checksum.add_number(sequence);
                checksum.add_number(u64::from(count));
            }
        }
        report.checksum(checksum.value())
    }
}

impl Counter {
    fn feed(&mut self, piece: &[u8]) {
        let Counter { k, sequence, nucleotides, counts } = self;
        let sequences = Sequences { k: *k, sequence, nucleotides };
        match counts {
            Counts::Direct(counts) => sequences.each(piece, |sequence| {
                if let Some(count) = counts.get_mut(sequence as usize) {
                    *count += 1;
                }
            }),
            Counts::Hashed(counts) => {
                sequences.each(piece, |sequence| *counts.entry(sequence).or_insert(0) += 1);
            }
        }
    }
}

/// State of a sequence across pieces.
struct Sequences<'a> {
    k: usize,
    sequence: &'a mut u64,
    nucleotides: &'a mut usize,
}

impl Sequences<'_> {
    /// Calls `take` for each sequence that ends in this piece.
    fn each(self, piece: &[u8], mut take: impl FnMut(u64)) {
        let mask = (1 << (2 * self.k)) - 1;
        let (mut sequence, mut nucleotides) = (*self.sequence, *self.nucleotides);
        for byte in piece {
            let code = CODES[usize::from(*byte)];
            if code == NO_NUCLEOTIDE {
                continue;
            }
            sequence = (sequence << 2 | u64::from(code)) & mask;
            nucleotides += 1;
            if nucleotides >= self.k {
                take(sequence);
            }
        }
        (*self.sequence, *self.nucleotides) = (sequence, nucleotides);
    }
}

const NO_NUCLEOTIDE: u8 = 4;

/// Returns the two bits of a nucleotide.
static CODES: [u8; 256] = {
    let mut table = [NO_NUCLEOTIDE; 256];
    let mut code = 0;
    while code < 4 {
        let letter = b"acgt"[code];
        table[letter as usize] = code as u8;
        table[letter.to_ascii_uppercase() as usize] = code as u8;
        code += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn count(lengths: &[usize], pieces: &[&[u8]]) -> Vec<Vec<(u64, u32)>> {
        let mut counters = Counters::new(lengths);
        pieces.iter().for_each(|piece| counters.feed(piece));
        counters.counters.iter().map(|counter| counter.counts.sorted()).collect()
    }

    #[test]
    fn sequences_are_counted_across_lines_and_pieces() {
        let ones = count(&[1], &[b"ac\nag", b"c\n"]);
        assert_eq!(ones[0], [(0, 2), (1, 2), (2, 1)]);
        // The pairs are ac, ca, ag, gc.
        let twos = count(&[2], &[b"ac\nag", b"c\n"]);
        assert_eq!(twos[0], [(0b0001, 1), (0b0010, 1), (0b0100, 1), (0b1001, 1)]);
        assert_eq!(count(&[1, 2], &[b"a", b"C", b"\nAgc"]), [ones, twos].concat());
    }

    #[test]
    fn the_hash_table_has_the_same_counts_as_the_array() {
        let text: Vec<u8> = (0..5_000_u32).map(|n| b"acgt"[(n * n / 7 % 4) as usize]).collect();
        let longest = DIRECT_K_MAX;
        let counts = count(&[longest, longest + 1], &[&text]);
        let mut shortened = std::collections::BTreeMap::new();
        for (sequence, count) in &counts[1] {
            *shortened.entry(sequence >> 2).or_insert(0) += count;
        }
        // The last shorter sequence does not begin a longer one.
        let last = text[text.len() - longest..]
            .iter()
            .fold(0, |sequence, letter| sequence << 2 | u64::from(CODES[usize::from(*letter)]));
        *shortened.entry(last).or_insert(0) += 1;
        assert_eq!(counts[0], shortened.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn the_longest_sequences_fit_into_64_bits() {
        let counted = count(&[31], &[&[b't'; 33]]);
        assert_eq!(counted[0], [((1 << 62) - 1, 3)]);
    }
}
