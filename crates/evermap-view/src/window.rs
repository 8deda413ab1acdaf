//! The program's window: a toolbar, a page, a status line.
//!
//! The window asks a [`Browse`] for pages, on threads of their own, and paints what comes. What it does about an event is
//! decided in `state`, without a windowing system; `winit` alone knows that there is one.

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
mod scroll;
mod state;
#[cfg(test)]
mod tests;
mod text;
mod visits;
mod winit;
mod worker;

pub use browse::{Afterwards, Browse, Layout, Stage, Visit, Waiting, WindowOptions};
pub use winit::run;
