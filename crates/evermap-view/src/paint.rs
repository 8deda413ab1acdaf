//! Page blocks to pixels.

mod bounds;
mod page;
mod painter;
pub(crate) mod replay;
mod strips;

pub use page::{Page, Parts, SharedBytes};
pub use painter::{Area, Painted, Painter};
pub use strips::{STRIP_ROWS, StripPacker, Strips};
