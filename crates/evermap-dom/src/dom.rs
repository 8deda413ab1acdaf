//! View of a block: opens it and reads its tables.
//!
//! Opening checks the header and the bounds of the sections. The tables are not trusted: every
//! index is checked where it is used, invalid links are ignored, steps forward only lead to larger
//! ids and steps up only to smaller ones. So damage causes wrong answers, but never a panic, an
//! endless loop or a read outside the block.

use bytemuck::Pod;

use crate::arena::read_length;
use crate::error::InvalidDocument;
use crate::hash;
use crate::index::Postings;
use crate::known::{self, CLASS, KNOWN_COUNT};
use crate::layout::*;
use crate::names::{FIXED_NAMESPACES, NAMESPACE_DEFAULT};

/// The parser of a document. For HTML, names are matched without regard to case, and serialization
/// follows the HTML rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentKind {
    /// Parsed by [`crate::html`].
    Html,
    /// Parsed by [`crate::xml`].
    Xml,
}

/// Degree to which a page asks for the behaviour of old browsers. In full quirks mode ids and
/// classes match without regard to case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuirksMode {
    /// A page with a modern doctype, or XML.
    NoQuirks,
    /// A few layout rules of old browsers, which this crate does not use.
    LimitedQuirks,
    /// A page without a doctype, or with a very old one.
    Quirks,
}

/// A document in a block: a cheap view, copied freely.
///
/// ```
/// use evermap_dom::{Dom, html};
///
/// let block = html::parse("<title>T</title><p id=a>Text", &Default::default())?.to_block();
/// let dom = Dom::new(block.as_bytes())?;
/// assert_eq!(dom.title().as_deref(), Some("T"));
/// assert_eq!(dom.element_by_id("a").unwrap().text(), "Text");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct Dom<'a> {
    block: &'a [u8],
    header: &'a Header,
    pub(crate) nodes: &'a [Node],
    pub(crate) attributes: &'a [Attribute],
    text: &'a [u8],
}

static EMPTY_NODES: [Node; 1] = [Node { word: DOCUMENT, parent: 0, extent: 1, data: NONE }];

static EMPTY_HEADER: Header = Header {
    magic: MAGIC,
    version: FORMAT_VERSION,
    header_bytes: size_of::<Header>() as u32,
    document_kind: 0,
    quirks: 0,
    flags: 0,
    known_count: KNOWN_COUNT,
    block_bytes: 0,
    source_bytes: 0,
    sections: [Section { offset: 0, bytes: 0 }; SECTION_COUNT],
};

/// The empty document.
impl Default for Dom<'_> {
    fn default() -> Self {
        Dom { block: &[], header: &EMPTY_HEADER, nodes: &EMPTY_NODES, attributes: &[], text: &[] }
    }
}

impl<'a> Dom<'a> {
    /// Opens a block. Checks the header only: the cost does not depend on the document's size.
    ///
    /// `block` has to lie at a multiple of 8 bytes; bytes after the block's own end are ignored.
    pub fn new(block: &'a [u8]) -> Result<Dom<'a>, InvalidDocument> {
        let header = check_header(block)?;
        let mut dom = Dom { block, header, nodes: &[], attributes: &[], text: &[] };
        dom.nodes = dom.section(NODES);
        dom.attributes = dom.section(ATTRIBUTES);
        dom.text = dom.section(TEXT);
        Ok(dom)
    }

    pub(crate) fn section<T: Pod>(&self, index: usize) -> &'a [T] {
        let Section { offset, bytes } = self.header.sections[index];
        let end = offset.saturating_add(bytes);
        let bytes = self.block.get(offset as usize..end as usize);
        bytemuck::try_cast_slice(bytes.unwrap_or_default()).unwrap_or_default()
    }

    pub(crate) fn header(&self) -> &'a Header {
        self.header
    }

    pub(crate) fn text_bytes(&self) -> &'a [u8] {
        self.text
    }

    /// Returns the kind of parser that made the document.
    pub fn kind(&self) -> DocumentKind {
        match self.is_html() {
            true => DocumentKind::Html,
            false => DocumentKind::Xml,
        }
    }

    #[inline]
    pub(crate) fn is_html(&self) -> bool {
        self.header.document_kind == 0
    }

    /// Returns true if serialization follows the rules of HTML.
    pub(crate) fn writes_html(&self) -> bool {
        self.kind() == DocumentKind::Html
    }

    /// The document's quirks mode.
    pub fn quirks_mode(&self) -> QuirksMode {
        match self.header.quirks {
            0 => QuirksMode::NoQuirks,
            1 => QuirksMode::LimitedQuirks,
            _ => QuirksMode::Quirks,
        }
    }

    /// Returns the number of nodes, including the document. Ids are smaller than this.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes of the source that was parsed.
    pub fn source_bytes(&self) -> u64 {
        self.header.source_bytes
    }

    /// Returns true if the block has indexes by id, class and name.
    pub fn is_indexed(&self) -> bool {
        self.header.flags & FLAG_INDEXED != 0
    }

    // For the other modules: table access by index, with each result checked.

    /// A node; the last resort for an id out of range is an empty text.
    #[inline]
    pub(crate) fn node_at(&self, id: u32) -> Node {
        self.nodes.get(id as usize).copied().unwrap_or(Node {
            word: TEXT_NODE,
            parent: 0,
            extent: 0,
            data: 0,
        })
    }

    /// One past the last node of the subtree of `id`; always larger than `id`.
    #[inline]
    pub(crate) fn end(&self, id: u32) -> u32 {
        let node = self.node_at(id);
        let next = id.saturating_add(1);
        match node.is_container() {
            true => node.extent.clamp(next, (self.nodes.len() as u32).max(next)),
            false => next,
        }
    }

    /// The parent; always smaller than `id`.
    #[inline]
    pub(crate) fn parent(&self, id: u32) -> Option<u32> {
        let parent = self.nodes.get(id as usize)?.parent;
        (parent < id).then_some(parent)
    }

    /// The first child, a template's contents left out.
    #[inline]
    pub(crate) fn first_child(&self, id: u32) -> Option<u32> {
        let end = self.end(id);
        let mut child = id + 1;
        if child < end && self.node_at(child).kind() == FRAGMENT {
            child = self.end(child);
        }
        (child < end && self.node_at(child).parent == id).then_some(child)
    }

    /// The next sibling; always larger than `id`.
    #[inline]
    pub(crate) fn next_sibling(&self, id: u32) -> Option<u32> {
        let parent = self.parent(id)?;
        let next = self.end(id);
        let node = self.nodes.get(next as usize)?;
        (node.parent == parent && self.node_at(id).kind() != FRAGMENT).then_some(next)
    }

    /// The child of `parent` whose subtree ends where `end` starts.
    fn child_before(&self, parent: u32, end: u32) -> Option<u32> {
        let mut child = end.checked_sub(1).filter(|&child| child > parent)?;
        loop {
            let above = self.parent(child)?;
            if above == parent {
                return (self.node_at(child).kind() != FRAGMENT).then_some(child);
            }
            child = above;
            if child <= parent {
                return None;
            }
        }
    }

    /// The previous sibling: up from the node before, which is the deepest last descendant of it.
    pub(crate) fn prev_sibling(&self, id: u32) -> Option<u32> {
        self.child_before(self.parent(id)?, id)
    }

    pub(crate) fn last_child(&self, id: u32) -> Option<u32> {
        self.child_before(id, self.end(id))
    }

    /// UTF-8 from the text section. Damaged text gives its valid start.
    #[inline]
    pub(crate) fn str_at(&self, offset: u32, bytes: u32) -> &'a str {
        valid_str(self.bytes_at(offset, bytes))
    }

    #[inline]
    pub(crate) fn bytes_at(&self, offset: u32, bytes: u32) -> &'a [u8] {
        let end = offset as usize + bytes as usize;
        self.text.get(offset as usize..end).unwrap_or_default()
    }

    /// The content of a text, comment, doctype or processing instruction.
    #[inline]
    pub(crate) fn leaf_text(&self, node: Node) -> &'a str {
        match node.is_container() {
            true => "",
            false => self.str_at(node.data, node.extent),
        }
    }

    /// The attributes of a node: the slice up to the one that is marked as the last.
    #[inline]
    pub(crate) fn attributes_of(&self, node: Node) -> &'a [Attribute] {
        if node.kind() != ELEMENT || node.data == NONE {
            return &[];
        }
        let run = self.attributes.get(node.data as usize..).unwrap_or_default();
        let last = run.iter().position(Attribute::is_last);
        last.map_or(&[], |last| &run[..=last])
    }

    /// The value of an attribute.
    #[inline]
    pub(crate) fn value_bytes(&self, attribute: Attribute) -> &'a [u8] {
        let mut offset = attribute.value;
        if attribute.name() == CLASS {
            let lists: &[ClassList] = self.section(CLASS_LISTS);
            offset = lists.get(offset as usize).map_or(NONE, |list| list.value);
        }
        match read_length(self.text, offset as usize) {
            Some((bytes, at)) => self.text.get(at..at + bytes as usize).unwrap_or_default(),
            None => &[],
        }
    }

    /// The class tokens of an element, as indices of the token table.
    pub(crate) fn class_tokens(&self, node: Node) -> &'a [u32] {
        if !node.has(HAS_CLASS) {
            return &[];
        }
        let mut attributes = self.attributes_of(node).iter();
        let Some(class) = attributes.find(|attribute| attribute.name() == CLASS) else {
            return &[];
        };
        let lists: &[ClassList] = self.section(CLASS_LISTS);
        let tokens: &[u32] = self.section(CLASS_LIST_TOKENS);
        let Some(list) = lists.get(class.value as usize) else {
            return &[];
        };
        let next = lists.get(class.value as usize + 1);
        let end = next.map_or(tokens.len(), |next| next.first_token as usize);
        tokens.get(list.first_token as usize..end).unwrap_or_default()
    }

    /// The spelling of a class token.
    pub(crate) fn token_bytes(&self, token: u32) -> &'a [u8] {
        let tokens: &[Token] = self.section(TOKENS);
        match tokens.get(token as usize) {
            Some(token) => self.bytes_at(token.offset, token.bytes),
            None => &[],
        }
    }

    /// The entry of a name that is not well known.
    #[inline]
    pub(crate) fn name_entry(&self, name: u32) -> Option<Name> {
        let dynamic = name.checked_sub(self.header.known_count)?;
        self.section::<Name>(NAMES).get(dynamic as usize).copied()
    }

    /// The qualified name: prefix and local name.
    pub(crate) fn qualified(&self, name: u32) -> &'a str {
        if name < self.header.known_count {
            return known::name(name).unwrap_or_default();
        }
        match self.name_entry(name) {
            Some(entry) => self.str_at(entry.offset, entry.bytes),
            None => "",
        }
    }

    pub(crate) fn prefix(&self, name: u32) -> Option<&'a str> {
        let entry = self.name_entry(name)?;
        (entry.prefix_bytes > 0).then(|| self.str_at(entry.offset, entry.prefix_bytes))
    }

    #[inline]
    pub(crate) fn local_bytes(&self, name: u32) -> &'a [u8] {
        if name < self.header.known_count {
            return known::name(name).unwrap_or_default().as_bytes();
        }
        match self.name_entry(name) {
            Some(entry) => self.local_of(entry),
            None => &[],
        }
    }

    fn local_of(&self, entry: Name) -> &'a [u8] {
        let skip = match entry.prefix_bytes {
            0 => 0,
            bytes => bytes.saturating_add(1),
        };
        let offset = entry.offset.saturating_add(skip);
        self.bytes_at(offset, entry.bytes.saturating_sub(skip))
    }

    /// The id shared by all names with this one's local name.
    #[inline]
    pub(crate) fn local_id(&self, name: u32) -> u32 {
        match name < self.header.known_count {
            true => name,
            false => self.name_entry(name).map_or(NONE, |entry| entry.local),
        }
    }

    /// The id shared by all names with this local name, if the document has any.
    pub(crate) fn find_local(&self, local: &str) -> Option<u32> {
        let known = known::find(local);
        if let Some(id) = known.filter(|&id| id < self.header.known_count) {
            return Some(id);
        }
        let names: &[Name] = self.section(NAMES);
        let order: &[u32] = self.section(NAME_ORDER);
        let hash = hash::stored(local.as_bytes());
        let entry = |name: u32| names.get(name as usize).copied().unwrap_or_default();
        let start = order.partition_point(|&name| entry(name).hash < hash);
        order[start..]
            .iter()
            .map(|&name| entry(name))
            .take_while(|entry| entry.hash == hash)
            .find(|&entry| self.local_of(entry) == local.as_bytes())
            .map(|entry| entry.local)
    }

    /// The namespace id of a node's name, as it is stored.
    #[inline]
    pub(crate) fn namespace_id(&self, node: Node) -> u32 {
        self.name_namespace(node.name())
    }

    #[inline]
    pub(crate) fn name_namespace(&self, name: u32) -> u32 {
        self.name_entry(name).map_or(NAMESPACE_DEFAULT, |entry| entry.namespace)
    }

    /// The URI of a namespace id; for elements `NAMESPACE_DEFAULT` needs the document's kind.
    pub(crate) fn namespace_uri(&self, namespace: u32) -> &'a str {
        if let Some(fixed) = FIXED_NAMESPACES.get(namespace as usize) {
            return fixed;
        }
        let dynamic = namespace as usize - FIXED_NAMESPACES.len();
        match self.section::<Span>(NAMESPACES).get(dynamic) {
            Some(span) => self.str_at(span.offset, span.bytes),
            None => "",
        }
    }

    /// The postings of the elements with a local name.
    pub(crate) fn name_postings(&self, local: u32) -> Postings<'a> {
        let entries: &[NameEntry] = self.section(NAME_INDEX);
        match entries.binary_search_by_key(&local, |entry| entry.local) {
            Ok(at) => {
                Postings::new(self.section(NAME_POSTINGS), entries[at].postings, entries[at].count)
            }
            Err(_) => Postings::default(),
        }
    }

    /// The tokens that may be spelled so: in quirks mode without regard to case.
    pub(crate) fn tokens_matching(&self, class: &str) -> Vec<u32> {
        let tokens: &[Token] = self.section(TOKENS);
        let hash = self.stored_hash(class);
        let start = tokens.partition_point(|token| token.hash < hash);
        let found = tokens[start..]
            .iter()
            .zip(start as u32..)
            .take_while(|(token, _)| token.hash == hash)
            .filter(|(token, _)| {
                let text = self.bytes_at(token.offset, token.bytes);
                match self.ignores_case() {
                    true => text.eq_ignore_ascii_case(class.as_bytes()),
                    false => text == class.as_bytes(),
                }
            });
        found.map(|(_, index)| index).collect()
    }

    pub(crate) fn class_postings(&self, token: u32) -> Postings<'a> {
        match self.section::<Token>(TOKENS).get(token as usize) {
            Some(token) => Postings::new(self.section(CLASS_POSTINGS), token.postings, token.count),
            None => Postings::default(),
        }
    }

    /// Elements whose id may be this one, in document order.
    pub(crate) fn ids_matching(&self, id: &str) -> impl Iterator<Item = u32> + use<'a> {
        let (entries, hash): (&'a [IdEntry], u32) = (self.section(IDS), self.stored_hash(id));
        let start = entries.partition_point(|entry| entry.hash < hash);
        let indexed = entries[start..]
            .iter()
            .take_while(move |entry| entry.hash == hash)
            .map(|entry| entry.node);
        let scanned = match self.is_indexed() {
            true => 0..0,
            false => 0..self.nodes.len() as u32,
        };
        let dom = *self;
        let scanned = scanned.filter(move |&id| {
            let node = dom.node_at(id);
            node.has(HAS_ID) && node.kind() == ELEMENT && !node.has(IN_FRAGMENT)
        });
        indexed.chain(scanned)
    }

    pub(crate) fn elements_named(&self, local: u32) -> impl Iterator<Item = u32> + use<'a> {
        let dom = *self;
        let scanned = match self.is_indexed() {
            true => 0..0,
            false => 0..self.nodes.len() as u32,
        };
        let scanned = scanned.filter(move |&id| {
            let node = dom.node_at(id);
            node.kind() == ELEMENT && !node.has(IN_FRAGMENT) && dom.local_id(node.name()) == local
        });
        self.name_postings(local).chain(scanned)
    }

    pub(crate) fn ignores_case(&self) -> bool {
        self.header.quirks == 2
    }

    fn stored_hash(&self, text: &str) -> u32 {
        match self.ignores_case() {
            true => hash::stored_ignoring_case(text.as_bytes()),
            false => hash::stored(text.as_bytes()),
        }
    }
}

impl std::fmt::Debug for Dom<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dom")
            .field("kind", &self.kind())
            .field("nodes", &self.nodes.len())
            .finish_non_exhaustive()
    }
}

/// The longest valid start of some bytes.
#[inline]
pub(crate) fn valid_str(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    }
}

fn check_header(block: &[u8]) -> Result<&Header, InvalidDocument> {
    let truncated =
        |expected: u64| InvalidDocument::Truncated { found: block.len() as u64, expected };
    let Some(bytes) = block.get(..size_of::<Header>()) else {
        return Err(truncated(size_of::<Header>() as u64));
    };
    if block.as_ptr().align_offset(ALIGNMENT) != 0 {
        return Err(InvalidDocument::Misaligned);
    }
    let header: &Header =
        bytemuck::try_from_bytes(bytes).map_err(|_| InvalidDocument::Misaligned)?;
    if header.magic != MAGIC {
        return Err(InvalidDocument::NotADocument);
    }
    if header.version != FORMAT_VERSION {
        return Err(InvalidDocument::Version { found: header.version, supported: FORMAT_VERSION });
    }
    if header.block_bytes > block.len() as u64 {
        return Err(truncated(header.block_bytes));
    }
    let damaged = |what| Err(InvalidDocument::Header { what });
    if header.header_bytes as usize != size_of::<Header>() {
        return damaged("length");
    }
    if header.document_kind > 1
        || header.quirks > 2
        || header.flags & !(FLAG_INDEXED | FLAG_SCRIPTING) != 0
    {
        return damaged("kind, quirks mode or flags");
    }
    if header.known_count > KNOWN_COUNT {
        return damaged("names of a newer version");
    }
    let mut at = size_of::<Header>() as u64;
    for (section, record) in header.sections.iter().zip(RECORD_BYTES) {
        // One after the other, without gaps or overlaps.
        if section.offset != at || section.bytes % record as u64 != 0 {
            return damaged("place of a section");
        }
        let end = section.offset.checked_add(section.bytes);
        match end.and_then(|end| end.checked_next_multiple_of(ALIGNMENT as u64)) {
            Some(end) if end <= header.block_bytes => at = end,
            _ => return damaged("length of a section"),
        }
    }
    let count = |section: usize| header.sections[section].bytes / RECORD_BYTES[section] as u64;
    if count(NODES) == 0 || (0..SECTION_COUNT).any(|section| count(section) >= u64::from(NONE)) {
        return damaged("number of entries");
    }
    if at != header.block_bytes {
        return damaged("length of the block");
    }
    Ok(header)
}
