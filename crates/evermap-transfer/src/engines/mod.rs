//! Engines: one per file, each with one mechanism for moving bytes.
//!
//! An engine checks whether it supports two ends (`probe`), moves some of the remaining bytes
//! (`step`), and returns what it holds (`drain`). It owns its pipes, rings and mappings, but not
//! the ends and not the [`Work`](crate::Work). Bytes leave `Work` when they are in the target, so
//! another engine can continue at any point.
//!
//! Engines know no names, attributes, policy or progress display.

mod calls;
mod copy_file_range;
mod direct;
mod engine;
mod kind;
mod mapped;
mod read_write;
mod reflink;
mod ring;
mod sendfile;
mod splice;
mod tuning;

pub use copy_file_range::CopyFileRange;
pub use engine::{Engine, Refusal, Stop};
pub use kind::EngineKind;
pub use mapped::{MmapDirect, MmapWrite};
pub use read_write::ReadWrite;
pub use reflink::Reflink;
pub use ring::{Uring, UringSplice};
pub use sendfile::Sendfile;
pub use splice::{Pattern, Splice};
pub use tuning::Tuning;

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
