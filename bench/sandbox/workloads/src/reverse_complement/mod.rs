//! reverse-complement: reads fasta's output, and writes each sequence reversed, with the complement
//! of each letter.
//!
//! The whole sequence is needed before its first line can be written. From a file it is collected
//! in memory; in a heap it is already complete.

mod heap;

use std::io::BufRead;

use crate::blocks;
use crate::error::{OfFile, Outcome, damaged};
use crate::fasta;
use crate::hash::checksum_of;
use crate::lines::{FileLines, LINE_LETTERS, Lines, Place};
use crate::options::Options;
use crate::report::{Report, Watch, make_durable};

/// Name of the output file, and of the named block in the heap.
pub const NAME: &str = "reverse-complement";

/// Runs one step of the program.
pub fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    match (options.variant.as_str(), options.step.as_str()) {
        ("file", "run") => with_files(options, report),
        ("heap", "run") => heap::run(options, report),
        _ => Err(options.unknown("`file run` and `heap run`, after those of fasta")),
    }
}

fn with_files(options: &Options, report: &mut Report) -> Outcome<()> {
    let (from, to) = (options.file(fasta::NAME), options.file(NAME));
    let mut watch = Watch::start();
    let mut reader = blocks::reader(&from, options.block_bytes)?;
    let writer = blocks::writer(&to, options.block_bytes)?;
    let mut lines = FileLines { writer, path: to.clone() };
    let mut record = Vec::new();
    if reader.read_until(b'>', &mut record).of(&from)? != 1 {
        return Err(damaged(&from, "is not an output of fasta; run `fasta file run`"));
    }
    loop {
        record.clear();
        if reader.read_until(b'>', &mut record).of(&from)? == 0 {
            break;
        }
        let text = record.strip_suffix(b">").unwrap_or(&record);
        reverse_complement(text, &mut lines)?;
    }
    let file = blocks::finish(lines.writer, &to)?;
    report.time("time", watch.lap())?;
    make_durable(options, &file, &to, &mut watch, report)?;
    if options.check {
        let output = blocks::read_whole(&to, 1 << 20)?;
        report.count("output", output.len() as u64, "bytes")?;
        report.checksum(checksum_of(&output))?;
    }
    Ok(())
}

/// Writes a record's header, then its sequence reversed. The record has no leading `>`.
pub fn reverse_complement(record: &[u8], lines: &mut impl Lines) -> Outcome<()> {
    let header_bytes = memchr::memchr(b'\n', record).map_or(record.len(), |end| end + 1);
    let (header, sequence) = record.split_at(header_bytes);
    lines.put(b">")?;
    lines.put(header)?;

    let (mut sequence, mut letters) = (sequence, &[][..]);
    loop {
        let written = lines.fill(|line| {
            let mut filled = 0;
            while filled < LINE_LETTERS {
                if letters.is_empty() {
                    if sequence.is_empty() {
                        break;
                    }
                    let end = memchr::memrchr(b'\n', sequence);
                    letters = &sequence[end.map_or(0, |end| end + 1)..];
                    sequence = &sequence[..end.unwrap_or(0)];
                }
                let before = letters.len().saturating_sub(LINE_LETTERS - filled);
                let (rest, last) = letters.split_at(before);
                let free = &mut line[filled..filled + last.len()];
                for (byte, letter) in free.iter_mut().zip(last.iter().rev()) {
                    byte.put(COMPLEMENT[usize::from(*letter)]);
                }
                (filled, letters) = (filled + last.len(), rest);
            }
            if filled == 0 {
                return 0;
            }
            line[filled].put(b'\n');
            filled + 1
        })?;
        // A full line has `LINE_LETTERS` letters and a line end. Anything shorter is the last line.
        if written <= LINE_LETTERS {
            return Ok(());
        }
    }
}

/// Complements of the IUB codes, in upper case. Other bytes map to themselves.
static COMPLEMENT: [u8; 256] = {
    let (codes, complements) = (b"ACGTUMRWSYKVHDBN", b"TGCAAKYWSRMBDHVN");
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = byte as u8;
        byte += 1;
    }
    let mut code = 0;
    while code < codes.len() {
        table[codes[code] as usize] = complements[code];
        table[codes[code].to_ascii_lowercase() as usize] = complements[code];
        code += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::fasta::tests::{in_memory, text};

    fn reversed(text: &[u8]) -> Vec<u8> {
        in_memory(text.len(), |lines| {
            let mut records = text[1..].split(|byte| *byte == b'>');
            records.try_for_each(|record| reverse_complement(record, lines))
        })
    }

    #[test]
    fn a_sequence_is_reversed_and_complemented_and_its_lines_refilled() {
        let sequence = [b"ACGTN".repeat(12), b"\nyk\n".to_vec()].concat();
        let record = [b">ID\n", &sequence[..]].concat();
        let expected = [b">ID\nMR", &b"NACGT".repeat(12)[..58], b"\nGT\n"].concat();
        assert_eq!(reversed(&record), expected);
    }

    #[test]
    fn reversing_twice_restores_the_text() {
        let text = text(50_000);
        assert_eq!(reversed(&reversed(&text)).to_ascii_lowercase(), text.to_ascii_lowercase());
    }
}
