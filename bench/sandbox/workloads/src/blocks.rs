//! Reads and writes files in blocks of a given size, as the C library's stdio does: one system call
//! per block.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use crate::error::{OfFile, Outcome};

/// Opens a file for reading in blocks of this size.
pub fn reader(path: &Path, block_bytes: usize) -> Outcome<BufReader<File>> {
    Ok(BufReader::with_capacity(block_bytes, File::open(path).of(path)?))
}

/// Creates a file for writing in blocks of this size.
pub fn writer(path: &Path, block_bytes: usize) -> Outcome<BufWriter<File>> {
    Ok(BufWriter::with_capacity(block_bytes, File::create(path).of(path)?))
}

/// Writes the rest of the buffer and returns the file, so that the caller can make it durable.
pub fn finish(writer: BufWriter<File>, path: &Path) -> Outcome<File> {
    writer.into_inner().map_err(|error| error.into_error()).of(path)
}

/// Reads a file into memory of its size, each block directly to its place.
pub fn read_whole(path: &Path, block_bytes: usize) -> Outcome<Vec<u8>> {
    let mut contents = Vec::new();
    read_into(path, block_bytes, &mut contents)?;
    Ok(contents)
}

/// Like [`read_whole`], but reuses memory.
pub fn read_into(path: &Path, block_bytes: usize, contents: &mut Vec<u8>) -> Outcome<()> {
    let mut file = File::open(path).of(path)?;
    let bytes = file.metadata().of(path)?.len() as usize;
    // Zeroes only new memory: bytes of an earlier file are overwritten.
    contents.resize(bytes, 0);
    for block in contents.chunks_mut(block_bytes) {
        file.read_exact(block).of(path)?;
    }
    Ok(())
}

/// Writes a new file block by block.
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
    fn a_file_can_be_read_with_another_block_size_than_it_was_written() {
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
    fn a_missing_file_is_named() {
        let error = read_whole(Path::new("/nowhere/words"), 512).unwrap_err().to_string();
        assert!(error.contains("/nowhere/words"), "{error}");
    }
}
