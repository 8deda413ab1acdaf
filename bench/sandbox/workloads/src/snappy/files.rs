//! snappy with files, which are read or mapped.

use std::path::Path;

use super::{CACHE, COMPRESSED, Check, Compressor, Totals, compressed, list};
use crate::blocks;
use crate::error::{OfFile, Outcome, damaged};
use crate::options::Options;
use crate::report::{Report, Watch};

/// Access to a file's contents.
pub trait Input {
    /// Creates the input without a file.
    fn new(options: &Options) -> Self;
    /// Calls `look` with the contents of this file.
    fn with<T>(&mut self, path: &Path, look: impl FnOnce(&[u8]) -> Outcome<T>) -> Outcome<T>;
}

/// Reads into memory that is reused for each file.
pub struct Posix {
    block_bytes: usize,
    contents: Vec<u8>,
}

impl Input for Posix {
    fn new(options: &Options) -> Posix {
        Posix { block_bytes: options.block_bytes, contents: Vec::new() }
    }

    fn with<T>(&mut self, path: &Path, look: impl FnOnce(&[u8]) -> Outcome<T>) -> Outcome<T> {
        blocks::read_into(path, self.block_bytes, &mut self.contents)?;
        look(&self.contents)
    }
}

/// Maps each file, and unmaps it.
pub struct Mapped;

impl Input for Mapped {
    fn new(_options: &Options) -> Mapped {
        Mapped
    }

    #[cfg(unix)]
    fn with<T>(&mut self, path: &Path, look: impl FnOnce(&[u8]) -> Outcome<T>) -> Outcome<T> {
        let file = std::fs::File::open(path).of(path)?;
        // SAFETY: the data set belongs to the measurement, and no process changes it during the
        // call.
        let mapping = unsafe { memmap2::Mmap::map(&file) }.of(path)?;
        look(&mapping)
    }

    #[cfg(not(unix))]
    fn with<T>(&mut self, path: &Path, look: impl FnOnce(&[u8]) -> Outcome<T>) -> Outcome<T> {
        look(&std::fs::read(path).of(path)?)
    }
}

/// Compresses all files.
pub fn run<I: Input>(options: &Options, report: &mut Report) -> Outcome<()> {
    let folder = options.file(COMPRESSED);
    // Removes old outputs: existing files keep their blocks, new ones need some.
    if folder.exists() {
        std::fs::remove_dir_all(&folder).of(&folder)?;
    }
    std::fs::create_dir(&folder).of(&folder)?;

    let mut watch = Watch::start();
    let names = list(options)?;
    let (mut input, mut compressor, mut totals) =
        (I::new(options), Compressor::new(), Totals::default());
    for name in &names {
        let path = options.file(CACHE).join(name);
        input.with(&path, |contents| {
            let output = compressor.compress(contents);
            let output = output.map_err(|error| damaged(&path, error.to_string()))?;
            totals.add(contents, output);
            blocks::write_whole(&compressed(options, name), options.block_bytes, output)
        })?;
    }
    report.time("time", watch.lap())?;
    if options.durable {
        for name in &names {
            let path = compressed(options, name);
            std::fs::File::open(&path).and_then(|file| file.sync_all()).of(&path)?;
        }
        report.time("durable", watch.lap())?;
    }
    totals.write_to(report)?;
    if options.check { check(options, &names, report) } else { Ok(()) }
}

fn check(options: &Options, names: &[String], report: &mut Report) -> Outcome<()> {
    let mut check = Check::default();
    for name in names {
        let path = options.file(CACHE).join(name);
        let input = blocks::read_whole(&path, 1 << 20)?;
        check.file(&path, &input, &blocks::read_whole(&compressed(options, name), 1 << 20)?)?;
    }
    check.write_to(report)
}
