//! Parsing XML.
//!
//! quick-xml finds the tags. `build` makes the checks that quick-xml does not (one root, names,
//! attributes, namespaces, characters) and appends to the tables, which are in document order from
//! the start. Entities of the internal subset are expanded, external files are never read. Not
//! supported: default attribute values and attribute types from a DTD.

mod bindings;
mod build;
mod doctype;
mod scan;

use crate::encoding::decode_xml;
use crate::error::ParseError;
use crate::tables::Tables;

/// Options of the XML parser.
///
/// ```
/// use evermap_dom::xml::{self, XmlOptions};
///
/// let tables = xml::parse("<a/>", &XmlOptions { index: false })?;
/// assert!(!tables.to_block().dom().is_indexed());
/// # Ok::<(), evermap_dom::ParseError>(())
/// ```
#[derive(Clone, Debug)]
pub struct XmlOptions {
    /// Build the id, class and name indexes. On by default.
    pub index: bool,
}

impl Default for XmlOptions {
    fn default() -> XmlOptions {
        XmlOptions { index: true }
    }
}

/// Parses a text.
///
/// ```
/// use evermap_dom::xml;
///
/// let source = r#"<r><i n="1"/><i n="2">x</i></r>"#;
/// let block = xml::parse(source, &Default::default())?.to_block();
/// let dom = block.dom();
/// assert_eq!(dom.select_first(&"i[n='2']".parse().unwrap()).unwrap().text(), "x");
/// # Ok::<(), evermap_dom::ParseError>(())
/// ```
pub fn parse(text: &str, options: &XmlOptions) -> Result<Tables, ParseError> {
    build::parse(text, options, text.len() as u64)
}

/// Parses bytes in the encoding of their byte order mark or XML declaration, otherwise in UTF-8.
/// Invalid bytes are an error.
///
/// ```
/// use evermap_dom::xml;
///
/// let source = b"<?xml version='1.0' encoding='ISO-8859-1'?><a>caf\xE9</a>";
/// let block = xml::parse_bytes(source, &Default::default())?.to_block();
/// assert_eq!(block.dom().root_element().unwrap().text(), "café");
/// # Ok::<(), evermap_dom::ParseError>(())
/// ```
pub fn parse_bytes(bytes: &[u8], options: &XmlOptions) -> Result<Tables, ParseError> {
    build::parse(&decode_xml(bytes)?, options, bytes.len() as u64)
}
