//! The name table of a document while it is being built.
//!
//! A well-known name in the default namespace of its use (elements: HTML in an HTML document, none
//! in XML; attributes: none) is its fixed id and takes no space. Every other name gets an entry
//! with its namespace and prefix. html5ever's atoms are never stored: their numbers change between
//! its versions, and some are addresses.

use std::collections::HashMap;

use crate::arena::Arena;
use crate::hash;
use crate::known::{self, KNOWN_COUNT};
use crate::layout::{NAME_COUNT_MAX, Name, Span};

/// The default namespace of the use: HTML for elements of HTML documents, otherwise none.
pub(crate) const NAMESPACE_DEFAULT: u32 = 0;
/// XHTML, as an explicit namespace of an XML document.
pub(crate) const NAMESPACE_HTML: u32 = 1;
pub(crate) const NAMESPACE_SVG: u32 = 2;
pub(crate) const NAMESPACE_MATHML: u32 = 3;
pub(crate) const NAMESPACE_XLINK: u32 = 4;
pub(crate) const NAMESPACE_XML: u32 = 5;
pub(crate) const NAMESPACE_XMLNS: u32 = 6;

/// The URIs of the fixed namespace ids; ids from here on are in the block.
pub(crate) const FIXED_NAMESPACES: [&str; 7] = [
    "",
    "http://www.w3.org/1999/xhtml",
    "http://www.w3.org/2000/svg",
    "http://www.w3.org/1998/Math/MathML",
    "http://www.w3.org/1999/xlink",
    "http://www.w3.org/XML/1998/namespace",
    "http://www.w3.org/2000/xmlns/",
];

#[derive(Debug, Default)]
pub(crate) struct NameTable {
    names: Vec<Name>,
    namespaces: Vec<Span>,
    by_name: HashMap<(u32, Box<str>), u32>,
    by_local: HashMap<Box<str>, u32>,
    by_uri: HashMap<Box<str>, u32>,
    overflow: bool,
}

impl NameTable {
    pub(crate) fn overflowed(&self) -> bool {
        self.overflow
    }

    /// The id of a namespace URI.
    pub(crate) fn namespace(&mut self, arena: &mut Arena, uri: &str) -> u32 {
        if let Some(id) = FIXED_NAMESPACES.iter().position(|fixed| *fixed == uri) {
            return id as u32;
        }
        if let Some(&id) = self.by_uri.get(uri) {
            return id;
        }
        let id = (FIXED_NAMESPACES.len() + self.namespaces.len()) as u32;
        self.namespaces.push(Span { offset: arena.push(uri.as_bytes()), bytes: uri.len() as u32 });
        self.by_uri.insert(uri.into(), id);
        id
    }

    /// The id of a name; `qualified` is `prefix:local` or just the local name.
    pub(crate) fn intern(
        &mut self,
        arena: &mut Arena,
        qualified: &str,
        prefix_bytes: usize,
        namespace: u32,
    ) -> u32 {
        let local = match prefix_bytes {
            0 => qualified,
            prefix_bytes => &qualified[prefix_bytes + 1..],
        };
        let known = known::find(local);
        if let (Some(id), 0, NAMESPACE_DEFAULT) = (known, prefix_bytes, namespace) {
            return id;
        }
        // A local name may hold a colon in HTML, so the prefix is part of what makes a name.
        let key = (namespace << 1 | u32::from(prefix_bytes > 0), qualified.into());
        if let Some(&id) = self.by_name.get(&key) {
            return id;
        }
        let id = KNOWN_COUNT + self.names.len() as u32;
        if id >= NAME_COUNT_MAX {
            self.overflow = true;
            return 0;
        }
        let shared = match known {
            Some(known) => known,
            None => *self.by_local.entry(local.into()).or_insert(id),
        };
        self.names.push(Name {
            hash: hash::stored(local.as_bytes()),
            namespace,
            offset: arena.push(qualified.as_bytes()),
            bytes: qualified.len() as u32,
            prefix_bytes: prefix_bytes as u32,
            local: shared,
        });
        self.by_name.insert(key, id);
        id
    }

    /// The qualified spelling of a name.
    #[inline]
    pub(crate) fn qualified<'a>(&self, arena: &'a Arena, name: u32) -> &'a [u8] {
        match name.checked_sub(KNOWN_COUNT) {
            None => known::name(name).unwrap_or_default().as_bytes(),
            Some(dynamic) => {
                let entry = &self.names[dynamic as usize];
                arena.slice(entry.offset, entry.bytes)
            }
        }
    }

    /// The namespace id of a name.
    #[inline]
    pub(crate) fn namespace_of(&self, name: u32) -> u32 {
        name.checked_sub(KNOWN_COUNT)
            .map_or(NAMESPACE_DEFAULT, |dynamic| self.names[dynamic as usize].namespace)
    }

    /// The id that all names with the local name of `name` share.
    #[inline]
    pub(crate) fn local(&self, name: u32) -> u32 {
        match name.checked_sub(KNOWN_COUNT) {
            None => name,
            Some(dynamic) => self.names[dynamic as usize].local,
        }
    }

    /// The names, their order by hash, and the namespaces, as they are stored.
    pub(crate) fn finish(self) -> (Vec<Name>, Vec<u32>, Vec<Span>) {
        let mut order: Vec<u32> = (0..self.names.len() as u32).collect();
        order.sort_by_key(|&name| (self.names[name as usize].hash, name));
        (self.names, order, self.namespaces)
    }
}
