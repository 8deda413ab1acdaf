//! Counts and outcome of a tree copy, which its meter, its report and its error share.

/// Numbers of copied entries and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Counts {
    /// Regular files. An inode with several names counts once.
    pub files: u64,
    /// Directories, including the root.
    pub directories: u64,
    /// Further names of files copied under another name.
    pub links: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// FIFOs, sockets and devices.
    pub special: u64,
    /// Bytes moved or shared.
    pub bytes: u64,
    /// Bytes in holes, which were not moved.
    pub hole_bytes: u64,
}

/// State of the target after a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Outcome {
    /// The target is new and complete, or has all entries that could be copied.
    Published,
    /// The tree was merged into an existing target, file by file.
    Merged,
    /// The new target was removed because some entries could not be copied.
    Removed,
}
