//! Parses the journal of a partial copy according to its format, independently of the code that
//! writes it.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

const HEADER_BYTES: usize = 128;
const RECORD_BYTES: usize = 24;

/// A journal with a valid header.
pub struct Journal {
    device: u64,
    inode: u64,
    spans: Vec<std::ops::Range<u64>>,
}

/// Returns `.NAME` with `ending`, next to `target`.
pub fn beside(target: &str, ending: &str) -> PathBuf {
    let target = Path::new(target);
    let name = target.file_name().unwrap().to_string_lossy();
    target.with_file_name(format!(".{name}.{ending}"))
}

/// Returns the path of a target's partial copy.
pub fn part_of(target: &str) -> PathBuf {
    beside(target, "evermap-part")
}

/// Returns the path of its journal.
pub fn journal_of(target: &str) -> PathBuf {
    beside(target, "evermap-part.journal")
}

/// Reads the journal of `target`'s partial copy. Returns `None` if it guarantees nothing.
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

    /// Returns true if the journal belongs to a copy of `source`.
    pub fn is_of(&self, source: &Path) -> bool {
        let source = source.metadata().unwrap();
        (self.device, self.inode) == (source.dev(), source.ino())
    }

    /// Returns true if the partial copy has everything that the journal guarantees.
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
