//! User interface of a television that is on the screen immediately at the next start.
//!
//! Menus, posters and programme guide are XML files. A program usually parses them at each start
//! and builds a tree. This program stores the tree, laid out, as an object of an Evermap store, and
//! the next start maps it.

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
