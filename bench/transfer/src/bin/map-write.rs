//! Copies a file with exactly one copy of each byte, from page to page: `map-write SOURCE
//! DESTINATION`.
//!
//! The source is mapped and populated, and written from the mapping: only `write` itself copies.

use std::fs::File;
use std::io::Write;
use std::process::ExitCode;

const WRITTEN_BYTES: usize = 1 << 20;

fn main() -> ExitCode {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    let [source, destination] = &arguments[..] else {
        eprintln!("map-write SOURCE DESTINATION");
        return ExitCode::FAILURE;
    };
    match File::open(source).and_then(|source| copy(&source, File::create(destination)?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("map-write: {error}");
            ExitCode::FAILURE
        }
    }
}

fn copy(source: &File, mut destination: File) -> std::io::Result<()> {
    // SAFETY: the benchmark owns both files, and no process changes or truncates them during
    // the run.
    let map = unsafe { memmap2::MmapOptions::new().populate().map(source) }?;
    map.chunks(WRITTEN_BYTES).try_for_each(|part| destination.write_all(part))
}
