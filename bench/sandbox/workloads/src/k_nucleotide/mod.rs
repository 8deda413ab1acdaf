//! k-nucleotide: counts the sequences of k nucleotides in the last record of what fasta wrote, in a
//! hash table.
//!
//! A nucleotide is two bits, a sequence a number; so k is at most 31. All lengths are counted in
//! one pass.

mod heap;

use std::io::BufRead;

use crate::blocks;
use crate::error::{OfFile, Outcome, damaged};
use crate::fasta;
use crate::hash::{Checksum, Map};
use crate::options::Options;
use crate::report::{Report, Watch};

/// One step of the program, by name.
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
    counters.tell(report)
}

/// Past the header of the record that is counted, which is the last one.
fn skip_to_record(reader: &mut impl BufRead, options: &Options) -> Outcome<()> {
    let path = options.file(fasta::NAME);
    let mut header = Vec::new();
    while header != fasta::HEADERS[2][1..] {
        header.clear();
        let before = reader.skip_until(b'>').of(&path)?;
        if before == 0 || reader.read_until(b'\n', &mut header).of(&path)? == 0 {
            return Err(damaged(&path, "has no record THREE; make it with `fasta file run`"));
        }
    }
    Ok(())
}

/// A table of counts for each length.
pub struct Counters {
    counters: Vec<Counter>,
}

struct Counter {
    k: usize,
    /// The last k nucleotides.
    sequence: u64,
    /// How many there were, up to k.
    nucleotides: usize,
    counts: Map<u64, u32>,
}

impl Counters {
    /// For these lengths.
    pub fn new(lengths: &[usize]) -> Counters {
        let counter = |&k| Counter { k, sequence: 0, nucleotides: 0, counts: Map::default() };
        Counters { counters: lengths.iter().map(counter).collect() }
    }

    /// Counts in the next piece of a record; ends of lines are passed over.
    pub fn feed(&mut self, piece: &[u8]) {
        for counter in &mut self.counters {
            counter.feed(piece);
        }
    }

    /// Reports what was counted.
    pub fn tell(&self, report: &mut Report) -> Outcome<()> {
        let mut checksum = Checksum::default();
        for Counter { k, counts, .. } in &self.counters {
            report.count(&format!("different_{k}"), counts.len() as u64, "sequences")?;
            let mut counts: Vec<(u64, u32)> =
                counts.iter().map(|(s, count)| (*s, *count)).collect();
            counts.sort_unstable();
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
        let mask = (1 << (2 * self.k)) - 1;
        for byte in piece {
            let code = match byte | 0x20 {
                b'a' => 0,
                b'c' => 1,
                b'g' => 2,
                b't' => 3,
                _ => continue,
            };
            self.sequence = (self.sequence << 2 | code) & mask;
            self.nucleotides += 1;
            if self.nucleotides >= self.k {
                *self.counts.entry(self.sequence).or_insert(0) += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(lengths: &[usize], pieces: &[&[u8]]) -> Vec<Vec<(u64, u32)>> {
        let mut counters = Counters::new(lengths);
        pieces.iter().for_each(|piece| counters.feed(piece));
        let sorted = |counter: Counter| {
            let mut counts: Vec<(u64, u32)> = counter.counts.into_iter().collect();
            counts.sort_unstable();
            counts
        };
        counters.counters.into_iter().map(sorted).collect()
    }

    #[test]
    fn sequences_are_counted_across_ends_of_lines_and_pieces() {
        let ones = count(&[1], &[b"ac\nag", b"c\n"]);
        assert_eq!(ones[0], [(0, 2), (1, 2), (2, 1)]);
        // ac, ca, ag, gc.
        let twos = count(&[2], &[b"ac\nag", b"c\n"]);
        assert_eq!(twos[0], [(0b0001, 1), (0b0010, 1), (0b0100, 1), (0b1001, 1)]);
        assert_eq!(count(&[1, 2], &[b"a", b"C", b"\nAgc"]), [ones, twos].concat());
    }

    #[test]
    fn the_longest_sequences_fit_into_a_number() {
        let counted = count(&[31], &[&[b't'; 33]]);
        assert_eq!(counted[0], [((1 << 62) - 1, 3)]);
    }
}
