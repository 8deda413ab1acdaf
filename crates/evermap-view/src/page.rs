//! The page block: its format, how it is made, how it is read.

mod block;
mod clusters;
mod extent;
mod find;
mod glyphs;
mod guarded;
pub(crate) mod layout;
mod parts;
mod recorder;
mod tables;

pub(crate) use block::{AnyShape, slice};
pub use block::{Block, HEIGHT_MAX, Link, PartRef, WIDTH_MAX};
pub use find::Match;
pub(crate) use guarded::Guarded;
pub use guarded::PageBytes;
pub use layout::FORMAT_VERSION;
pub use parts::{Part, PartKind};
pub use recorder::{PageSize, Recorded, Recorder};
pub use tables::AlignedBytes;
