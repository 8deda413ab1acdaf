//! A document's complete tables, in ordinary memory.
//!
//! The last step of parsing: [`Parts`] becomes [`Tables`], whose sections are arranged and written
//! in one pass, in pieces and without a second copy of the whole. Indexes are built here because
//! the ids are final only now.

use bytemuck::Zeroable;

use crate::arena::{Arena, read_length};
use crate::classes::ClassTable;
use crate::error::{ParseError, ParseErrorKind};
use crate::hash;
use crate::index;
use crate::known::{CLASS, ID, KNOWN_COUNT};
use crate::layout::*;
use crate::names::NameTable;
use crate::room::is_free;

/// A parsed document, ready to be written as one block.
///
/// ```
/// use evermap_dom::html;
///
/// let tables = html::parse("<p class=intro>Hello", &Default::default())?;
/// let mut written = Vec::new();
/// tables.write_block(&mut |piece| written.extend_from_slice(piece));
/// assert_eq!(written.len(), tables.block_len());
/// # Ok::<(), evermap_dom::ParseError>(())
/// ```
#[derive(Clone)]
pub struct Tables {
    header: Header,
    nodes: Vec<Node>,
    attributes: Vec<Attribute>,
    names: Vec<Name>,
    name_order: Vec<u32>,
    namespaces: Vec<Span>,
    class_lists: Vec<ClassList>,
    class_list_tokens: Vec<u32>,
    tokens: Vec<Token>,
    class_postings: Vec<u8>,
    ids: Vec<IdEntry>,
    name_index: Vec<NameEntry>,
    name_postings: Vec<u8>,
    text: Vec<u8>,
}

/// The result of a parser.
pub(crate) struct Parts {
    pub document_kind: u32,
    pub quirks: u32,
    pub nodes: Vec<Node>,
    pub attributes: Vec<Attribute>,
    pub arena: Arena,
    pub names: NameTable,
    pub classes: ClassTable,
    pub source_bytes: u64,
    pub index: bool,
    pub scripting: bool,
    /// Nodes are missing because their ids did not fit.
    pub too_many_nodes: bool,
    /// Something is missing for lack of memory.
    pub no_memory: bool,
}

/// Maximum bytes of the indexes during their construction, for each node and each attribute.
const INDEX_BYTES: usize = 40;

impl Parts {
    pub(crate) fn finish(self) -> Result<Tables, ParseError> {
        let indexed = self.nodes.len().saturating_add(self.attributes.len());
        let index_bytes = indexed.saturating_mul(INDEX_BYTES);
        if self.no_memory || self.arena.has_no_memory() || !is_free(index_bytes) {
            return Err(ParseError::whole(ParseErrorKind::NoMemory));
        }
        if self.arena.overflowed() {
            return Err(too_large("bytes of text", u64::from(u32::MAX)));
        }
        let counts = [self.nodes.len(), self.attributes.len()];
        if self.too_many_nodes || counts.iter().any(|&count| count >= NONE as usize) {
            return Err(too_large("nodes", u64::from(u32::MAX)));
        }
        if self.names.overflowed() {
            return Err(too_large("names", u64::from(NAME_COUNT_MAX)));
        }
        let index = match self.index {
            true => self.index(),
            false => Index::default(),
        };
        let ignore_case = self.quirks == 2;
        let (class_lists, class_list_tokens, mut tokens) =
            self.classes.finish(&self.arena, ignore_case);
        let mut class_postings = Vec::new();
        if self.index {
            class_postings =
                index_classes(&index.classes, &class_lists, &class_list_tokens, &mut tokens);
        }
        let (names, name_order, namespaces) = self.names.finish();
        let mut tables = Tables {
            header: Header::zeroed(),
            nodes: self.nodes,
            attributes: self.attributes,
            names,
            name_order,
            namespaces,
            class_lists,
            class_list_tokens,
            tokens,
            class_postings,
            ids: index.ids,
            name_index: index.names,
            name_postings: index.name_postings,
            text: self.arena.into_bytes(),
        };
        tables.header = Header {
            magic: MAGIC,
            version: FORMAT_VERSION,
            header_bytes: size_of::<Header>() as u32,
            document_kind: self.document_kind,
            quirks: self.quirks,
            flags: (if self.index { FLAG_INDEXED } else { 0 })
                | (if self.scripting { FLAG_SCRIPTING } else { 0 }),
            known_count: KNOWN_COUNT,
            block_bytes: 0,
            source_bytes: self.source_bytes,
            sections: [Section::default(); SECTION_COUNT],
        };
        tables.lay_out();
        Ok(tables)
    }

    /// The indexes over elements that queries on the document can see.
    fn index(&self) -> Index {
        let mut index = Index::default();
        let mut keys = KNOWN_COUNT as usize;
        for (id, node) in self.nodes.iter().enumerate() {
            if node.kind() != ELEMENT || node.has(IN_FRAGMENT) {
                continue;
            }
            keys = keys.max(self.names.local(node.name()) as usize + 1);
            if node.has(HAS_ID | HAS_CLASS) {
                self.index_attributes(id as u32, node, &mut index);
            }
        }
        index.ids.sort_unstable_by_key(|entry| (entry.hash, entry.node));
        let (places, postings) = index::build(keys, |put| {
            for (id, node) in self.nodes.iter().enumerate() {
                if node.kind() == ELEMENT && !node.has(IN_FRAGMENT) {
                    put(self.names.local(node.name()), id as u32);
                }
            }
        });
        index.name_postings = postings;
        index.names = (0u32..)
            .zip(&places)
            .filter(|(_, place)| place.count > 0)
            .map(|(local, place)| NameEntry { local, postings: place.offset, count: place.count })
            .collect();
        index
    }

    fn index_attributes(&self, id: u32, node: &Node, index: &mut Index) {
        for attribute in &self.attributes[node.data as usize..] {
            match attribute.name() {
                ID => {
                    if let Some((bytes, at)) =
                        read_length(self.arena.bytes(), attribute.value as usize)
                        && bytes > 0
                    {
                        let value = self.arena.slice(at as u32, bytes);
                        let hash = match self.quirks {
                            2 => hash::stored_ignoring_case(value),
                            _ => hash::stored(value),
                        };
                        index.ids.push(IdEntry { hash, node: id });
                    }
                }
                CLASS => index.classes.push((attribute.value, id)),
                _ => {}
            }
            if attribute.is_last() {
                break;
            }
        }
    }
}

#[derive(Default)]
struct Index {
    ids: Vec<IdEntry>,
    /// (class list, element) pairs in document order.
    classes: Vec<(u32, u32)>,
    names: Vec<NameEntry>,
    name_postings: Vec<u8>,
}

fn index_classes(
    pairs: &[(u32, u32)],
    lists: &[ClassList],
    list_tokens: &[u32],
    tokens: &mut [Token],
) -> Vec<u8> {
    let tokens_of = |list: u32| {
        let from = lists[list as usize].first_token as usize;
        let next = lists.get(list as usize + 1);
        let to = next.map_or(list_tokens.len(), |next| next.first_token as usize);
        &list_tokens[from..to]
    };
    let (places, postings) = index::build(tokens.len(), |put| {
        for &(list, node) in pairs {
            for &token in tokens_of(list) {
                put(token, node);
            }
        }
    });
    for (token, place) in tokens.iter_mut().zip(places) {
        token.postings = place.offset;
        token.count = place.count;
    }
    postings
}

fn too_large(what: &'static str, limit: u64) -> ParseError {
    ParseError::whole(ParseErrorKind::TooLarge { what, limit })
}

impl Tables {
    fn lay_out(&mut self) {
        let mut at = size_of::<Header>();
        let mut sections = [Section::default(); SECTION_COUNT];
        for (section, bytes) in sections.iter_mut().zip(self.section_bytes()) {
            *section = Section { offset: at as u64, bytes: bytes.len() as u64 };
            at = (at + bytes.len()).next_multiple_of(ALIGNMENT);
        }
        self.header.sections = sections;
        self.header.block_bytes = at as u64;
    }

    /// The sections' contents in the order in which they are stored.
    fn section_bytes(&self) -> [&[u8]; SECTION_COUNT] {
        [
            bytemuck::cast_slice(&self.nodes),
            bytemuck::cast_slice(&self.attributes),
            bytemuck::cast_slice(&self.names),
            bytemuck::cast_slice(&self.name_order),
            bytemuck::cast_slice(&self.namespaces),
            bytemuck::cast_slice(&self.class_lists),
            bytemuck::cast_slice(&self.class_list_tokens),
            bytemuck::cast_slice(&self.tokens),
            &self.class_postings,
            bytemuck::cast_slice(&self.ids),
            bytemuck::cast_slice(&self.name_index),
            &self.name_postings,
            &self.text,
        ]
    }

    /// Returns the number of bytes that [`write_block`](Tables::write_block) writes: a multiple of
    /// 8.
    pub fn block_len(&self) -> usize {
        self.header.block_bytes as usize
    }

    /// Returns the number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Writes the block sequentially, in about 25 pieces. Its final address must be a multiple of
    /// 8.
    pub fn write_block(&self, sink: &mut dyn FnMut(&[u8])) {
        sink(bytemuck::bytes_of(&self.header));
        for bytes in self.section_bytes() {
            sink(bytes);
            let padding = bytes.len().next_multiple_of(ALIGNMENT) - bytes.len();
            if padding > 0 {
                sink(&[0; ALIGNMENT][..padding]);
            }
        }
    }

    /// Returns the block in ordinary memory, for use without a store.
    ///
    /// ```
    /// use evermap_dom::html;
    ///
    /// let block = html::parse("<title>Hi</title>", &Default::default())?.to_block();
    /// assert_eq!(block.dom().title().as_deref(), Some("Hi"));
    /// # Ok::<(), evermap_dom::ParseError>(())
    /// ```
    pub fn to_block(&self) -> Block {
        let mut words = vec![0u64; self.block_len() / ALIGNMENT];
        let mut rest: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        self.write_block(&mut |piece| {
            let (to, after) = std::mem::take(&mut rest).split_at_mut(piece.len());
            to.copy_from_slice(piece);
            rest = after;
        });
        Block { words }
    }

    /// Bytes per section, by name, for reports on size.
    pub fn section_sizes(&self) -> Vec<(&'static str, usize)> {
        const NAMES: [&str; SECTION_COUNT] = [
            "nodes",
            "attributes",
            "names",
            "name order",
            "namespaces",
            "class lists",
            "class list tokens",
            "class tokens",
            "class postings",
            "ids",
            "name index",
            "name postings",
            "text",
        ];
        let sizes = self.section_bytes().map(<[u8]>::len);
        NAMES.into_iter().zip(sizes).collect()
    }
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tables")
            .field("nodes", &self.nodes.len())
            .field("block_len", &self.block_len())
            .finish()
    }
}

/// A block in ordinary memory, suitably aligned.
///
/// ```
/// use evermap_dom::{Block, html};
///
/// let tables = html::parse("<p>one<p>two", &Default::default())?;
/// let block = tables.to_block();
/// let copy = Block::from_bytes(block.as_bytes());
/// assert_eq!(copy.dom().count(&"p".parse().unwrap()), 2);
/// # Ok::<(), evermap_dom::ParseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    words: Vec<u64>,
}

impl Block {
    /// Copies bytes of any alignment into a block. Does not check them: [`crate::Dom::new`] does.
    pub fn from_bytes(bytes: &[u8]) -> Block {
        let mut words = vec![0u64; bytes.len().div_ceil(ALIGNMENT)];
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Block { words }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.words)
    }

    /// Returns the document in the block, or the empty document if the bytes are not a document.
    pub fn dom(&self) -> crate::Dom<'_> {
        crate::Dom::new(self.as_bytes()).unwrap_or_default()
    }
}
