//! Errors of parsing a document and of opening a block.
//!
//! Each error has the cause, the place and the remedy.

use std::fmt;

/// The error of parsing a source.
///
/// ```
/// use evermap_dom::{ParseErrorKind, xml};
///
/// let error = xml::parse("<a>\n <b></a>", &Default::default()).unwrap_err();
/// assert_eq!((error.line, error.column), (2, 5));
/// assert!(matches!(error.kind, ParseErrorKind::NotWellFormed(_)));
/// assert!(error.to_string().contains("line 2, column 5"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The kind of error.
    pub kind: ParseErrorKind,
    /// Offset in bytes from the start of the decoded source.
    pub offset_bytes: u64,
    /// The line, counted from 1.
    pub line: u32,
    /// The character in the line, counted from 1.
    pub column: u32,
}

impl ParseError {
    /// Places an error at a byte of a text.
    pub(crate) fn at(kind: ParseErrorKind, source: &str, offset: usize) -> ParseError {
        let mut end = offset.min(source.len());
        while !source.is_char_boundary(end) {
            end -= 1;
        }
        let before = &source.as_bytes()[..end];
        let line_start = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
        ParseError {
            kind,
            offset_bytes: end as u64,
            line: memchr::memchr_iter(b'\n', before).count() as u32 + 1,
            column: source[line_start..end].chars().count() as u32 + 1,
        }
    }

    /// An error of the document as a whole.
    pub(crate) fn whole(kind: ParseErrorKind) -> ParseError {
        ParseError { kind, offset_bytes: 0, line: 1, column: 1 }
    }

    /// Returns the remedy.
    ///
    /// ```
    /// # use evermap_dom::xml;
    /// let error = xml::parse("<a>&nbsp;</a>", &Default::default()).unwrap_err();
    /// assert!(error.remedy().contains("&#"));
    /// ```
    pub fn remedy(&self) -> &'static str {
        match &self.kind {
            ParseErrorKind::TooLarge { .. } => "split the document",
            ParseErrorKind::NoMemory => {
                "raise the process's limit (`ulimit -v`), free memory, or split the document"
            }
            ParseErrorKind::WorkLimit { .. } => {
                "close the elements that are open here, or parse it as XML if it is well-formed"
            }
            ParseErrorKind::TooManyAttributes { .. } => {
                "close the quotes and the tag, or parse it as XML if it is well-formed"
            }
            ParseErrorKind::Encoding { .. } => {
                "declare the encoding the file really has, or convert it to UTF-8"
            }
            ParseErrorKind::UnknownEntity(_) => {
                "declare it in the document type declaration, or write the character itself or \
                 its number, &#...;"
            }
            ParseErrorKind::EntityLimit => "replace the entities by their text",
            ParseErrorKind::ExternalEntity(_) => {
                "external files are never read: put the entity's text into the document"
            }
            ParseErrorKind::UnboundPrefix(_) => "declare it with an xmlns: attribute",
            _ => "correct the document at this place, or parse it as HTML, which repairs it",
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at line {}, column {} (byte {}); {}",
            self.kind,
            self.line,
            self.column,
            self.offset_bytes,
            self.remedy()
        )
    }
}

impl std::error::Error for ParseError {}

/// The kinds of [`ParseError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// A table would exceed its 32-bit offsets (24-bit for names).
    #[error("the document has too many {what}: the limit is {limit}")]
    TooLarge {
        /// Bytes of text, nodes or names.
        what: &'static str,
        /// The largest number possible.
        limit: u64,
    },
    /// The process cannot allocate more memory.
    #[error("no memory is left for the document's tables")]
    NoMemory,
    /// HTML: repairing the page would take time quadratic in its length.
    #[error("repairing the page takes more than {units_max} steps, the limit for its length")]
    WorkLimit {
        /// Steps allowed for the text up to this place.
        units_max: u64,
    },
    /// HTML: a tag has too many attributes; comparing their names would take too long.
    #[error("a tag has more than {limit} attributes, the limit")]
    TooManyAttributes {
        /// The maximum.
        limit: u64,
    },
    /// The bytes are not valid in the encoding.
    #[error("the bytes are not valid {encoding}")]
    Encoding {
        /// The encoding that was declared, or UTF-8.
        encoding: String,
    },
    /// XML: a rule of the grammar is broken.
    #[error("not well-formed XML: {0}")]
    NotWellFormed(String),
    /// XML: text outside the root element.
    #[error("text outside the root element")]
    TextOutsideRoot,
    /// XML: a second root element.
    #[error("a second root element <{0}>")]
    SecondRoot(String),
    /// XML: no root element at all.
    #[error("no root element")]
    NoRoot,
    /// XML: the same attribute twice in one element.
    #[error("the attribute {0} is given twice")]
    DuplicateAttribute(String),
    /// XML: a prefix that no xmlns attribute declares.
    #[error("the prefix {0} is not bound to a namespace")]
    UnboundPrefix(String),
    /// XML: a reference to an entity that is not declared.
    #[error("the entity &{0}; is not declared")]
    UnknownEntity(String),
    /// XML: a reference to an external entity, which lies in another file.
    #[error("the entity &{0}; is external")]
    ExternalEntity(String),
    /// XML: entities that refer to themselves, or grow beyond reason.
    #[error("the document's entities are recursive or grow too large")]
    EntityLimit,
}

/// The error of opening a block as a document.
///
/// ```
/// use evermap_dom::{Dom, InvalidDocument};
///
/// assert!(matches!(Dom::new(&[]), Err(InvalidDocument::Truncated { .. })));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidDocument {
    /// The block ends too early.
    #[error("the block has {found} bytes where {expected} are needed: fetch or parse it again")]
    Truncated {
        /// Length of the block.
        found: u64,
        /// Required length.
        expected: u64,
    },
    /// The block does not lie at a multiple of 8 bytes.
    #[error("the block lies at a misaligned address: copy it to a multiple of 8 bytes")]
    Misaligned,
    /// The block is not a document.
    #[error("the block is not a document: it does not start with a document's magic bytes")]
    NotADocument,
    /// A version that this program does not know.
    #[error(
        "the block has format version {found}, this program reads {supported}: parse the source again or update the program"
    )]
    Version {
        /// The block's version.
        found: u32,
        /// The version that is supported.
        supported: u32,
    },
    /// The header is inconsistent.
    #[error("the block's header is damaged ({what}): parse the source again")]
    Header {
        /// The damaged part.
        what: &'static str,
    },
    /// A table is damaged; only [`crate::Dom::validate`] finds this.
    #[error("the block is damaged ({what}, entry {index}): parse the source again")]
    Damaged {
        /// The broken rule.
        what: &'static str,
        /// The first entry that breaks it.
        index: u64,
    },
}
