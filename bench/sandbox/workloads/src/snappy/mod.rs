//! snappy: compresses the files of a browser's cache, one after the other, each into one of its
//! own.
//!
//! `posix` opens, reads, writes and closes files, a block at a time; `mmap` maps each input instead
//! of reading it; `heap` has inputs and outputs as named blocks. All compress into the same memory
//! first, whose size is only known afterwards, and put the result in its place.
//!
//! Guests have no `mmap`. What their C library offers under this name is memory into which the file
//! is read at once, freed by `munmap`; variant `mmap` does that there.

mod files;
mod heap;

use std::path::{Path, PathBuf};

use snap::raw::{Decoder, Encoder, max_compress_len};

use crate::blocks;
use crate::error::{Outcome, damaged};
use crate::hash::Checksum;
use crate::options::Options;
use crate::report::Report;

/// The folder with the inputs and their list.
pub const CACHE: &str = "cache";
/// The list: a file's name, and its size, a line.
pub const LIST: &str = "list.txt";
/// The folder that outputs go to.
pub const COMPRESSED: &str = "compressed";

/// One step of the program, by name.
pub fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    match (options.variant.as_str(), options.step.as_str()) {
        ("posix", "run") => files::run::<files::Posix>(options, report),
        ("mmap", "run") => files::run::<files::Mapped>(options, report),
        ("heap", "prepare") => heap::prepare(options, report),
        ("heap", "run") => heap::run(options, report),
        _ => Err(options.unknown("`posix run`, `mmap run`, `heap prepare` and `heap run`")),
    }
}

/// The names of the inputs, in the order in which they are compressed.
pub fn list(options: &Options) -> Outcome<Vec<String>> {
    let path = options.file(CACHE).join(LIST);
    names(&blocks::read_whole(&path, options.block_bytes)?, &path)
}

fn names(list: &[u8], path: &Path) -> Outcome<Vec<String>> {
    let list = str::from_utf8(list).map_err(|error| damaged(path, error.to_string()))?;
    let names = list.lines().filter_map(|line| line.split(' ').next());
    Ok(names.map(str::to_string).collect())
}

/// Compresses into memory that is used again for each file.
pub struct Compressor {
    encoder: Encoder,
    output: Vec<u8>,
}

impl Compressor {
    /// With no memory yet.
    pub fn new() -> Compressor {
        Compressor { encoder: Encoder::new(), output: Vec::new() }
    }

    /// The input, compressed.
    pub fn compress(&mut self, input: &[u8]) -> Result<&[u8], snap::Error> {
        let bytes_max = max_compress_len(input.len());
        if self.output.len() < bytes_max {
            self.output.resize(bytes_max, 0);
        }
        let bytes = self.encoder.compress(input, &mut self.output)?;
        Ok(&self.output[..bytes])
    }
}

impl Default for Compressor {
    fn default() -> Compressor {
        Compressor::new()
    }
}

/// Sums up what was done.
#[derive(Debug, Default)]
pub struct Totals {
    files: u64,
    input_bytes: u64,
    output_bytes: u64,
}

impl Totals {
    /// One more file.
    pub fn add(&mut self, input: &[u8], output: &[u8]) {
        self.files += 1;
        self.input_bytes += input.len() as u64;
        self.output_bytes += output.len() as u64;
    }

    /// Reports it.
    pub fn tell(&self, report: &mut Report) -> Outcome<()> {
        report.count("files", self.files, "files")?;
        report.count("input", self.input_bytes, "bytes")?;
        report.count("output", self.output_bytes, "bytes")
    }
}

/// Looks outputs over: each one has to give its input when it is decompressed.
#[derive(Debug, Default)]
pub struct Check {
    checksum: Checksum,
}

impl Check {
    /// The next file.
    pub fn file(&mut self, name: &Path, input: &[u8], output: &[u8]) -> Outcome<()> {
        let decompressed = Decoder::new().decompress_vec(output);
        if !decompressed.is_ok_and(|decompressed| decompressed == input) {
            return Err(damaged(name, "what was compressed does not give it again"));
        }
        self.checksum.add(output);
        Ok(())
    }

    /// Reports the checksum of all outputs.
    pub fn tell(&self, report: &mut Report) -> Outcome<()> {
        report.checksum(self.checksum.value())
    }
}

/// What an output's file is called.
fn compressed(options: &Options, name: &str) -> PathBuf {
    options.file(COMPRESSED).join(format!("{name}.sz"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn memory_of_a_large_file_serves_small_ones_too() {
        let (large, small) = (vec![7; 100_000], b"a small file".to_vec());
        let mut compressor = Compressor::default();
        let mut check = Check::default();
        for input in [&large, &small, &large] {
            let output = compressor.compress(input).unwrap().to_vec();
            check.file(Path::new("file"), input, &output).unwrap();
        }
        let wrong = compressor.compress(&large).unwrap().to_vec();
        assert!(check.file(Path::new("file"), &small, &wrong).is_err());
    }
}
