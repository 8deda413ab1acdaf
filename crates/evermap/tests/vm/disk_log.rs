//! Log of the writes to a disk, in order, as written by QEMU's `blklogwrites`, and the disk after a
//! power failure at any position in it.
//!
//! The format is that of the kernel's dm-log-writes target: a superblock, then entries of one
//! sector each, followed by their data. A flush makes every write before it durable. Of the writes
//! after it, each sector may be there or not.

use crate::random::Random;

pub const SECTOR: usize = 512;
const MAGIC: u64 = 0x6a_7366_7773_6872;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;

/// Sectors of a block of the file system.
const SECTORS_PER_BLOCK: usize = 8;

/// Returns true if ext4 relies on this block being written atomically. It writes its superblock and
/// its journal's in place, with checksums, and refuses to mount torn ones.
fn written_whole(begins: &[usize], sector: usize, block: &[u8]) -> bool {
    const JOURNAL_MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];
    let is_journal_superblock =
        block.starts_with(&JOURNAL_MAGIC) && matches!(block.get(4..8), Some([0, 0, 0, 3 | 4]));
    let is_superblock =
        begins.iter().any(|begin| (*begin..begin + SECTORS_PER_BLOCK).contains(&sector));
    is_superblock || is_journal_superblock
}

/// Magic of a sector with a promise.
const MARK_MAGIC: &[u8; 8] = b"EVERMARK";

/// One request.
pub struct Entry {
    sector: u64,
    flags: u64,
    /// Position of its data in the log.
    data: std::ops::Range<usize>,
}

/// A log in memory.
pub struct DiskLog {
    bytes: Vec<u8>,
    pub entries: Vec<Entry>,
    /// First sectors of its file systems.
    pub begins: Vec<usize>,
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

impl DiskLog {
    /// Reads a log. If there are more entries than its superblock says, reads all of them.
    pub fn parse(bytes: Vec<u8>) -> Result<DiskLog, String> {
        if word(&bytes, 0) != Some(MAGIC) {
            return Err("not a log of writes".to_string());
        }
        let sector = bytes.get(24..28).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
        if sector != Some(SECTOR as u32) {
            return Err(format!("sectors of {sector:?} bytes"));
        }
        let mut entries = Vec::new();
        let mut at = SECTOR;
        while let (Some(sector), Some(count), Some(flags)) =
            (word(&bytes, at), word(&bytes, at + 8), word(&bytes, at + 16))
        {
            if count == 0 && flags == 0 {
                break;
            }
            at += SECTOR;
            let length = if flags & DISCARD != 0 { 0 } else { count as usize * SECTOR };
            if bytes.len() < at + length {
                return Err(format!("entry {} is truncated", entries.len()));
            }
            entries.push(Entry { sector, flags, data: at..at + length });
            at += length;
        }
        Ok(DiskLog { bytes, entries, begins: vec![0] })
    }

    /// Returns true if everything before entry `index` is durable after it.
    pub fn is_flush(&self, index: usize) -> bool {
        self.entries[index].flags & FLUSH != 0
    }

    fn data(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.data.clone()]
    }

    /// Returns the promise in entry `index`, if it is a mark.
    pub fn mark(&self, index: usize) -> Option<&str> {
        let data = self.data(&self.entries[index]);
        let line = data.strip_prefix(MARK_MAGIC)?;
        let end = line.iter().position(|b| *b == 0)?;
        std::str::from_utf8(&line[..end]).ok()
    }

    /// Applies entry `index` to `image`.
    pub fn apply(&self, index: usize, image: &mut [u8]) -> Result<(), String> {
        self.apply_sectors(index, image, |_| true)
    }

    fn apply_sectors(
        &self,
        index: usize,
        image: &mut [u8],
        mut wanted: impl FnMut(usize) -> bool,
    ) -> Result<(), String> {
        let entry = &self.entries[index];
        if entry.flags & DISCARD != 0 {
            return Err(format!("entry {index} discards, which nobody asked for"));
        }
        for (i, data) in self.data(entry).chunks_exact(SECTOR).enumerate() {
            let at = (entry.sector as usize + i) * SECTOR;
            // Marks are stored after the image.
            if let Some(place) = image.get_mut(at..at + SECTOR).filter(|_| wanted(i)) {
                place.copy_from_slice(data);
            }
        }
        Ok(())
    }

    /// Applies a part of the sectors of entry `index`.
    fn apply_torn(
        &self,
        index: usize,
        image: &mut [u8],
        random: &mut Random,
    ) -> Result<(), String> {
        let entry = &self.entries[index];
        let data = self.data(entry);
        let mut block_is_kept = true;
        self.apply_sectors(index, image, |i| {
            let at = entry.sector as usize + i;
            if i == 0 || at.is_multiple_of(SECTORS_PER_BLOCK) {
                block_is_kept = random.below(2) == 0;
            }
            let kept = random.below(2) == 0;
            let block = i - (at % SECTORS_PER_BLOCK).min(i);
            if written_whole(&self.begins, at, &data[block * SECTOR..]) {
                block_is_kept
            } else {
                kept
            }
        })
    }

    /// Applies entries `start..end`, none of them a flush, as a power failure before `end` may
    /// leave them.
    pub fn apply_some(
        &self,
        entries: std::ops::Range<usize>,
        image: &mut [u8],
        random: &mut Random,
    ) -> Result<(), String> {
        // Sometimes none, sometimes all, otherwise each on its own.
        let all = match random.below(8) {
            0 => Some(false),
            1 | 2 => Some(true),
            _ => None,
        };
        for index in entries {
            let kept_whole = self.entries[index].flags & FUA != 0 || all == Some(true);
            match random.below(4) {
                _ if kept_whole => self.apply(index, image)?,
                _ if all == Some(false) => {}
                0 | 1 => self.apply(index, image)?,
                2 => self.apply_torn(index, image, random)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns the sector that marks a promise in the log.
pub fn mark_sector(line: &str) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    sector[..8].copy_from_slice(MARK_MAGIC);
    sector[8..8 + line.len()].copy_from_slice(line.as_bytes());
    sector
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(log: &mut Vec<u8>, sector: u64, flags: u64, data: &[u8]) {
        let start = log.len();
        for word in [sector, (data.len() / SECTOR) as u64, flags, 0] {
            log.extend_from_slice(&word.to_le_bytes());
        }
        log.resize(start + SECTOR, 0);
        log.extend_from_slice(data);
    }

    fn sample() -> DiskLog {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&1u64.to_le_bytes());
        bytes.extend_from_slice(&4u64.to_le_bytes());
        bytes.extend_from_slice(&(SECTOR as u32).to_le_bytes());
        bytes.resize(SECTOR, 0);
        push(&mut bytes, 1, 0, &[1; 2 * SECTOR]);
        push(&mut bytes, 0, FLUSH, &[]);
        push(&mut bytes, 10, 0, &[2; 2 * SECTOR]);
        push(&mut bytes, 4, 0, &[3; 2 * SECTOR]);
        push(&mut bytes, 100, 0, &mark_sector("promise 3 4 ."));
        bytes.resize(bytes.len() + SECTOR, 0);
        DiskLog::parse(bytes).unwrap()
    }

    #[test]
    fn a_log_of_writes_is_read_entry_by_entry() {
        let log = sample();
        assert_eq!(log.entries.len(), 5);
        assert!((0..5).all(|i| log.is_flush(i) == (i == 1)));
        assert_eq!(log.mark(0), None);
        assert_eq!(log.mark(4), Some("promise 3 4 ."));
        let mut image = vec![0; 12 * SECTOR];
        (0..5).for_each(|i| log.apply(i, &mut image).unwrap());
        assert_eq!([0, 1, 2, 3, 5, 11].map(|i| image[i * SECTOR]), [0, 1, 1, 0, 3, 2]);
    }

    #[test]
    fn a_power_failure_leaves_any_unflushed_writes_chosen_by_the_seed() {
        let log = sample();
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..300 {
            let replayed = || {
                let mut image = vec![0; 12 * SECTOR];
                log.apply_some(2..5, &mut image, &mut Random::new(seed)).unwrap();
                [4, 5, 10, 11].map(|i| image[i * SECTOR])
            };
            assert_eq!(replayed(), replayed());
            assert_eq!(replayed()[0], replayed()[1], "the file system's superblock is whole");
            seen.insert(replayed());
        }
        assert_eq!(seen.len(), 8, "the superblock or not; both sectors, either, none");
    }

    #[test]
    fn invalid_and_truncated_logs_are_refused() {
        assert!(DiskLog::parse(vec![0; SECTOR]).is_err());
        let whole = sample().bytes;
        assert!(DiskLog::parse(whole[..whole.len() - 2 * SECTOR].to_vec()).is_err());
    }
}
