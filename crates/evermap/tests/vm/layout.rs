//! How file systems lie on a disk that is recorded: one from its beginning on, or several in partitions. Promises lie behind them.

/// The length of a sector, by which partitions are counted.
const SECTOR_BYTES: u64 = 512;

/// A file system on a recorded disk.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Where it begins: 0 only if it is the only one.
    pub offset: u64,
    pub bytes: u64,
    pub inodes: u32,
    /// Where it is mounted.
    pub place: &'static str,
}

impl Part {
    /// The only one of its disk.
    pub const fn whole(bytes: u64, inodes: u32) -> Part {
        Part { offset: 0, bytes, inodes, place: "/mnt" }
    }
}

/// What all of them take, from the disk's beginning on.
pub fn image_bytes(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.offset + part.bytes).max().unwrap_or(0)
}

/// A disk's first sector, which tells the kernel where its partitions are: the oldest kind of table, which every kernel reads.
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
