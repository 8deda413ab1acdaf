//! The block format, to the byte.
//!
//! A block is one position-independent piece of memory: a header, a table of sections, and the
//! sections, each a plain array. Everything inside is an index or an offset, never an address.
//! Numbers are little-endian. Sections start at multiples of 8 bytes; a block has to be placed at
//! an address that is a multiple of 8 (a store gives at least 16). Changing anything here means a
//! new [`FORMAT_VERSION`].
//!
//! | section | record | one per |
//! |---|---|---|
//! | nodes | [`Node`], 16 B | node, in document order; id 0 is the document |
//! | attributes | [`Attribute`], 8 B | attribute, in source order, one run per element |
//! | names | [`Name`], 24 B | name that is not a well-known name |
//! | name order | u32 | name, sorted by (hash, local name) |
//! | namespaces | [`Span`], 8 B | namespace URI beyond the seven fixed ones |
//! | class lists | [`ClassList`], 8 B | distinct value of a `class` attribute |
//! | class list tokens | u32 | token in a class list, rising within a list |
//! | tokens | [`Token`], 20 B | distinct class token, sorted by (hash, spelling) |
//! | class postings | bytes | (token, element) pair: see [`crate::index`] |
//! | ids | [`IdEntry`], 8 B | element with an id, sorted by (hash, node) |
//! | name index | [`NameEntry`], 12 B | distinct local name of an element, sorted by it |
//! | name postings | bytes | element |
//! | text | bytes | all text, UTF-8 |

use bytemuck::{Pod, Zeroable};

/// The first eight bytes of every block.
pub(crate) const MAGIC: [u8; 8] = *b"EVMDOM\r\n";
/// The version of the format that this crate writes, and the only one that it reads.
pub const FORMAT_VERSION: u32 = 1;
/// Sections, and the block as a whole, start at multiples of this.
pub(crate) const ALIGNMENT: usize = 8;
/// No id, no offset, no link.
pub(crate) const NONE: u32 = u32::MAX;

/// The header at offset 0. 48 bytes of fields and 16 per section: 256 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(crate) struct Header {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`FORMAT_VERSION`].
    pub version: u32,
    /// Bytes from the start of the block to the first section.
    pub header_bytes: u32,
    /// 0 HTML, 1 XML.
    pub document_kind: u32,
    /// 0 none, 1 limited, 2 full.
    pub quirks: u32,
    /// [`FLAG_INDEXED`] and [`FLAG_SCRIPTING`].
    pub flags: u32,
    /// Number of well-known names that the writer knew; dynamic names have ids from here on.
    pub known_count: u32,
    /// Bytes of the whole block.
    pub block_bytes: u64,
    /// Bytes of the source document, for statistics.
    pub source_bytes: u64,
    /// The sections' offsets and lengths.
    pub sections: [Section; SECTION_COUNT],
}

/// The block holds the id, class and name indexes.
pub(crate) const FLAG_INDEXED: u32 = 1;
/// HTML was parsed as if scripts run: `noscript` holds plain text.
pub(crate) const FLAG_SCRIPTING: u32 = 2;

/// Offset and length of one section.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(crate) struct Section {
    /// Bytes from the start of the block, a multiple of 8.
    pub offset: u64,
    /// Bytes, a multiple of the record's size.
    pub bytes: u64,
}

pub(crate) const SECTION_COUNT: usize = 13;
pub(crate) const NODES: usize = 0;
pub(crate) const ATTRIBUTES: usize = 1;
pub(crate) const NAMES: usize = 2;
pub(crate) const NAME_ORDER: usize = 3;
pub(crate) const NAMESPACES: usize = 4;
pub(crate) const CLASS_LISTS: usize = 5;
pub(crate) const CLASS_LIST_TOKENS: usize = 6;
pub(crate) const TOKENS: usize = 7;
pub(crate) const CLASS_POSTINGS: usize = 8;
pub(crate) const IDS: usize = 9;
pub(crate) const NAME_INDEX: usize = 10;
pub(crate) const NAME_POSTINGS: usize = 11;
pub(crate) const TEXT: usize = 12;

/// The size of a section's record in bytes.
pub(crate) const RECORD_BYTES: [usize; SECTION_COUNT] = [
    size_of::<Node>(),
    size_of::<Attribute>(),
    size_of::<Name>(),
    4,
    size_of::<Span>(),
    size_of::<ClassList>(),
    4,
    size_of::<Token>(),
    1,
    size_of::<IdEntry>(),
    size_of::<NameEntry>(),
    1,
    1,
];

/// One node. Its id is its place in the array, and places are in document order, so that a
/// subtree is the range `id..extent`, the first child is `id + 1` and the next sibling is
/// `extent`. Two links are therefore enough, and no damage to them can make a loop: every step
/// forward goes to a larger id, every step up to a smaller one.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(crate) struct Node {
    /// Bits 0-3 kind, bits 4-7 flags, bits 8-31 name id (element: its name; processing
    /// instruction: its target; else 0).
    pub word: u32,
    /// The parent's id; 0 for the document itself.
    pub parent: u32,
    /// Document, fragment, element: one past the last node of the subtree.
    /// Text, comment, doctype, processing instruction: length in bytes.
    pub extent: u32,
    /// Element: index of the first attribute, or [`NONE`].
    /// Text, comment, doctype, processing instruction: offset in the text section.
    pub data: u32,
}

pub(crate) const KIND_MASK: u32 = 0xF;
pub(crate) const NAME_SHIFT: u32 = 8;
/// Names have 24-bit ids.
pub(crate) const NAME_COUNT_MAX: u32 = 1 << 24;
/// The element has a non-empty `id` attribute.
pub(crate) const HAS_ID: u32 = 1 << 4;
/// The element has a `class` attribute.
pub(crate) const HAS_CLASS: u32 = 1 << 5;
/// The element is a template: its contents' fragment is the node after it.
pub(crate) const HAS_CONTENTS: u32 = 1 << 6;
/// The node is inside a template's contents: queries on the document don't see it.
pub(crate) const IN_FRAGMENT: u32 = 1 << 7;

pub(crate) const DOCUMENT: u32 = 0;
pub(crate) const ELEMENT: u32 = 1;
pub(crate) const TEXT_NODE: u32 = 2;
pub(crate) const COMMENT: u32 = 3;
pub(crate) const DOCTYPE: u32 = 4;
pub(crate) const PROCESSING_INSTRUCTION: u32 = 5;
pub(crate) const FRAGMENT: u32 = 6;

impl Node {
    #[inline]
    pub(crate) fn kind(&self) -> u32 {
        self.word & KIND_MASK
    }

    #[inline]
    pub(crate) fn name(&self) -> u32 {
        self.word >> NAME_SHIFT
    }

    #[inline]
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.word & flag != 0
    }

    #[inline]
    pub(crate) fn is_container(&self) -> bool {
        matches!(self.kind(), DOCUMENT | ELEMENT | FRAGMENT)
    }
}

/// One attribute.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(crate) struct Attribute {
    /// Bits 0-23 name id, bit 31 set on the last attribute of an element.
    pub word: u32,
    /// `class` in no namespace: index of its class list. Any other: offset in the text section of
    /// the value, which there starts with its length (6 bits a byte, low bits first, bit 6 set on
    /// all but the last byte, bit 7 clear: the text section as a whole is UTF-8).
    pub value: u32,
}

/// Set on the last attribute of an element.
pub(crate) const LAST_ATTRIBUTE: u32 = 1 << 31;
const ATTRIBUTE_NAME_MASK: u32 = NAME_COUNT_MAX - 1;

impl Attribute {
    #[inline]
    pub(crate) fn name(&self) -> u32 {
        self.word & ATTRIBUTE_NAME_MASK
    }

    #[inline]
    pub(crate) fn is_last(&self) -> bool {
        self.word & LAST_ATTRIBUTE != 0
    }
}

/// A name that is not in the list of well-known names, or is in a namespace other than the
/// default of its use, or has a prefix.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(crate) struct Name {
    /// [`crate::hash::stored`] of the local name.
    pub hash: u32,
    /// Namespace id: see [`crate::names`].
    pub namespace: u32,
    /// Offset of the qualified name (`prefix:local` or `local`) in the text section.
    pub offset: u32,
    /// Length of the qualified name in bytes.
    pub bytes: u32,
    /// Length of the prefix in bytes, without its colon; 0 without a prefix.
    pub prefix_bytes: u32,
    /// The id that all names with this local name share: a well-known name's id, or the smallest
    /// id of them.
    pub local: u32,
}

/// A piece of the text section.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(crate) struct Span {
    pub offset: u32,
    pub bytes: u32,
}

/// One distinct value of a `class` attribute. Its tokens end where the next list's begin.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(crate) struct ClassList {
    /// Offset of the length-prefixed value in the text section.
    pub value: u32,
    /// Index of the first token in the class list tokens.
    pub first_token: u32,
}

/// One distinct class token. Its postings end where the next token's begin.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(crate) struct Token {
    /// Hash of the spelling; in quirks mode of its ASCII lower case.
    pub hash: u32,
    /// Offset of the spelling in the text section.
    pub offset: u32,
    /// Length of the spelling in bytes.
    pub bytes: u32,
    /// Offset of its postings in the class postings.
    pub postings: u32,
    /// Number of elements that have it.
    pub count: u32,
}

/// One element with an id.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(crate) struct IdEntry {
    /// Hash of the id; in quirks mode of its ASCII lower case.
    pub hash: u32,
    pub node: u32,
}

/// The elements with one local name. Their postings end where the next entry's begin.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
pub(crate) struct NameEntry {
    /// [`Name::local`].
    pub local: u32,
    /// Offset of the postings in the name postings.
    pub postings: u32,
    /// Number of elements that have it.
    pub count: u32,
}

const _: () = {
    assert!(size_of::<Header>() == 48 + 16 * SECTION_COUNT);
    assert!(size_of::<Header>() == 256 && align_of::<Header>() <= ALIGNMENT);
    assert!(size_of::<Section>() == 16);
    assert!(size_of::<Node>() == 16 && align_of::<Node>() == 4);
    assert!(size_of::<Attribute>() == 8);
    assert!(size_of::<Name>() == 24);
    assert!(size_of::<Span>() == 8);
    assert!(size_of::<ClassList>() == 8);
    assert!(size_of::<Token>() == 20);
    assert!(size_of::<IdEntry>() == 8);
    assert!(size_of::<NameEntry>() == 12);
    // The records are read as they lie in the file.
    assert!(cfg!(target_endian = "little"));
};
