//! `evermap view`, `render`, `prefetch`: pages that are laid out once and stored.

mod common;
mod prefetch;
mod render;
mod window;

pub use prefetch::Prefetch;
pub use render::Render;
pub use window::View;
