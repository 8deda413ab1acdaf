//! The page block: its format, how it is made, how it is read.

mod aligned;
mod block;
mod clusters;
mod encode;
mod extent;
mod find;
mod glyphs;
mod guarded;
pub(crate) mod layout;
mod parts;
mod recorder;
mod size;
mod tables;

pub use aligned::AlignedBytes;
pub(crate) use block::{AnyShape, slice};
pub use block::{Block, Link, PartRef};
pub use find::Match;
pub(crate) use guarded::Guarded;
pub use guarded::PageBytes;
pub use layout::FORMAT_VERSION;
pub use parts::{Part, PartKind};
pub use recorder::{Recorded, Recorder};
pub use size::{HEIGHT_MAX, PageSize, WIDTH_MAX};
