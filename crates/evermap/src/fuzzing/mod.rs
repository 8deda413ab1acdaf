//! Entry points for fuzzing: each parses bytes as an untrusted file and returns nothing.
//!
//! These functions return for any input: no panic, no overflow, no endless loop, and no more memory
//! than a small multiple of the input. The `fuzz` directory runs them under libFuzzer; an ordinary
//! test runs them over its corpus and mutations of it. Not part of the public interface.

mod allocator;
mod forge;
pub(crate) mod memory;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytemuck::pod_read_unaligned;

use crate::commit::Log;
use crate::format::{KIND_CATALOG, KIND_OBJECT, PAGE_BYTES, Superblock};
use crate::object::{Identity, LogSource, read_superblock};
use crate::storage::File;
pub use allocator::allocator;
use memory::MemoryFile;

/// Flags in the first byte of an input: parts whose checksums and links are made valid.
const FORGE_SUPERBLOCK: u8 = 1;
const FORGE_HEADERS: u8 = 2;
const FORGE_RECORDS: u8 = 4;
/// Flag: the object is parsed as a catalog.
const AS_CATALOG: u8 = 8;

/// Maximum length of a hole: longer than any region of a valid input.
const HOLE_BYTES_MAX: u64 = 1 << 32;

/// Parses an object's page 0 like every open, with the log that it may need.
///
/// Input: flags; log2 of the file's length; page 0; the log.
pub fn superblock(input: &[u8]) {
    let Some((&[flags, length], rest)) = input.split_first_chunk() else { return };
    let split = rest.len().min(PAGE_BYTES as usize);
    let mut page = rest[..split].to_vec();
    let mut log = rest[split..].to_vec();
    if flags & FORGE_SUPERBLOCK != 0 {
        forge::superblock(&mut page);
    }
    if let Some(bytes) = page.get(..PAGE_BYTES as usize) {
        forge_log(flags, &mut log, pod_read_unaligned::<Superblock>(bytes).object_uuid);
    }
    let file = MemoryFile::new("object", &page, (1 << (length % 48)).min(HOLE_BYTES_MAX));
    let log: Arc<dyn File> = MemoryFile::new("log", &log, 0);
    let kind = if flags & AS_CATALOG == 0 { KIND_OBJECT } else { KIND_CATALOG };
    let identity = Identity { store_uuid: None, object_uuid: None, kind };
    let _ = crate::object::peek(&*file);
    let Ok(loaded) = read_superblock(&*file, LogSource::File(&log), &identity) else { return };
    // Use a valid superblock as a reader and `info` do.
    let s = &loaded.superblock;
    let _ = (s.name(), s.schema());
    for region in s.regions() {
        assert!(region.base + region.capacity > region.base && region.length <= region.capacity);
        assert!(region.file_offset + region.length <= s.file_length);
    }
}

/// Parses a redo log like every open.
///
/// Input: flags; the object's uuid; the log.
pub fn log(input: &[u8]) {
    let Some((&[flags], rest)) = input.split_first_chunk() else { return };
    let Some((&uuid, log)) = rest.split_first_chunk() else { return };
    let mut log = log.to_vec();
    forge_log(flags, &mut log, uuid);
    let length = log.len();
    let file: Arc<dyn File> = MemoryFile::new("log", &log, 0);
    let Ok((opened, commits)) = Log::open(Arc::clone(&file), uuid, 0) else { return };
    let pages = commits.iter().flat_map(|commit| commit.pages());
    let lines: usize = pages
        .map(|(_, mask, lines)| {
            assert_eq!(mask.count_ones() as usize * 64, lines.len());
            lines.len()
        })
        .sum();
    assert!(lines <= length, "a log holds no more than its length");
    let position = opened.position();
    // A torn record looks like one that is being written, so any answer is correct.
    assert!(Log::moved_since(&*file, uuid, position, opened.sequence()).is_ok());
}

fn forge_log(flags: u8, log: &mut [u8], object_uuid: [u8; 16]) {
    if flags & FORGE_HEADERS == 0 {
        return;
    }
    let header = forge::log_headers(log, object_uuid);
    if flags & FORGE_RECORDS != 0 {
        forge::log_records(log, &header);
    }
}
