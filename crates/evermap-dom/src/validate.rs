//! Validation of a whole block.
//!
//! One pass over every table. In a valid block, links form a tree in document order, references are
//! in range, text is UTF-8 at each boundary, and indexes list exactly the right elements. The pass
//! uses no recursion, and no memory except a list of the open elements.

use std::cell::Cell;

use crate::arena::read_length;
use crate::dom::Dom;
use crate::error::InvalidDocument;
use crate::hash;
use crate::index::Postings;
use crate::known::{CLASS, ID};
use crate::layout::*;
use crate::names::FIXED_NAMESPACES;

type Outcome = Result<(), InvalidDocument>;

fn damaged(what: &'static str, index: usize) -> InvalidDocument {
    InvalidDocument::Damaged { what, index: index as u64 }
}

fn check(good: bool, what: &'static str, index: usize) -> Outcome {
    match good {
        true => Ok(()),
        false => Err(damaged(what, index)),
    }
}

impl Dom<'_> {
    /// Checks every table, in time linear in the block. Afterwards the block is known to be
    /// consistent. Use it for blocks from untrusted sources.
    ///
    /// ```
    /// use evermap_dom::{Block, html};
    ///
    /// let block = html::parse("<p>text", &Default::default())?.to_block();
    /// assert!(block.dom().validate().is_ok());
    ///
    /// let mut bytes = block.as_bytes().to_vec();
    /// bytes[256 + 20] ^= 0xFF; // the parent of the first element
    /// assert!(Block::from_bytes(&bytes).dom().validate().is_err());
    /// # Ok::<(), evermap_dom::ParseError>(())
    /// ```
    pub fn validate(&self) -> Result<(), InvalidDocument> {
        let text = std::str::from_utf8(self.text_bytes())
            .map_err(|error| damaged("text is not UTF-8", error.valid_up_to()))?;
        let validator = Validator { dom: self, text, attributes_seen: Cell::new(0) };
        validator.names()?;
        validator.classes()?;
        validator.nodes()?;
        match self.is_indexed() {
            true => validator.indexes(),
            false => validator.no_indexes(),
        }
    }
}

struct Validator<'v, 'a> {
    dom: &'v Dom<'a>,
    text: &'v str,
    /// Attributes of the nodes checked so far. No two elements share a run, which also keeps this
    /// pass linear.
    attributes_seen: Cell<usize>,
}

impl Validator<'_, '_> {
    /// Returns true if a piece lies in the text section and starts and ends at character
    /// boundaries.
    fn is_text(&self, offset: u32, bytes: u32) -> bool {
        let end = offset as usize + bytes as usize;
        self.text.get(offset as usize..end).is_some()
    }

    /// Returns true if a length-prefixed value lies in the text section and starts and ends at
    /// character boundaries.
    fn is_value(&self, offset: u32) -> bool {
        read_length(self.text.as_bytes(), offset as usize)
            .is_some_and(|(bytes, at)| self.is_text(at as u32, bytes))
    }

    fn names(&self) -> Outcome {
        let dom = self.dom;
        let known_count = dom.header().known_count;
        let names: &[Name] = dom.section(NAMES);
        let namespaces: &[Span] = dom.section(NAMESPACES);
        for (at, span) in namespaces.iter().enumerate() {
            check(self.is_text(span.offset, span.bytes), "namespace", at)?;
        }
        let namespace_count = FIXED_NAMESPACES.len() + namespaces.len();
        let fits = names.len() as u64 + u64::from(known_count) <= u64::from(NAME_COUNT_MAX);
        check(fits, "number of names", names.len())?;
        for (at, name) in names.iter().enumerate() {
            let id = known_count + at as u32;
            check(self.is_text(name.offset, name.bytes), "name's text", at)?;
            let colon = name.offset as usize + name.prefix_bytes as usize;
            let prefix_fits = name.prefix_bytes == 0
                || name.prefix_bytes < name.bytes && self.text.as_bytes().get(colon) == Some(&b':');
            check(prefix_fits, "name's prefix", at)?;
            check((name.namespace as usize) < namespace_count, "name's namespace", at)?;
            let local = dom.local_bytes(id);
            check(name.hash == hash::stored(local), "name's hash", at)?;
            let shared = name.local <= id && dom.local_bytes(name.local) == local;
            check(shared, "name's local name", at)?;
        }
        let order: &[u32] = dom.section(NAME_ORDER);
        check(order.len() == names.len(), "number of names in order", order.len())?;
        let mut last = None;
        for (at, &name) in order.iter().enumerate() {
            let entry = names.get(name as usize);
            let key = entry.map(|entry| (entry.hash, name));
            check(key.is_some() && key > last, "order of names", at)?;
            last = key;
        }
        Ok(())
    }

    fn classes(&self) -> Outcome {
        let lists: &[ClassList] = self.dom.section(CLASS_LISTS);
        let list_tokens: &[u32] = self.dom.section(CLASS_LIST_TOKENS);
        let tokens: &[Token] = self.dom.section(TOKENS);
        let mut last = 0;
        for (at, list) in lists.iter().enumerate() {
            check(self.is_value(list.value), "class list's value", at)?;
            let first = list.first_token as usize;
            let rises = first >= last && first <= list_tokens.len() && (at > 0 || first == 0);
            check(rises, "class list's tokens", at)?;
            last = first;
        }
        for (at, list) in lists.iter().enumerate() {
            let next = lists.get(at + 1);
            let end = next.map_or(list_tokens.len(), |next| next.first_token as usize);
            let run = &list_tokens[list.first_token as usize..end];
            let rises = run.is_sorted_by(|a, b| a < b);
            let good = rises && run.last().is_none_or(|&last| (last as usize) < tokens.len());
            check(good, "tokens of a class list", at)?;
        }
        let unused = lists.is_empty() && !list_tokens.is_empty();
        check(!unused, "tokens of a class list", 0)?;
        let mut last_hash = 0;
        for (at, token) in tokens.iter().enumerate() {
            check(self.is_text(token.offset, token.bytes), "class token's text", at)?;
            let spelling = self.dom.token_bytes(at as u32);
            let hash = self.hash(spelling);
            check(token.hash == hash && hash >= last_hash, "class token's hash", at)?;
            last_hash = hash;
        }
        Ok(())
    }

    fn hash(&self, text: &[u8]) -> u32 {
        match self.dom.ignores_case() {
            true => hash::stored_ignoring_case(text),
            false => hash::stored(text),
        }
    }

    fn nodes(&self) -> Outcome {
        let nodes = self.dom.nodes;
        let count = nodes.len() as u32;
        let root = nodes[0];
        let good = root.kind() == DOCUMENT && root.parent == 0 && root.extent == count;
        check(good && root.data == NONE, "document node", 0)?;
        // The open containers and their ends; a node belongs to the innermost one.
        let mut open = vec![(0u32, count)];
        let mut fragments = 0u32;
        for (at, node) in nodes.iter().enumerate().skip(1) {
            let id = at as u32;
            while open.last().is_some_and(|&(_, end)| end <= id) {
                if let Some((closed, _)) = open.pop() {
                    fragments -= u32::from(nodes[closed as usize].kind() == FRAGMENT);
                }
            }
            let &(parent, end) = open.last().ok_or_else(|| damaged("extent", at))?;
            check(node.parent == parent, "parent", at)?;
            if node.is_container() {
                check(node.extent > id && node.extent <= end, "extent", at)?;
                open.push((id, node.extent));
            }
            fragments += u32::from(node.kind() == FRAGMENT);
            check(node.has(IN_FRAGMENT) == (fragments > 0), "fragment flag", at)?;
            self.node(id, node)?;
        }
        Ok(())
    }

    fn node(&self, id: u32, node: &Node) -> Outcome {
        let at = id as usize;
        let next = self.dom.nodes.get(at + 1);
        let has_contents = next.is_some_and(|next| next.kind() == FRAGMENT && next.parent == id);
        check(node.has(HAS_CONTENTS) == has_contents, "template contents", at)?;
        match node.kind() {
            ELEMENT => {
                check(self.is_name(node.name()), "element's name", at)?;
                self.attributes(node, at)
            }
            FRAGMENT => {
                let host = self.dom.node_at(node.parent);
                let good = node.parent + 1 == id && host.kind() == ELEMENT;
                check(good && node.data == NONE, "fragment", at)
            }
            TEXT_NODE | COMMENT | DOCTYPE => {
                check(self.is_text(node.data, node.extent), "text", at)
            }
            PROCESSING_INSTRUCTION => {
                let good = self.is_name(node.name()) && self.is_text(node.data, node.extent);
                check(good, "processing instruction", at)
            }
            _ => Err(damaged("kind", at)),
        }
    }

    fn is_name(&self, name: u32) -> bool {
        name < self.dom.header().known_count || self.dom.name_entry(name).is_some()
    }

    fn attributes(&self, node: &Node, at: usize) -> Outcome {
        let attributes = self.dom.attributes_of(*node);
        self.attributes_seen.set(self.attributes_seen.get() + attributes.len());
        let ended = (node.data == NONE || !attributes.is_empty())
            && self.attributes_seen.get() <= self.dom.attributes.len();
        check(ended, "element's attributes", at)?;
        let lists = self.dom.section::<ClassList>(CLASS_LISTS).len();
        let (mut has_id, mut has_class) = (false, false);
        for attribute in attributes {
            check(self.is_name(attribute.name()), "attribute's name", at)?;
            let good = match attribute.name() {
                CLASS => (attribute.value as usize) < lists,
                _ => self.is_value(attribute.value),
            };
            check(good, "attribute's value", at)?;
            has_class |= attribute.name() == CLASS;
            has_id |= attribute.name() == ID && !self.dom.value_bytes(*attribute).is_empty();
        }
        let good = node.has(HAS_ID) == has_id && node.has(HAS_CLASS) == has_class;
        check(good, "id and class flags", at)
    }

    /// Elements that indexes have to list.
    fn visible(&self, id: u32) -> Option<Node> {
        let node = self.dom.node_at(id);
        (node.kind() == ELEMENT && !node.has(IN_FRAGMENT)).then_some(node)
    }

    fn indexes(&self) -> Outcome {
        let dom = self.dom;
        let (mut elements, mut ids, mut classes) = (0u64, 0u64, 0u64);
        for id in 0..dom.nodes.len() as u32 {
            if let Some(node) = self.visible(id) {
                elements += 1;
                ids += u64::from(node.has(HAS_ID));
                classes += dom.class_tokens(node).len() as u64;
            }
        }
        let mut last = None;
        let entries: &[IdEntry] = dom.section(IDS);
        for (at, entry) in entries.iter().enumerate() {
            let node = self.visible(entry.node).filter(|node| node.has(HAS_ID));
            let node = node.ok_or_else(|| damaged("id entry", at))?;
            let mut run = dom.attributes_of(node).iter();
            let value = run.find(|attribute| attribute.name() == ID);
            let hash = value.map(|value| self.hash(dom.value_bytes(*value)));
            let key = Some((entry.hash, entry.node));
            check(hash == Some(entry.hash) && key > last, "id entry", at)?;
            last = key;
        }
        check(entries.len() as u64 == ids, "number of ids", entries.len())?;

        let names: &[NameEntry] = dom.section(NAME_INDEX);
        let mut list = Lists::new(dom.section(NAME_POSTINGS));
        let mut last = None;
        for (at, entry) in names.iter().enumerate() {
            check(entry.count > 0 && Some(entry.local) > last, "name index", at)?;
            last = Some(entry.local);
            list.check("name postings", at, entry.postings, entry.count, |id| {
                self.visible(id).is_some_and(|node| dom.local_id(node.name()) == entry.local)
            })?;
        }
        list.end("name postings", elements)?;

        let tokens: &[Token] = dom.section(TOKENS);
        let mut list = Lists::new(dom.section(CLASS_POSTINGS));
        for (at, token) in tokens.iter().enumerate() {
            list.check("class postings", at, token.postings, token.count, |id| {
                self.visible(id)
                    .is_some_and(|node| dom.class_tokens(node).binary_search(&(at as u32)).is_ok())
            })?;
        }
        list.end("class postings", classes)
    }

    fn no_indexes(&self) -> Outcome {
        for section in [CLASS_POSTINGS, IDS, NAME_INDEX, NAME_POSTINGS] {
            let bytes = self.dom.header().sections[section].bytes;
            check(bytes == 0, "index in a block without one", section)?;
        }
        Ok(())
    }
}

/// Lists that must be adjacent and contain a given number of ids together.
struct Lists<'a> {
    bytes: &'a [u8],
    at: usize,
    total: u64,
}

impl<'a> Lists<'a> {
    fn new(bytes: &'a [u8]) -> Lists<'a> {
        Lists { bytes, at: 0, total: 0 }
    }

    fn check(
        &mut self,
        what: &'static str,
        index: usize,
        offset: u32,
        count: u32,
        belongs: impl Fn(u32) -> bool,
    ) -> Outcome {
        check(offset as usize == self.at, what, index)?;
        let mut postings = Postings::new(self.bytes, offset, count);
        let mut found = 0u32;
        for id in postings.by_ref() {
            check(belongs(id), what, index)?;
            found += 1;
        }
        check(found == count, what, index)?;
        self.at = postings.position();
        self.total += u64::from(count);
        Ok(())
    }

    fn end(&self, what: &'static str, expected: u64) -> Outcome {
        let good = self.at == self.bytes.len() && self.total == expected;
        check(good, what, self.bytes.len())
    }
}
