//! Files, read and written in blocks of a given size, as the C library's stdio does: one system
//! call a block.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use crate::error::{OfFile, Outcome};

/// A file to be read in blocks of this size.
pub fn reader(path: &Path, block_bytes: usize) -> Outcome<BufReader<File>> {
    Ok(BufReader::with_capacity(block_bytes, File::open(path).of(path)?))
}

/// A new file to be written in blocks of this size.
pub fn writer(path: &Path, block_bytes: usize) -> Outcome<BufWriter<File>> {
    Ok(BufWriter::with_capacity(block_bytes, File::create(path).of(path)?))
}

/// Writes what is left, and gives the file back, so that it can be made durable.
pub fn finish(writer: BufWriter<File>, path: &Path) -> Outcome<File> {
    writer.into_inner().map_err(|error| error.into_error()).of(path)
}

/// Reads a file into memory of its size, each block straight to its place.
pub fn read_whole(path: &Path, block_bytes: usize) -> Outcome<Vec<u8>> {
    let mut contents = Vec::new();
    read_into(path, block_bytes, &mut contents)?;
    Ok(contents)
}

/// As [`read_whole`], into memory that was used before.
pub fn read_into(path: &Path, block_bytes: usize, contents: &mut Vec<u8>) -> Outcome<()> {
    let mut file = File::open(path).of(path)?;
    let bytes = file.metadata().of(path)?.len() as usize;
    // Zeroed once only: what is there from an earlier file is overwritten.
    contents.resize(bytes, 0);
    for block in contents.chunks_mut(block_bytes) {
        file.read_exact(block).of(path)?;
    }
    Ok(())
}

/// Writes a new file, a block at a time.
pub fn write_whole(path: &Path, block_bytes: usize, contents: &[u8]) -> Outcome<()> {
    let mut file = File::create(path).of(path)?;
    for block in contents.chunks(block_bytes) {
        file.write_all(block).of(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_is_written_in_blocks_is_read_in_blocks_of_another_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let contents: Vec<u8> = (0..10_000).map(|n| n as u8).collect();
        write_whole(&path, 512, &contents).unwrap();
        assert_eq!(read_whole(&path, 4096).unwrap(), contents);

        let mut used = vec![1; 20_000];
        read_into(&path, 333, &mut used).unwrap();
        assert_eq!(used, contents);
    }

    #[test]
    fn a_file_that_is_missing_is_named() {
        let error = read_whole(Path::new("/nowhere/words"), 512).unwrap_err().to_string();
        assert!(error.contains("/nowhere/words"), "{error}");
    }
}
