//! The program's window: a toolbar, a page, a status line.
//!
//! The window asks a [`Browse`] for pages, on threads of their own, and paints what comes. What it does about an event is
//! decided in `state`, without a windowing system; `winit` alone knows that there is one.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use evermap_view::paint::SharedBytes;
//! use evermap_view::window::{Browse, Reuse, Visit, Waiting, WindowOptions, run};
//! use evermap_view::{Layout, Result, ViewError};
//!
//! struct Nothing;
//!
//! impl Browse for Nothing {
//!     fn visit(&self, address: &str, _: Layout, _: Reuse, _: &Waiting) -> Result<Visit> {
//!         let why = "there is nothing here".to_string();
//!         Err(ViewError::NotFound { name: address.to_string(), why })
//!     }
//!
//!     fn interface_font(&self) -> Option<(SharedBytes, u32)> {
//!         None
//!     }
//! }
//!
//! // Opens a window, and comes back when it is closed.
//! run(Arc::new(Nothing), "https://example.org/", WindowOptions::default())?;
//! # Ok::<(), ViewError>(())
//! ```

mod address_bar;
mod browse;
mod chrome;
mod clipboard;
#[cfg(test)]
mod fake;
mod find_bar;
mod frame;
mod geometry;
mod history;
mod icons;
mod keys;
mod look;
mod pointer;
mod prelude;
mod present;
mod scroll;
mod state;
#[cfg(test)]
mod tests;
mod text;
mod visits;
mod winit;
mod worker;

pub use browse::{Afterwards, Browse, Reuse, Stage, Visit, Waiting, WindowOptions};
pub use present::Presenter;
pub use winit::run;
