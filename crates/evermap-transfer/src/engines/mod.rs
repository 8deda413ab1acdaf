//! Engines: one per file, each with one mechanism for moving bytes.
//!
//! An engine checks whether it supports two ends (`probe`), moves some of the remaining bytes
//! (`step`), and returns what it holds (`drain`). It owns its pipes, rings and mappings, but not
//! the ends and not the [`Work`]. Bytes leave `Work` when they are in the target, so another engine
//! can continue at any point.
//!
//! Engines know no names, attributes, policy or progress display.

mod calls;
mod copy_file_range;
mod direct;
mod mapped;
mod read_write;
mod reflink;
mod ring;
mod sendfile;
mod splice;

use crate::end::{Ends, Kind};
use crate::error::{Error, Side};
use crate::meter::Meter;
use crate::span::Work;

pub use copy_file_range::CopyFileRange;
pub use mapped::{MmapDirect, MmapWrite};
pub use read_write::ReadWrite;
pub use reflink::Reflink;
pub use ring::{Uring, UringSplice};
pub use sendfile::Sendfile;
pub use splice::{Pattern, Splice};

/// A mechanism for moving bytes.
pub trait Engine: Send {
    /// Returns the engine's kind.
    fn kind(&self) -> EngineKind;

    /// Checks whether the engine supports these ends, as far as possible without moving bytes. It
    /// refuses ends that the kernel would refuse or that it would copy incorrectly.
    fn probe(&mut self, ends: &Ends<'_>) -> Result<(), Refusal>;

    /// Moves up to about `bytes_max` of the remaining bytes and removes the arrived ones from
    /// `work`.
    ///
    /// `Ok` means that bytes arrived or no work remains. On any error `work` is exact: all bytes
    /// not in it are in the target.
    fn step(
        &mut self,
        ends: &Ends<'_>,
        work: &mut Work,
        meter: &Meter,
        bytes_max: u64,
    ) -> Result<(), Stop>;

    /// Writes bytes that cannot be read from the source again (taken from a pipe or socket) to the
    /// target, and drops the rest. Called after the last step, successful or not. If the target did
    /// not accept the bytes, it is called again, or before another step.
    fn drain(&mut self, ends: &Ends<'_>, work: &mut Work, meter: &Meter) -> Result<(), Stop>;
}

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

/// Parameters of engines. [`Default`] has the measured values.
#[derive(Debug, Clone)]
pub struct Tuning {
    /// Bytes per read or write. 256 KiB stay in the processor's cache between the two.
    pub chunk_bytes: usize,
    /// Bytes of the source mapped at a time. All sizes from 2 to 32 MiB cost the same.
    pub window_bytes: usize,
    /// Bytes per write from a mapping. Larger writes create larger folios in the target's cache
    /// without further gain. They are slow if a host must first provide the memory: 1.4 s instead
    /// of 0.3 for 1 GiB.
    pub mapped_write_bytes: usize,
    /// Bytes per direct write from a mapping: long enough that the device hardly waits for the next
    /// one.
    pub direct_window_bytes: usize,
    /// Capacity of a pipe in bytes. 1 MiB is the limit for unprivileged users, and needs sixteen
    /// times fewer calls than 64 KiB.
    pub pipe_bytes: usize,
    /// Number of pipes used in parallel, in engines with lanes.
    pub lanes: usize,
    /// Number of ring buffers in flight.
    pub ring_depth: usize,
    /// Size of a ring buffer in bytes.
    pub ring_chunk_bytes: usize,
    /// Minimum size of a copy in which unmeasured engines race. Smaller copies end before a race
    /// pays off.
    pub race_bytes_min: u64,
    /// Bytes each engine moves per round of a race.
    pub race_round_bytes: u64,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            chunk_bytes: 256 << 10,
            window_bytes: 8 << 20,
            mapped_write_bytes: 1 << 20,
            direct_window_bytes: 16 << 20,
            pipe_bytes: 1 << 20,
            lanes: 1,
            ring_depth: 8,
            ring_chunk_bytes: 1 << 20,
            race_bytes_min: 256 << 20,
            race_round_bytes: 8 << 20,
        }
    }
}

/// Creates an engine.
pub fn make(kind: EngineKind, tuning: &Tuning) -> Box<dyn Engine> {
    match kind {
        EngineKind::ReadWrite => Box::new(ReadWrite::new(tuning)),
        EngineKind::MmapWrite => Box::new(MmapWrite::new(tuning)),
        EngineKind::MmapDirect => Box::new(MmapDirect::new(tuning)),
        EngineKind::Sendfile => Box::new(Sendfile),
        EngineKind::Splice => Box::new(Splice::new(kind, tuning, Pattern::Parts)),
        EngineKind::DualPipe => Box::new(Splice::dual(kind, tuning, Pattern::Parts)),
        EngineKind::DualPipeInterleaved => {
            Box::new(Splice::dual(kind, tuning, Pattern::Interleaved))
        }
        EngineKind::CopyFileRange => Box::new(CopyFileRange),
        EngineKind::Reflink => Box::new(Reflink),
        EngineKind::Uring | EngineKind::UringDirect => Box::new(Uring::new(kind, tuning)),
        EngineKind::UringSplice => Box::new(UringSplice::new(tuning)),
    }
}

/// Reason why an engine cannot start or continue. Not an error: another engine may work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub String);

impl Refusal {
    /// Creates a refusal with this reason.
    pub fn new(why: impl Into<String>) -> Refusal {
        Refusal(why.into())
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reason why a step ended early.
#[derive(Debug)]
pub enum Stop {
    /// The kernel refuses this mechanism. Another engine continues from here.
    Refused(Refusal),
    /// The source was confirmed to end at this offset, before the end of the work.
    SourceEnded {
        /// Offset of the end.
        at_bytes: u64,
    },
    /// A call failed in a way that no other engine can avoid.
    Failed {
        /// The end that failed.
        side: Side,
        /// The operation, as in "cannot ...".
        operation: &'static str,
        /// The system's error.
        errno: rustix::io::Errno,
    },
    /// The transfer was cancelled.
    Cancelled,
}

impl Stop {
    /// Converts this into an error about `ends`.
    pub fn into_error(self, engine: EngineKind, ends: &Ends<'_>) -> Error {
        let (source, target) = (ends.source.path().to_path_buf(), ends.target.path().to_path_buf());
        match self {
            Stop::Refused(why) => Error::Refused {
                engine: engine.name(),
                source_path: source,
                target_path: target,
                why: why.0,
            },
            Stop::SourceEnded { at_bytes } => Error::SourceChanged {
                path: source,
                what: format!(
                    "it ended at byte {at_bytes} instead of {}",
                    ends.source.size_bytes()
                ),
            },
            Stop::Failed {
                side: Side::Target,
                errno: rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT,
                ..
            } => Error::NoSpace { path: target, needed_bytes: ends.source.size_bytes() },
            Stop::Failed { side, operation, errno } => {
                let path = if side == Side::Source { source } else { target };
                Error::Io { operation, path, source: errno.into() }
            }
            Stop::Cancelled => Error::Cancelled { left: "no partial file remains".into() },
        }
    }
}
