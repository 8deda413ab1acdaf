//! One copy of each byte, from a file's pages to another's, as a program: `map-write SOURCE DESTINATION`.
//!
//! The source is mapped, with all of its pages, and written from there: nothing but `write` itself copies.

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
    // SAFETY: files of a benchmark's own, which nobody changes or cuts short while it runs.
    let map = unsafe { memmap2::MmapOptions::new().populate().map(source) }?;
    map.chunks(WRITTEN_BYTES).try_for_each(|part| destination.write_all(part))
}
