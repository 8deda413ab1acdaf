//! The journal of a part as its format says it is, read without the code that writes it.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

const HEADER_BYTES: usize = 128;
const RECORD_BYTES: usize = 24;

/// A journal whose header is whole.
pub struct Journal {
    device: u64,
    inode: u64,
    spans: Vec<std::ops::Range<u64>>,
}

/// `.NAME` with `ending`, beside `target`.
pub fn beside(target: &str, ending: &str) -> PathBuf {
    let target = Path::new(target);
    let name = target.file_name().unwrap().to_string_lossy();
    target.with_file_name(format!(".{name}.{ending}"))
}

/// Where the part of a target is.
pub fn part_of(target: &str) -> PathBuf {
    beside(target, "evermap-part")
}

/// Where its journal is.
pub fn journal_of(target: &str) -> PathBuf {
    beside(target, "evermap-part.journal")
}

/// Reads the journal of the part of `target`, if there is one that vouches for anything.
pub fn read(target: &str) -> Option<Journal> {
    let bytes = std::fs::read(journal_of(target)).ok()?;
    let (header, records) = bytes.split_at_checked(HEADER_BYTES)?;
    let word = |bytes: &[u8], at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).ok();
    let long = |bytes: &[u8], at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
    let is_sound = |bytes: &[u8]| {
        let (summed, sum) = bytes.split_at(bytes.len() - 4);
        sum == crc32c::crc32c(summed).to_le_bytes()
    };
    if !header.starts_with(b"EVMPART\n") || word(header, 8)? != 1 || !is_sound(header) {
        return None;
    }
    let salt = word(header, 12)?;
    let spans = records
        .chunks_exact(RECORD_BYTES)
        .take_while(|record| is_sound(record) && word(record, 16) == Some(salt))
        .map_while(|record| Some(long(record, 0)?..long(record, 8)?))
        .collect();
    Some(Journal { device: long(header, 16)?, inode: long(header, 24)?, spans })
}

impl Journal {
    pub fn vouched_bytes(&self) -> u64 {
        self.spans.iter().map(|span| span.end - span.start).sum()
    }

    /// Whether it is that of a part of `source`.
    pub fn is_of(&self, source: &Path) -> bool {
        let source = source.metadata().unwrap();
        (self.device, self.inode) == (source.dev(), source.ino())
    }

    /// Whether the part has what it vouches for.
    pub fn check(&self, source: &Path, part: &Path) -> Result<(), String> {
        let files = [source, part].map(|path| File::open(path).map_err(|e| e.to_string()));
        let [source, part] = files;
        let (source, part) = (source?, part?);
        for span in &self.spans {
            let mut bytes = [0; 2].map(|_| vec![0; (span.end - span.start) as usize]);
            source.read_exact_at(&mut bytes[0], span.start).map_err(|e| e.to_string())?;
            let arrived = part.read_exact_at(&mut bytes[1], span.start);
            if arrived.is_err() || bytes[0] != bytes[1] {
                return Err(format!("the journal vouches for {span:?}, which the part has not"));
            }
        }
        Ok(())
    }
}
