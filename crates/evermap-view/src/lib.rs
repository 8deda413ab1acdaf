//! Pages that stay laid out between runs: the second visit neither parses nor styles nor shapes nor lays out, it maps the
//! page and paints. `docs/viewer.md` describes what is kept, to the byte.

#[cfg(all(feature = "fetch", feature = "window"))]
mod browser;
#[cfg(feature = "engine")]
pub mod engine;
mod error;
#[cfg(feature = "fetch")]
pub mod fetch;
#[cfg(feature = "fetch")]
mod fonts;
#[cfg(feature = "fetch")]
mod home;
#[cfg(feature = "fetch")]
pub mod keep;
#[cfg(feature = "fetch")]
mod kept_object;
mod layout;
#[cfg(feature = "fetch")]
pub mod manifest;
#[cfg(feature = "fetch")]
mod notes;
pub mod page;
pub mod paint;
#[cfg(feature = "fetch")]
mod protocol;
#[cfg(feature = "fetch")]
mod prune;
#[cfg(feature = "engine")]
mod retry;
#[cfg(feature = "fetch")]
mod run_engine;
#[cfg(feature = "fetch")]
mod target;
#[cfg(feature = "fetch")]
mod visit;
#[cfg(feature = "window")]
pub mod window;

#[cfg(all(feature = "fetch", feature = "window"))]
pub use browser::Browser;
pub use error::{Result, ViewError};
#[cfg(feature = "fetch")]
pub use fonts::FontSet;
#[cfg(feature = "fetch")]
pub use home::HOME;
pub use layout::Layout;
#[cfg(feature = "fetch")]
pub use protocol::Times;
#[cfg(feature = "fetch")]
pub use prune::prune;
#[cfg(feature = "fetch")]
pub use target::Target;
#[cfg(feature = "fetch")]
pub use visit::{Layers, Visit, VisitOptions, visit, visit_whole};

/// The example in the README runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
