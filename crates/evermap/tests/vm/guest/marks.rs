//! Promises among a recorded disk's writes. Each is one direct write after the file system's end,
//! so it enters the recording after the writes that it promises and before later ones.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use crate::disk_log::{SECTOR, mark_sector};

/// Device that promises are written to.
pub struct Marks {
    disk: File,
    offset_bytes: u64,
    memory: Vec<u8>,
}

impl Marks {
    pub fn open(disk: &str, offset_bytes: u64) -> Marks {
        let mut options = std::fs::OpenOptions::new();
        let disk = options.write(true).custom_flags(libc::O_DIRECT).open(disk).unwrap();
        Marks { disk, offset_bytes, memory: vec![0; 2 * SECTOR] }
    }

    /// Records a promise.
    pub fn write(&mut self, line: &str) {
        // Direct I/O needs memory that is aligned to the sector size.
        let aligned = self.memory.as_ptr().align_offset(SECTOR);
        let sector = &mut self.memory[aligned..aligned + SECTOR];
        sector.copy_from_slice(&mark_sector(line));
        self.disk.write_all_at(sector, self.offset_bytes).unwrap();
    }
}
