//! A television's user interface that is on the screen at the next start.
//!
//! Its menus, posters and programme guide come as XML. A program usually parses that at each start and builds a tree of
//! it. Here the tree, laid out, is kept as an object of an Evermap store, and the next start maps it.

mod art;
mod canvas;
pub mod compare;
pub mod contents;
mod draw;
mod error;
pub mod fonts;
pub mod frame;
pub mod generate;
pub mod keep;
pub mod kept;
pub mod layout;
pub mod model;
pub mod plain;
pub mod start;
pub mod state;
pub mod times;
pub mod window;

pub use error::{Result, TvError};
