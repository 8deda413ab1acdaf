//! Facts for planning, gathered once without changing anything.

/// Facts about a file and this machine before a load. [`Loader::probe`](crate::Loader::probe)
/// gathers all of them. A load gathers only those that its plan needs; the others have the values
/// that mean unknown.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Facts {
    /// Bytes to load.
    pub bytes: u64,
    /// Name of the file system.
    pub file_system: String,
    /// The file system keeps files in memory only.
    pub is_in_memory: bool,
    /// The file system is read-only and may compress this file.
    pub is_compressed: bool,
    /// The file system can share blocks between files.
    pub shares_blocks: bool,
    /// Nothing can change the file.
    pub is_unchangeable: bool,
    /// Bytes of the part in the page cache; `None` if unknown.
    pub resident_bytes: Option<u64>,
    /// Cached bytes not yet written to disk.
    pub dirty_bytes: u64,
    /// Alignment of direct reads; `None` if not supported or unknown.
    pub direct_block_bytes: Option<u64>,
    /// Available memory, if known.
    pub available_bytes: Option<u64>,
    /// Source of the memory limit: the system or a control group.
    pub available_limit: &'static str,
    /// Number of processors that this process may use; 1 if unknown.
    pub processors: usize,
    /// Read rate of the device, in bytes a second, if known.
    pub device_bytes_per_s: Option<f64>,
}

impl Facts {
    /// Returns the share of the part in the page cache, 0 if unknown.
    pub fn resident_share(&self) -> f64 {
        match self.bytes {
            0 => 1.0,
            bytes => (self.resident_bytes.unwrap_or(0) as f64 / bytes as f64).min(1.0),
        }
    }
}
