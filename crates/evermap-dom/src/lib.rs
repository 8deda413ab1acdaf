//! HTML and XML documents as one block of plain tables that is opened again without parsing.
//!
//! A page is parsed once into [`Tables`] and written as one position-independent block: into a
//! store's mapped object, a file or shared memory. [`Dom::new`] opens the block later, in any
//! process at any address. It checks the header, and then everything is available: tree,
//! attributes, text, and indexes by id, class and name, so most CSS queries touch only matching
//! elements.
//!
//! ```
//! use evermap_dom::{Dom, Selector, html};
//!
//! let page = "<h1>News</h1><ul class=feed><li><a href=/1>One</a><li><a href=/2>Two</a></ul>";
//! let block = html::parse(page, &Default::default())?.to_block();
//!
//! let dom = Dom::new(block.as_bytes())?; // below a microsecond at any size
//! let links: Selector = "ul.feed > li a[href]".parse()?;
//! for link in dom.select(&links) {
//!     println!("{} -> {}", link.text(), link.attr("href").unwrap_or_default());
//! }
//! assert_eq!(dom.count(&links), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Trust
//!
//! The crate has no handwritten `unsafe` code. [`Dom::new`] checks the header only. If the tables
//! are damaged, queries give wrong answers, but no query panics, loops endlessly or reads outside
//! the block. [`Dom::validate`] checks a block from an untrusted source in one linear pass.
#![deny(unsafe_code)]

mod arena;
mod classes;
mod dom;
mod encoding;
mod error;
mod hash;
pub mod html;
mod index;
mod known;
mod known_names;
mod layout;
mod names;
mod node;
mod object;
mod room;
mod select;
mod serialize;
mod tables;
mod validate;
pub mod xml;

pub use dom::{DocumentKind, Dom, QuirksMode};
pub use error::{InvalidDocument, ParseError, ParseErrorKind};
pub use layout::FORMAT_VERSION;
pub use node::{
    Ancestors, AttributeRef, Attributes, Children, Descendants, DoctypeRef, NodeKind, NodeRef,
};
pub use object::{Document, NewBlock, NewDocument, NewNamed, Source};
pub use select::{Select, Selector, SelectorError, SelectorErrorKind};
pub use tables::{Block, Tables};

/// The example in the README runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
