//! snappy: compresses the files of a browser's cache, each into a separate output.
//!
//! `posix` opens, reads, writes and closes files, block by block; `mmap` maps each input instead of
//! reading it; `heap` has inputs and outputs as named blocks. All compress into reused memory
//! first, because the size is known only afterwards, and then store the result.
//!
//! Guests have no `mmap`. Their C library emulates it: it reads the whole file into memory, and
//! `munmap` frees that. Variant `mmap` uses the emulation there.

mod files;
mod heap;

use std::path::{Path, PathBuf};

use snap::raw::{Decoder, Encoder, max_compress_len};

use crate::blocks;
use crate::error::{Outcome, damaged};
use crate::hash::Checksum;
use crate::options::Options;
use crate::report::Report;

/// Folder with the inputs and their list.
pub const CACHE: &str = "cache";
/// List with the name and size of a file on each line.
pub const LIST: &str = "list.txt";
/// Folder for outputs.
pub const COMPRESSED: &str = "compressed";

/// Runs one step of the program.
pub fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    match (options.variant.as_str(), options.step.as_str()) {
        ("posix", "run") => files::run::<files::Posix>(options, report),
        ("mmap", "run") => files::run::<files::Mapped>(options, report),
        ("heap", "prepare") => heap::prepare(options, report),
        ("heap", "run") => heap::run(options, report),
        _ => Err(options.unknown("`posix run`, `mmap run`, `heap prepare` and `heap run`")),
    }
}

/// Returns the names of the inputs, in the order of compression.
pub fn list(options: &Options) -> Outcome<Vec<String>> {
    let path = options.file(CACHE).join(LIST);
    names(&blocks::read_whole(&path, options.block_bytes)?, &path)
}

fn names(list: &[u8], path: &Path) -> Outcome<Vec<String>> {
    let list = str::from_utf8(list).map_err(|error| damaged(path, error.to_string()))?;
    let names = list.lines().filter_map(|line| line.split(' ').next());
    Ok(names.map(str::to_string).collect())
}

/// Compresses into memory that is reused for each file.
pub struct Compressor {
    encoder: Encoder,
    output: Vec<u8>,
}

impl Compressor {
    /// Creates a compressor without memory.
    pub fn new() -> Compressor {
        Compressor { encoder: Encoder::new(), output: Vec::new() }
    }

    /// Returns the compressed input.
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

/// Totals of the compressed files.
#[derive(Debug, Default)]
pub struct Totals {
    files: u64,
    input_bytes: u64,
    output_bytes: u64,
}

impl Totals {
    /// Adds one file.
    pub fn add(&mut self, input: &[u8], output: &[u8]) {
        self.files += 1;
        self.input_bytes += input.len() as u64;
        self.output_bytes += output.len() as u64;
    }

    /// Reports the totals.
    pub fn write_to(&self, report: &mut Report) -> Outcome<()> {
        report.count("files", self.files, "files")?;
        report.count("input", self.input_bytes, "bytes")?;
        report.count("output", self.output_bytes, "bytes")
    }
}

/// Checks that each output decompresses to its input.
#[derive(Debug, Default)]
pub struct Check {
    checksum: Checksum,
}

impl Check {
    /// Checks the next file.
    pub fn file(&mut self, name: &Path, input: &[u8], output: &[u8]) -> Outcome<()> {
        let decompressed = Decoder::new().decompress_vec(output);
        if !decompressed.is_ok_and(|decompressed| decompressed == input) {
            return Err(damaged(name, "does not decompress to its input"));
        }
        self.checksum.add(output);
        Ok(())
    }

    /// Reports the checksum of all outputs.
    pub fn write_to(&self, report: &mut Report) -> Outcome<()> {
        report.checksum(self.checksum.value())
    }
}

/// Returns the path of an output.
fn compressed(options: &Options, name: &str) -> PathBuf {
    options.file(COMPRESSED).join(format!("{name}.sz"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn memory_of_a_large_file_is_reused_for_small_ones() {
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
