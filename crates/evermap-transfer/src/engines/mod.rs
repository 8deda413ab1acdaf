//! The engines: one file each, one way to move bytes each.
//!
//! An engine is asked whether it can serve two ends (`probe`), moves some of what is due (`step`), and at last gives
//! back what it holds (`drain`). It owns its pipes, rings and mappings, but neither the ends nor the account: what
//! has arrived is struck off [`Work`] when it is in the target, so another engine can go on at any point.
//!
//! Engines know nothing of names, attributes, policy or progress bars.

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

/// One way to move bytes.
pub trait Engine: Send {
    /// Which one.
    fn kind(&self) -> EngineKind;

    /// Whether it can serve these ends, as far as that can be told without moving anything. What it
    /// says no to, it would be refused by the kernel, or do wrongly.
    fn probe(&mut self, ends: &Ends<'_>) -> Result<(), WhyNot>;

    /// Moves up to about `bytes_max` bytes of what is due, and strikes off what has arrived.
    ///
    /// `Ok` means that something arrived, or that nothing is due any more. Whatever stops it, `work` is true: all that
    /// is not in it is in the target.
    fn step(
        &mut self,
        ends: &Ends<'_>,
        work: &mut Work,
        meter: &Meter,
        bytes_max: u64,
    ) -> Result<(), Stop>;

    /// Brings what it holds to the target where it cannot be had from the source again, as the bytes of a pipe or a
    /// socket that were taken already; forgets the rest. Called after the last step, successful or not; once
    /// more, or before another step, if the target would not take it then.
    fn drain(&mut self, ends: &Ends<'_>, work: &mut Work, meter: &Meter) -> Result<(), Stop>;
}

/// The engines there are, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum EngineKind {
    /// `read` into a buffer, `write` from it: works everywhere.
    ReadWrite,
    /// The source is mapped and its pages are written.
    MmapWrite,
    /// The source is mapped, and its pages go to the device by direct writes.
    MmapDirect,
    /// `sendfile`.
    Sendfile,
    /// `splice` through one pipe, or through one a lane.
    Splice,
    /// `splice` through two pipes in parallel, each with a half of the file.
    DualPipe,
    /// The same, with chunks taken in turn.
    DualPipeInterleaved,
    /// `copy_file_range`.
    CopyFileRange,
    /// Shared extents: no byte moves.
    Reflink,
    /// A ring of reads and writes through registered buffers.
    Uring,
    /// A ring of linked splices.
    UringSplice,
    /// A ring of direct reads and writes that pass the page cache by.
    UringDirect,
}

impl EngineKind {
    /// All of them.
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

    /// As it is called on the command line and in reports.
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

    /// How often the processor copies each byte on this way between these ends: measured by sampling the kernel's
    /// copy routines, see `docs/transfer.md`. Copies by devices are not counted.
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

    /// The one of this name.
    pub fn from_name(name: &str) -> Option<EngineKind> {
        EngineKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl std::fmt::Display for EngineKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What engines can be told beside what to move. [`Default`] has the measured values.
#[derive(Debug, Clone)]
pub struct Tuning {
    /// Bytes a call of reading and writing: 256 KiB stay in the processor's cache between the two.
    pub chunk_bytes: usize,
    /// Bytes of the source that are mapped at a time: from 2 to 32 MiB cost the same.
    pub window_bytes: usize,
    /// Bytes that are written from a mapping by one call. More make larger folios in the target's cache, which gain nothing more,
    /// and are dear where a host has to give their memory first: 1.4 s instead of 0.3 for 1 GiB.
    pub mapped_write_bytes: usize,
    /// The same, to be written directly: one write, long enough that the device hardly waits for the next.
    pub direct_window_bytes: usize,
    /// Bytes a pipe holds: 1 MiB is what an unprivileged user may have, and sixteen times fewer calls than 64 KiB.
    pub pipe_bytes: usize,
    /// Pipes that work at a time, in engines that have lanes.
    pub lanes: usize,
    /// Buffers of a ring that are on their way at a time.
    pub ring_depth: usize,
    /// Bytes of one of a ring's buffers.
    pub ring_chunk_bytes: usize,
    /// A race between engines that nobody has measured yet is held in copies of so many bytes: shorter ones are over before it
    /// would gain anything.
    pub raced_bytes_min: u64,
    /// What each engine moves at a time in a race.
    pub heat_bytes: u64,
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
            raced_bytes_min: 256 << 20,
            heat_bytes: 8 << 20,
        }
    }
}

/// Makes an engine.
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

/// Why an engine does not serve, or goes on no further. Nothing is wrong: another one may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhyNot(pub String);

impl WhyNot {
    /// In words.
    pub fn new(why: impl Into<String>) -> WhyNot {
        WhyNot(why.into())
    }
}

impl std::fmt::Display for WhyNot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What ends a step before its work is done.
#[derive(Debug)]
pub enum Stop {
    /// The kernel will not do it this way; another engine goes on where this one was.
    Refused(WhyNot),
    /// The source has ended at this offset, which was confirmed, and more was due.
    SourceEnded {
        /// Where.
        at_bytes: u64,
    },
    /// A call failed, and no other engine would do better.
    Failed {
        /// On which end.
        side: Side,
        /// As in "cannot ...".
        operation: &'static str,
        /// Why.
        errno: rustix::io::Errno,
    },
    /// It was told to.
    Cancelled,
}

impl Stop {
    /// As an error about these ends.
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
                    "it ended at byte {at_bytes}, and had {} before",
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
            Stop::Cancelled => Error::Cancelled { left: "nothing is left behind".into() },
        }
    }
}
