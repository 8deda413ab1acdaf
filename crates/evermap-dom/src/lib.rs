//! HTML and XML documents as one block of plain tables that reopens without parsing.
//!
//! A page is parsed once into [`Tables`] and written as one position-independent block: into a
//! store's mapped object, a file, shared memory. Opening that block later, in any process at any
//! address, is [`Dom::new`]: it looks at the header, and everything is there: tree, attributes,
//! text, and indexes by id, class and name that make most CSS queries touch only what they find.
//!
//! ```
//! use evermap_dom::{Dom, Selector, html};
//!
//! let page = "<h1>News</h1><ul class=feed><li><a href=/1>One</a><li><a href=/2>Two</a></ul>";
//! let block = html::parse(page, &Default::default())?.to_block();
//!
//! let dom = Dom::new(block.as_bytes())?; // microseconds, whatever the size
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
//! The crate has no `unsafe` code of its own. [`Dom::new`] checks the header only; with damaged tables behind
//! it, queries give wrong answers, but nothing panics, loops for ever or reads outside the block.
//! A block from someone else is checked in one linear pass by [`Dom::validate`].
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
