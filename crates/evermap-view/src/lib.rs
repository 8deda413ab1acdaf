//! Pages that stay laid out between runs: the second visit neither parses nor styles nor shapes nor lays out, it maps the
//! page and paints. `docs/viewer.md` describes what is kept, to the byte.

mod error;
#[cfg(feature = "fetch")]
pub mod fetch;
pub mod page;
pub mod paint;
#[cfg(feature = "window")]
pub mod window;

pub use error::{Result, ViewError};
