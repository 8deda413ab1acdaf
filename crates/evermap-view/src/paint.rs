//! Page blocks to pixels.

mod bounds;
mod page;
mod painter;
mod pixels;
pub(crate) mod replay;
mod strip_codec;
mod strips;

pub use page::{Page, Parts, SharedBytes};
pub use painter::{Area, Painted, Painter};
pub use pixels::Pixels;
pub use strips::{STRIP_ROWS, StripPacker, Strips};
