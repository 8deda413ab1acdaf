//! Stores laid-out pages between runs. A second visit maps the stored page and paints it, without
//! parsing, styling, shaping or layout. `docs/viewer.md` specifies the stored format.

#[cfg(all(feature = "fetch", feature = "window"))]
mod browser;
#[cfg(feature = "engine")]
pub mod engine;
mod error;
#[cfg(feature = "fetch")]
pub mod fetch;
#[cfg(feature = "fetch")]
mod find;
#[cfg(feature = "fetch")]
mod fonts;
#[cfg(feature = "fetch")]
mod home;
mod layout;
#[cfg(feature = "fetch")]
pub mod manifest;
#[cfg(feature = "fetch")]
mod notes;
pub mod page;
#[cfg(feature = "fetch")]
pub mod page_store;
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
mod stored_object;
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
pub use find::{find_object, find_target};
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
pub use visit::{Finished, Layers, Shown, Visit, VisitOptions, visit};

/// Runs the example in the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
