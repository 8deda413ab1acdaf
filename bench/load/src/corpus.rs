//! Files to load: tensors in the safetensors format, so that all subjects can load the same file.
//!
//! The first page is the head, padded with spaces. After it come 8-byte words, 512 to a page:
//! random words, or, for compressing file systems, a random half and a half that repeats in each
//! page.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use harness::Outcome;
use harness::random::Random;

use crate::work::PAGE_BYTES;

const SEED: u64 = 7;
const WORDS: usize = PAGE_BYTES / 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    Random,
    /// Half of each page is compressible.
    HalfCompressible,
}

/// Makes a file of this size, rounded down to pages, and syncs it to the disk.
pub fn make(folder: &Path, name: &str, bytes: u64, content: Content) -> Outcome<PathBuf> {
    let pages = bytes / PAGE_BYTES as u64;
    if pages < 2 {
        return Err(format!("{bytes} bytes: a file needs a head and at least one more page").into());
    }
    let path = folder.join(name);
    let file = File::create(&path)?;
    let mut output = BufWriter::with_capacity(1 << 20, &file);
    output.write_all(&head(pages - 1)?)?;
    // Files of the same size have different contents.
    let seed = name.bytes().fold(SEED ^ bytes, |seed, byte| seed.rotate_left(8) ^ u64::from(byte));
    let mut random = Random::new(seed);
    let mut page = [0; PAGE_BYTES];
    for _ in 1..pages {
        for (place, word) in page.chunks_exact_mut(8).enumerate() {
            let repeats = content == Content::HalfCompressible && place >= WORDS / 2;
            word.copy_from_slice(&if repeats { [b'r'; 8] } else { random.number().to_le_bytes() });
        }
        output.write_all(&page)?;
    }
    output.flush()?;
    drop(output);
    file.sync_all()?;
    Ok(path)
}

fn head(pages: u64) -> Outcome<Vec<u8>> {
    let bytes = pages * PAGE_BYTES as u64;
    let about = serde_json::json!({
        "data": { "dtype": "U64", "shape": [pages, WORDS], "data_offsets": [0, bytes] }
    });
    let mut head = ((PAGE_BYTES - 8) as u64).to_le_bytes().to_vec();
    serde_json::to_writer(&mut head, &about)?;
    head.resize(PAGE_BYTES, b' ');
    Ok(head)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_file_is_a_tensor_of_whole_pages_after_one_head_page() {
        let folder = tempfile::tempdir().unwrap();
        let path = make(folder.path(), "file", 10 * 4096 + 5, Content::Random).unwrap();
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(bytes.len(), 10 * 4096);
        assert_eq!(bytes[..8], 4088u64.to_le_bytes());
        let head: serde_json::Value = serde_json::from_slice(&bytes[8..4096]).unwrap();
        assert_eq!(head["data"]["data_offsets"][1], 9 * 4096);
        assert_eq!(head["data"]["shape"], serde_json::json!([9, 512]));
        assert!(make(folder.path(), "file", 4096, Content::Random).is_err());
    }

    #[test]
    fn half_of_a_compressible_page_repeats_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = make(folder.path(), "file", 3 * 4096, Content::HalfCompressible).unwrap();
        let bytes = std::fs::read(path).unwrap();
        let repeated = bytes[4096..].iter().filter(|byte| **byte == b'r').count();
        assert!((4096..4300).contains(&repeated), "{repeated}");
    }
}
