//! The builder of an HTML document's tables.
//!
//! During the parse, nodes move (misnested formatting, text in tables), so they have all five links
//! and ids in order of creation. At the end one walk assigns ids in document order and drops
//! detached nodes. Text grows at the tail of the arena. When something else follows, the text is
//! finished: it is looked up and may be shared.

use html5ever::interface::NodeOrText;
use html5ever::{Namespace, QualName, ns};

use super::HtmlOptions;
use super::atoms::AtomCache;
use crate::arena::Arena;
use crate::classes::ClassTable;
use crate::error::ParseError;
use crate::known::{CLASS, ID};
use crate::layout::*;
use crate::names::*;
use crate::room::{has_room, has_room_for_node};
use crate::tables::{Parts, Tables};

/// A node while it may still move. 32 bytes.
#[derive(Clone, Copy)]
pub(super) struct Building {
    /// As in [`Node`].
    pub(super) word: u32,
    pub(super) parent: u32,
    /// The previous sibling; during the last walk, the final id.
    prev: u32,
    next: u32,
    first: u32,
    last: u32,
    /// As in [`Node`].
    data: u32,
    /// Texts: length in bytes. Templates: id of the contents' fragment. Other elements: 1 if it is
    /// a MathML annotation that holds HTML.
    pub(super) extra: u32,
}

/// Everything that the sink builds, before the final numbering.
pub(super) struct Builder {
    nodes: Vec<Building>,
    attributes: Vec<Attribute>,
    arena: Arena,
    names: NameTable,
    classes: ClassTable,
    atoms: AtomCache,
    /// The text node at the tail of the arena that may still grow, or [`NONE`].
    open_text: u32,
    pub(super) quirks: u32,
    index: bool,
    scripting: bool,
    overflow: bool,
    no_memory: bool,
    /// Units of work since the sink last asked.
    pub(super) work: u64,
}

impl Builder {
    /// Creates the builder of a document of about this many bytes.
    pub(super) fn new(bytes_expected: usize, options: &HtmlOptions) -> Builder {
        let (mut nodes, mut attributes) = (Vec::new(), Vec::new());
        // Without that much memory the tables start smaller and grow later.
        let _ = nodes.try_reserve(bytes_expected / 64);
        let _ = attributes.try_reserve(bytes_expected / 128);
        let mut builder = Builder {
            nodes,
            attributes,
            arena: Arena::new(bytes_expected),
            names: NameTable::default(),
            classes: ClassTable::default(),
            atoms: AtomCache::new(),
            open_text: NONE,
            quirks: 0,
            index: options.index,
            scripting: options.scripting,
            overflow: false,
            no_memory: false,
            work: 0,
        };
        builder.push_node(DOCUMENT, NONE, 0);
        builder
    }

    fn push_node(&mut self, word: u32, data: u32, extra: u32) -> u32 {
        if self.nodes.len() >= (NONE - 1) as usize {
            self.overflow = true;
            return 0;
        }
        if !has_room_for_node(&mut self.nodes) {
            self.no_memory = true;
            return 0;
        }
        let id = self.nodes.len() as u32;
        self.nodes.push(Building {
            word,
            parent: NONE,
            prev: NONE,
            next: NONE,
            first: NONE,
            last: NONE,
            data,
            extra,
        });
        id
    }

    #[inline]
    pub(super) fn node(&mut self, id: u32) -> &mut Building {
        &mut self.nodes[id as usize]
    }

    fn kind(&self, id: u32) -> u32 {
        self.nodes[id as usize].word & KIND_MASK
    }

    /// Finishes the growing text at the tail. Called before anything else is added to the arena.
    #[inline]
    fn finish_text(&mut self) {
        if self.open_text != NONE {
            let node = &mut self.nodes[self.open_text as usize];
            node.data = self.arena.intern_tail(node.data, node.extra);
            self.open_text = NONE;
        }
    }

    fn name(&mut self, name: &QualName, namespace: u32) -> u32 {
        if let Some(id) = self.atoms.find(&name.local, namespace) {
            return id;
        }
        let id = match &name.prefix {
            Some(prefix) if !prefix.is_empty() => {
                let qualified = format!("{prefix}:{}", name.local);
                self.names.intern(&mut self.arena, &qualified, prefix.len(), namespace)
            }
            _ => self.names.intern(&mut self.arena, &name.local, 0, namespace),
        };
        self.atoms.put(&name.local, namespace, id);
        id
    }

    fn attribute_namespace(&mut self, namespace: &Namespace) -> u32 {
        match *namespace {
            ns!() => NAMESPACE_DEFAULT,
            ns!(xlink) => NAMESPACE_XLINK,
            ns!(xml) => NAMESPACE_XML,
            ns!(xmlns) => NAMESPACE_XMLNS,
            ref other => self.names.namespace(&mut self.arena, other),
        }
    }

    /// Appends attributes. Returns the element's flags that result from them.
    fn push_attributes(&mut self, attributes: &[html5ever::Attribute]) -> u32 {
        let mut flags = 0;
        if !has_room(&mut self.attributes, attributes.len()) {
            self.no_memory = true;
            return 0;
        }
        for attribute in attributes {
            let namespace = self.attribute_namespace(&attribute.name.ns);
            let name = self.name(&attribute.name, namespace);
            let value = match name {
                CLASS => {
                    flags |= HAS_CLASS;
                    self.classes.list(&mut self.arena, &attribute.value)
                }
                _ => self.arena.value(attribute.value.as_bytes()),
            };
            if name == ID && !attribute.value.is_empty() {
                flags |= HAS_ID;
            }
            self.attributes.push(Attribute { word: name, value });
        }
        flags
    }

    pub(super) fn create_element(
        &mut self,
        name: &QualName,
        attributes: &[html5ever::Attribute],
    ) -> u32 {
        self.finish_text();
        let namespace = match name.ns {
            ns!(html) => NAMESPACE_DEFAULT,
            ns!(svg) => NAMESPACE_SVG,
            ns!(mathml) => NAMESPACE_MATHML,
            ref other => self.names.namespace(&mut self.arena, other),
        };
        let name = self.name(name, namespace);
        let mut data = NONE;
        let mut flags = 0;
        if !attributes.is_empty() {
            data = self.attributes.len() as u32;
            flags = self.push_attributes(attributes);
            self.end_attributes();
        }
        self.push_node(ELEMENT | flags | name << NAME_SHIFT, data, 0)
    }

    /// Gives a template its contents.
    pub(super) fn add_contents(&mut self, id: u32) {
        let fragment = self.push_node(FRAGMENT, NONE, 0);
        self.node(fragment).parent = id;
        let node = self.node(id);
        node.word |= HAS_CONTENTS;
        node.extra = fragment;
    }

    fn end_attributes(&mut self) {
        if let Some(last) = self.attributes.last_mut() {
            last.word |= LAST_ATTRIBUTE;
        }
    }

    /// Creates a node whose content never changes: comment, doctype, processing instruction.
    pub(super) fn create_leaf(&mut self, word: u32, text: &[u8]) -> u32 {
        self.finish_text();
        let offset = self.arena.text(text);
        self.push_node(word, offset, text.len() as u32)
    }

    pub(super) fn create_instruction(&mut self, target: &str, data: &[u8]) -> u32 {
        self.finish_text();
        let name = self.names.intern(&mut self.arena, target, 0, NAMESPACE_DEFAULT);
        self.create_leaf(PROCESSING_INSTRUCTION | name << NAME_SHIFT, data)
    }

    fn grow_text(&mut self, id: u32, more: &str) {
        let open = self.open_text == id;
        let Building { data, extra, .. } = self.nodes[id as usize];
        if !open {
            self.finish_text();
            // The text is copied to the tail of the arena.
            self.work += u64::from(extra);
        }
        let (data, extra) = self.arena.extend(open, data, extra, more.as_bytes());
        let node = self.node(id);
        (node.data, node.extra) = (data, extra);
        self.open_text = id;
    }

    fn new_text(&mut self, text: &str) -> u32 {
        self.finish_text();
        let offset = self.arena.push(text.as_bytes());
        let id = self.push_node(TEXT_NODE, offset, text.len() as u32);
        self.open_text = id;
        id
    }

    fn append_text(&mut self, parent: u32, text: &str) {
        let last = self.nodes[parent as usize].last;
        if last != NONE && self.kind(last) == TEXT_NODE {
            self.grow_text(last, text);
        } else {
            let id = self.new_text(text);
            self.append_node(parent, id);
        }
    }

    #[inline]
    pub(super) fn append_node(&mut self, parent: u32, id: u32) {
        if id == 0 {
            return;
        }
        let last = std::mem::replace(&mut self.node(parent).last, id);
        match last {
            NONE => self.node(parent).first = id,
            last => self.node(last).next = id,
        }
        let node = self.node(id);
        node.parent = parent;
        node.prev = last;
        node.next = NONE;
    }

    fn insert_before(&mut self, sibling: u32, id: u32) {
        if id == 0 {
            return;
        }
        self.detach(id);
        let Building { parent, prev, .. } = self.nodes[sibling as usize];
        match prev {
            NONE => self.node(parent).first = id,
            prev => self.node(prev).next = id,
        }
        self.node(sibling).prev = id;
        let node = self.node(id);
        (node.parent, node.prev, node.next) = (parent, prev, sibling);
    }

    pub(super) fn detach(&mut self, id: u32) {
        let Building { parent, prev, next, .. } = self.nodes[id as usize];
        if parent == NONE {
            return;
        }
        match prev {
            NONE => self.node(parent).first = next,
            prev => self.node(prev).next = next,
        }
        match next {
            NONE => self.node(parent).last = prev,
            next => self.node(next).prev = prev,
        }
        let node = self.node(id);
        (node.parent, node.prev, node.next) = (NONE, NONE, NONE);
    }

    pub(super) fn append_before(&mut self, sibling: u32, child: NodeOrText<u32>) {
        match child {
            NodeOrText::AppendNode(node) => self.insert_before(sibling, node),
            NodeOrText::AppendText(text) => {
                let prev = self.nodes[sibling as usize].prev;
                if prev != NONE && self.kind(prev) == TEXT_NODE {
                    self.grow_text(prev, &text);
                } else {
                    let id = self.new_text(&text);
                    self.insert_before(sibling, id);
                }
            }
        }
    }

    pub(super) fn append(&mut self, parent: u32, child: NodeOrText<u32>) {
        match child {
            NodeOrText::AppendNode(node) => self.append_node(parent, node),
            NodeOrText::AppendText(text) => self.append_text(parent, &text),
        }
    }

    pub(super) fn reparent_children(&mut self, from: u32, to: u32) {
        let Building { first, last, .. } = self.nodes[from as usize];
        if first == NONE {
            return;
        }
        let mut child = first;
        while child != NONE {
            self.node(child).parent = to;
            self.work += 1;
            child = self.nodes[child as usize].next;
        }
        let tail = std::mem::replace(&mut self.node(to).last, last);
        match tail {
            NONE => self.node(to).first = first,
            tail => self.node(tail).next = first,
        }
        self.node(first).prev = tail;
        let from = self.node(from);
        (from.first, from.last) = (NONE, NONE);
    }

    /// Handles a second `<html>` or `<body>` tag: adds its attributes to the first one where
    /// missing. The run is copied to the end of the array, where it can grow.
    pub(super) fn add_attributes(&mut self, id: u32, attributes: Vec<html5ever::Attribute>) {
        self.finish_text();
        let from = self.nodes[id as usize].data;
        let start = self.attributes.len();
        if from != NONE {
            let mut at = from as usize;
            loop {
                let mut attribute = self.attributes[at];
                let last = attribute.is_last();
                attribute.word &= !LAST_ATTRIBUTE;
                self.attributes.push(attribute);
                at += 1;
                if last {
                    break;
                }
            }
        }
        let known: Vec<u32> = self.attributes[start..].iter().map(Attribute::name).collect();
        // The existing attributes are copied and compared with each new one.
        self.work += known.len() as u64 * (8 + attributes.len() as u64);
        let mut missing = attributes;
        missing.retain(|attribute| {
            let namespace = self.attribute_namespace(&attribute.name.ns);
            !known.contains(&self.name(&attribute.name, namespace))
        });
        if missing.is_empty() {
            self.attributes.truncate(start);
            return;
        }
        let flags = self.push_attributes(&missing);
        self.end_attributes();
        let node = self.node(id);
        node.data = start as u32;
        node.word |= flags;
    }

    /// Returns true if something is missing for lack of memory. Then the nodes are not a valid
    /// tree.
    pub(super) fn has_no_memory(&self) -> bool {
        self.no_memory || self.arena.has_no_memory()
    }

    /// Assigns the final ids to the nodes, in document order.
    pub(super) fn finish(mut self, source_bytes: u64) -> Result<Tables, ParseError> {
        self.finish_text();
        let mut nodes = Vec::new();
        self.no_memory |= !has_room(&mut nodes, self.nodes.len());
        if !self.has_no_memory() {
            number(&mut self.nodes, &mut nodes);
        }
        let parts = Parts {
            document_kind: 0,
            quirks: self.quirks,
            nodes,
            attributes: self.attributes,
            arena: self.arena,
            names: self.names,
            classes: self.classes,
            source_bytes,
            index: self.index,
            scripting: self.scripting,
            too_many_nodes: self.overflow,
            no_memory: self.no_memory,
        };
        parts.finish()
    }
}

/// Walks the tree once, without a stack, and writes the nodes in document order. `nodes` has room
/// for all.
fn number(building: &mut [Building], nodes: &mut Vec<Node>) {
    let mut fragments_open = 0u32;
    let mut current = 0u32;
    'walk: loop {
        let id = nodes.len() as u32;
        let node = building[current as usize];
        building[current as usize].prev = id;
        let parent = match current {
            0 => 0,
            _ => building[node.parent as usize].prev,
        };
        let kind = node.word & KIND_MASK;
        if kind == FRAGMENT {
            fragments_open += 1;
        }
        nodes.push(Node {
            word: node.word | if fragments_open > 0 { IN_FRAGMENT } else { 0 },
            parent,
            extent: node.extra,
            data: node.data,
        });
        let child = match node.word & HAS_CONTENTS {
            0 => node.first,
            _ => node.extra,
        };
        if child != NONE {
            current = child;
            continue;
        }
        loop {
            let node = building[current as usize];
            let kind = node.word & KIND_MASK;
            if matches!(kind, DOCUMENT | ELEMENT | FRAGMENT) {
                nodes[node.prev as usize].extent = nodes.len() as u32;
            }
            if current == 0 {
                return;
            }
            let next = match kind {
                FRAGMENT => {
                    fragments_open -= 1;
                    building[node.parent as usize].first
                }
                _ => node.next,
            };
            if next != NONE {
                current = next;
                continue 'walk;
            }
            current = node.parent;
        }
    }
}
