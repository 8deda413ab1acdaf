//! fasta: writes DNA sequences line by line: a repeated one, and two of random letters with
//! weights.
//!
//! Inspired by the Computer Language Benchmarks Game, with its own generator, repeated sequence and
//! weights. `reverse-complement` and `k-nucleotide` read its output.

mod heap;

use crate::blocks;
use crate::error::Outcome;
use crate::hash::checksum_of;
use crate::lines::{FileLines, LINE_LETTERS, Lines, Place};
use crate::options::Options;
use crate::report::{Report, Watch, make_durable};

/// Name of the file, and of the block in the heap.
pub const NAME: &str = "fasta";
/// Headers of the sequences. `k-nucleotide` counts in the last one.
pub const HEADERS: [&[u8]; 3] = [
    b">ONE Homo sapiens repeat\n",
    b">TWO IUB ambiguity codes\n",
    b">THREE Homo sapiens frequency\n",
];

const BYTES: usize = 64 << 20;
/// Lengths of the sequences, in units.
const UNITS: [usize; 3] = [2, 3, 5];
const REPEAT_LETTERS: usize = 287;

/// Letters and their weights out of 4096.
const IUB: [(u8, usize); 15] = [
    (b'a', 1106),
    (b'c', 492),
    (b'g', 492),
    (b't', 1106),
    (b'B', 82),
    (b'D', 82),
    (b'H', 82),
    (b'K', 82),
    (b'M', 82),
    (b'N', 82),
    (b'R', 82),
    (b'S', 82),
    (b'V', 82),
    (b'W', 82),
    (b'Y', 80),
];
const HOMO_SAPIENS: [(u8, usize); 4] = [(b'a', 1241), (b'c', 811), (b'g', 809), (b't', 1235)];

/// Runs one step of the program.
pub fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    match (options.variant.as_str(), options.step.as_str()) {
        ("file", "run") => to_file(options, report),
        ("heap", "run") => heap::run(options, report),
        _ => Err(options.unknown("`file run` and `heap run`")),
    }
}

fn to_file(options: &Options, report: &mut Report) -> Outcome<()> {
    let shape = Shape::of(options);
    let path = options.file(NAME);
    let mut watch = Watch::start();
    let writer = blocks::writer(&path, options.block_bytes)?;
    let mut lines = FileLines { writer, path: path.clone() };
    write(shape, &mut lines)?;
    let file = blocks::finish(lines.writer, &path)?;
    report.time("time", watch.lap())?;
    make_durable(options, &file, &path, &mut watch, report)?;
    report.count("output", shape.bytes() as u64, "bytes")?;
    if options.check {
        report.checksum(checksum_of(&blocks::read_whole(&path, 1 << 20)?))?;
    }
    Ok(())
}

/// Lengths of the sequences.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    unit_letters: usize,
}

impl Shape {
    /// Returns the largest shape whose text fits into the requested size.
    pub fn of(options: &Options) -> Shape {
        Shape::within(options.bytes.unwrap_or(BYTES))
    }

    fn within(bytes: usize) -> Shape {
        let fits = |unit_letters: usize| Shape { unit_letters }.bytes() <= bytes;
        // A letter takes more than a byte, so this is an overestimate by a sixtieth.
        let mut unit_letters = bytes / UNITS.iter().sum::<usize>();
        while unit_letters > 1 && !fits(unit_letters) {
            unit_letters -= (unit_letters / 128).max(1);
        }
        while fits(unit_letters + 1) {
            unit_letters += 1;
        }
        Shape { unit_letters }
    }

    /// Returns the size of the text in bytes.
    pub fn bytes(self) -> usize {
        let lines = UNITS.map(|units| {
            let letters = units * self.unit_letters;
            letters + letters.div_ceil(LINE_LETTERS)
        });
        lines.iter().sum::<usize>() + HEADERS.iter().map(|header| header.len()).sum::<usize>()
    }
}

/// Writes the text.
pub fn write(shape: Shape, lines: &mut impl Lines) -> Outcome<()> {
    let mut random = Lcg(42);
    let homo_sapiens = table(&HOMO_SAPIENS);
    let letters = UNITS.map(|units| units * shape.unit_letters);

    let repeat: Vec<u8> = (0..REPEAT_LETTERS).map(|_| homo_sapiens[random.of_4096()]).collect();
    let mut repeated = repeat.iter().copied().cycle();
    sequence(HEADERS[0], letters[0], lines, || repeated.next().unwrap_or(b'a'))?;
    let iub = table(&IUB);
    sequence(HEADERS[1], letters[1], lines, || iub[random.of_4096()])?;
    sequence(HEADERS[2], letters[2], lines, || homo_sapiens[random.of_4096()])
}

fn sequence(
    header: &[u8],
    letters: usize,
    lines: &mut impl Lines,
    mut letter: impl FnMut() -> u8,
) -> Outcome<()> {
    lines.put(header)?;
    let mut left = letters;
    while left > 0 {
        let here = left.min(LINE_LETTERS);
        lines.fill(|places| {
            places[..here].iter_mut().for_each(|place| place.put(letter()));
            places[here].put(b'\n');
            here + 1
        })?;
        left -= here;
    }
    Ok(())
}

/// Returns a table with each letter as often as its weight.
fn table(weights: &[(u8, usize)]) -> [u8; 4096] {
    let mut table = [b'a'; 4096];
    let letters = weights.iter().flat_map(|(letter, weight)| std::iter::repeat_n(*letter, *weight));
    table.iter_mut().zip(letters).for_each(|(place, letter)| *place = letter);
    table
}

/// Linear congruential generator modulo 2^32 that uses the upper bits.
struct Lcg(u32);

impl Lcg {
    fn of_4096(&mut self) -> usize {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 20) as usize
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Returns a small text.
    pub(crate) fn text(bytes: usize) -> Vec<u8> {
        let shape = Shape::within(bytes);
        let text = in_memory(shape.bytes(), |lines| write(shape, lines));
        assert_eq!(text.len(), shape.bytes(), "the text has the computed size");
        text
    }

    /// Returns the written text.
    pub(crate) fn in_memory(
        bytes_max: usize,
        write: impl FnOnce(&mut Text) -> Outcome<()>,
    ) -> Vec<u8> {
        let mut text = Text(Vec::with_capacity(bytes_max));
        write(&mut text).unwrap();
        text.0
    }

    pub(crate) struct Text(Vec<u8>);

    impl Lines for Text {
        type Place = u8;

        fn put(&mut self, line: &[u8]) -> Outcome<()> {
            self.0.extend(line);
            Ok(())
        }

        fn fill(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> Outcome<usize> {
            let mut line = [0; LINE_LETTERS + 1];
            let bytes = write(&mut line);
            self.put(&line[..bytes])?;
            Ok(bytes)
        }
    }

    #[test]
    fn the_text_has_the_requested_size_within_one_unit() {
        for bytes in [1000, 4096, 123_456, 1 << 20] {
            let shape = Shape::within(bytes);
            assert!(shape.bytes() <= bytes);
            assert!(Shape { unit_letters: shape.unit_letters + 1 }.bytes() > bytes);
        }
    }

    #[test]
    fn weights_add_up_to_4096() {
        assert_eq!(IUB.iter().map(|(_, weight)| weight).sum::<usize>(), 4096);
        assert_eq!(HOMO_SAPIENS.iter().map(|(_, weight)| weight).sum::<usize>(), 4096);
    }

    #[test]
    fn letters_follow_their_weights_and_the_first_sequence_repeats() {
        let text = text(200_000);
        let sequences: Vec<Vec<u8>> = text[1..]
            .split(|byte| *byte == b'>')
            .map(|record| {
                let letters = record.splitn(2, |byte| *byte == b'\n').nth(1).unwrap();
                letters.iter().copied().filter(|byte| *byte != b'\n').collect()
            })
            .collect();
        let share = |of: &[u8], letter| {
            of.iter().filter(|byte| **byte == letter).count() as f64 / of.len() as f64
        };
        assert_eq!(sequences.len(), 3);
        assert_eq!(sequences[0][..100], sequences[0][REPEAT_LETTERS..][..100]);
        assert!((share(&sequences[1], b'B') - 0.02).abs() < 0.005);
        assert!((share(&sequences[2], b'a') - 0.303).abs() < 0.01);
    }
}
