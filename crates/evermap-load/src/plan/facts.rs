//! What a plan is made from: gathered once, and touched nothing.

/// What is known of a file and of this machine before a load.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Facts {
    /// Bytes to load.
    pub bytes: u64,
    /// Name of the file system.
    pub file_system: String,
    /// It keeps files in memory only.
    pub is_in_memory: bool,
    /// It can only be read, and may keep this file compressed.
    pub is_compressed: bool,
    /// It can share blocks between files.
    pub shares_blocks: bool,
    /// Nothing can change the file.
    pub is_unchangeable: bool,
    /// Bytes of it in the page cache; `None` where the kernel does not tell.
    pub resident_bytes: Option<u64>,
    /// Bytes of it in the page cache that are not on the disk yet.
    pub dirty_bytes: u64,
    /// Blocks of direct reads; `None` where there are none.
    pub direct_block_bytes: Option<u64>,
    /// Memory that can be had.
    pub available_bytes: Option<u64>,
    /// Who limits it: the system or a control group.
    pub available_limit: &'static str,
    /// Processors that this process may use.
    pub processors: usize,
    /// What the device reads by itself, if that is known, in bytes a second.
    pub device_bytes_per_s: Option<f64>,
}

impl Facts {
    /// Share of the file that is in the page cache; 0 if not known.
    pub fn resident_share(&self) -> f64 {
        match self.bytes {
            0 => 1.0,
            bytes => (self.resident_bytes.unwrap_or(0) as f64 / bytes as f64).min(1.0),
        }
    }
}
