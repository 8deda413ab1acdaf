//! The viewer's window: a toolbar, the page and a status line.
//!
//! The window requests pages from a [`Browse`] on worker threads and paints the results. `state`
//! decides how to handle each event, without a windowing system. Only `winit` talks to the
//! windowing system.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use evermap_view::paint::SharedBytes;
//! use evermap_view::window::{Browse, Reuse, Visit, Progress, WindowOptions, run};
//! use evermap_view::{Layout, Result, ViewError};
//!
//! struct NoPages;
//!
//! impl Browse for NoPages {
//!     fn visit(&self, address: &str, _: Layout, _: Reuse, _: &Progress) -> Result<Visit> {
//!         let why = "this example has no pages".to_string();
//!         Err(ViewError::NotFound { name: address.to_string(), why })
//!     }
//!
//!     fn interface_font(&self) -> Option<(SharedBytes, u32)> {
//!         None
//!     }
//! }
//!
//! // Opens a window and returns when it is closed.
//! run(Arc::new(NoPages), "https://example.org/", WindowOptions::default())?;
//! # Ok::<(), ViewError>(())
//! ```

mod address_bar;
mod browse;
mod canvas;
mod chrome;
mod clipboard;
mod event;
#[cfg(test)]
mod fake;
mod find_bar;
mod first_frame;
mod frame;
mod geometry;
mod history;
mod icons;
mod keys;
mod links;
mod pointer;
mod present;
mod scroll;
mod state;
#[cfg(test)]
mod tests;
mod text;
mod visits;
mod winit;
mod worker;
mod zoom;

pub use browse::{AfterShown, Browse, Progress, Reuse, Stage, Visit, WindowOptions};
pub use present::Presenter;
pub use winit::run;
