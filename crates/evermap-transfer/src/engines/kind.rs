//! Kinds of engines, their names, and how often each copies a byte.

use crate::end::{Ends, Kind};

/// Kinds of engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum EngineKind {
    /// `read` into a buffer and `write` from it. Works everywhere.
    ReadWrite,
    /// `write` from a mapping of the source.
    MmapWrite,
    /// Direct writes from a mapping of the source.
    MmapDirect,
    /// `sendfile`.
    Sendfile,
    /// `splice` through one pipe, or one per lane.
    Splice,
    /// `splice` through two pipes in parallel, one per half of the file.
    DualPipe,
    /// Like `DualPipe`, but with alternating chunks.
    DualPipeInterleaved,
    /// `copy_file_range`.
    CopyFileRange,
    /// Shared extents. No bytes move.
    Reflink,
    /// io_uring reads and writes through registered buffers.
    Uring,
    /// Linked io_uring splices.
    UringSplice,
    /// Direct io_uring reads and writes, bypassing the page cache.
    UringDirect,
}

impl EngineKind {
    /// All kinds.
    pub const ALL: [EngineKind; 12] = [
        EngineKind::ReadWrite,
        EngineKind::MmapWrite,
        EngineKind::MmapDirect,
        EngineKind::Sendfile,
        EngineKind::Splice,
        EngineKind::DualPipe,
        EngineKind::DualPipeInterleaved,
        EngineKind::CopyFileRange,
        EngineKind::Reflink,
        EngineKind::Uring,
        EngineKind::UringSplice,
        EngineKind::UringDirect,
    ];

    /// Returns the name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::ReadWrite => "read-write",
            EngineKind::MmapWrite => "mmap-write",
            EngineKind::MmapDirect => "mmap-direct",
            EngineKind::Sendfile => "sendfile",
            EngineKind::Splice => "splice",
            EngineKind::DualPipe => "dual-pipe",
            EngineKind::DualPipeInterleaved => "dual-pipe-interleaved",
            EngineKind::CopyFileRange => "copy-file-range",
            EngineKind::Reflink => "reflink",
            EngineKind::Uring => "uring",
            EngineKind::UringSplice => "uring-splice",
            EngineKind::UringDirect => "uring-direct",
        }
    }

    /// Returns processor copies per byte between these ends. Measured by sampling the kernel's copy
    /// routines, see `docs/transfer.md`. Copies by devices are not counted.
    pub fn copies(self, ends: &Ends<'_>) -> u8 {
        let to_socket = ends.target.kind() == Kind::Socket;
        match self {
            EngineKind::ReadWrite | EngineKind::Uring => 2,
            EngineKind::MmapWrite => 1,
            EngineKind::Sendfile
            | EngineKind::Splice
            | EngineKind::DualPipe
            | EngineKind::DualPipeInterleaved
            | EngineKind::UringSplice => u8::from(!to_socket),
            EngineKind::CopyFileRange => 1,
            EngineKind::Reflink | EngineKind::MmapDirect | EngineKind::UringDirect => 0,
        }
    }

    /// Returns the kind with this name.
    pub fn from_name(name: &str) -> Option<EngineKind> {
        EngineKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl std::fmt::Display for EngineKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
