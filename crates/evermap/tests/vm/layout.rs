//! Layout of a recorded disk: one file system from its start, or several in partitions. Promises
//! are stored after them.

/// Sector size in which partitions are measured.
const SECTOR_BYTES: u64 = 512;

/// A file system on a recorded disk.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Start of the file system: 0 only if it is the only one.
    pub offset: u64,
    pub bytes: u64,
    pub inodes: u32,
    /// Mount point.
    pub place: &'static str,
}

impl Part {
    /// The only file system of a disk.
    pub const fn whole(bytes: u64, inodes: u32) -> Part {
        Part { offset: 0, bytes, inodes, place: "/mnt" }
    }
}

/// Returns the length that all of them take from the disk's start.
pub fn image_bytes(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.offset + part.bytes).max().unwrap_or(0)
}

/// Returns a disk's first sector with its partitions, as an MBR table, which every kernel reads.
pub fn partition_table(parts: &[Part]) -> [u8; SECTOR_BYTES as usize] {
    const ENTRIES: usize = 446;
    const ENTRY_BYTES: usize = 16;
    const LINUX: u8 = 0x83;
    let mut sector = [0; SECTOR_BYTES as usize];
    for (part, entry) in parts.iter().zip(sector[ENTRIES..].chunks_exact_mut(ENTRY_BYTES)) {
        entry[4] = LINUX;
        for (field, bytes) in [(8, part.offset), (12, part.bytes)] {
            let sectors = (bytes / SECTOR_BYTES) as u32;
            entry[field..field + 4].copy_from_slice(&sectors.to_le_bytes());
        }
    }
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}
