//! Documents as objects of a store: parsed once, reopened without parsing.
//!
//! A [`Document`] is the root of an object and contains the document's source and its block.
//! Reopening maps the object and checks the block's header. The block is checked no further than by
//! [`Dom::new`]; for an object from an untrusted source call [`Dom::validate`]. The store has
//! compared the root's pointer with the object's bounds.
//!
//! A [`Note`] can follow the block. It contains the document's name, if the document is named after
//! its file, and a path that is too long for the root. Builds that do not know notes ignore it.
// The derive generates `unsafe impl`s after checking the layout at compile time.
#![allow(unsafe_code)]

use evermap::{Build, Built, HeapError, Mut, PVec, Persist, Plain, Slot};

use crate::layout::ALIGNMENT;
use crate::{Dom, InvalidDocument, Tables};

/// Maximum bytes of a source's path in the root.
const PATH_BYTES_MAX: usize = 510;
/// Maximum bytes of a stored path: the kernel's maximum.
const NOTE_BYTES_MAX: usize = 4096;
/// First bytes of a note.
const NOTE_MAGIC: [u8; 8] = *b"EVMNOTE\n";
/// Magic and two lengths of 32 bits.
const NOTE_HEAD_BYTES: usize = 16;
/// Offset of the block's length in its header.
const BLOCK_BYTES_OFFSET: usize = 32;
const _: () =
    assert!(std::mem::offset_of!(crate::layout::Header, block_bytes) == BLOCK_BYTES_OFFSET);

/// The source of a document, to recognise an unchanged source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// File name or address; the first 4,096 bytes are kept.
    pub path: String,
    /// Bytes of the source.
    pub size_bytes: u64,
    /// Time of the source's last change in nanoseconds since 1970; 0 if unknown.
    pub modified_ns: u64,
    /// BLAKE3 of the source's bytes.
    pub hash: [u8; 32],
}

/// [`Source`] in the object's format. Its name is part of the format.
#[derive(Clone, Copy, Persist, Plain)]
#[repr(C)]
struct KeptSource {
    size_bytes: u64,
    modified_ns: u64,
    hash: [u8; 32],
    path_length: u16,
    path: [u8; PATH_BYTES_MAX],
}

/// A parsed document, as the root of an object.
///
/// ```
/// use evermap_dom::{Document, NewDocument, Selector, Source, html};
///
/// # let directory = tempfile::tempdir()?;
/// let store = evermap::Store::open_or_create(directory.path().join("store"))?;
/// let tables = html::parse("<p>Hello <b>world</b>", &Default::default())?;
/// let source = Source { path: "hello.html".into(), size_bytes: 21, modified_ns: 0, hash: [0; 32] };
/// store.replace::<Document, _>("hello", NewDocument { tables: &tables, source: &source })?;
///
/// // In this process or in any later one:
/// let document = store.read::<Document>("hello")?;
/// let bold: Selector = "p > b".parse()?;
/// let found = document.dom()?.select_first(&bold);
/// assert_eq!(found.map(|b| b.text()).as_deref(), Some("world"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Persist)]
#[persist(name = "EvermapDocument")]
#[repr(C)]
pub struct Document {
    source: KeptSource,
    block: PVec<u8>,
}

/// Parts of a new [`Document`].
#[derive(Clone, Copy, Debug)]
pub struct NewDocument<'a> {
    /// The parsed document.
    pub tables: &'a Tables,
    /// The document's source.
    pub source: &'a Source,
}

impl Build<NewDocument<'_>> for Document {
    fn expected_bytes(new: &NewDocument<'_>) -> Option<u64> {
        Some(new.tables.block_len() as u64)
    }

    fn build<'a>(new: NewDocument<'_>, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        build_tables(new, "", slot)
    }
}

/// Parts of a new [`Document`] that is named after its file.
#[derive(Clone, Copy, Debug)]
pub struct NewNamed<'a> {
    /// The document.
    pub document: NewDocument<'a>,
    /// The document's name, up to 4,096 bytes. The object's name may be shorter.
    pub name: &'a str,
}

impl Build<NewNamed<'_>> for Document {
    fn expected_bytes(new: &NewNamed<'_>) -> Option<u64> {
        let note = NOTE_HEAD_BYTES + new.name.len() + new.document.source.path.len();
        Some((new.document.tables.block_len() + note) as u64)
    }

    fn build<'a>(new: NewNamed<'_>, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        build_tables(new.document, new.name, slot)
    }
}

fn build_tables<'a>(
    new: NewDocument<'_>,
    name: &str,
    slot: Slot<'a, Document>,
) -> Result<Built<'a, Document>, HeapError> {
    let note = note_of(name, &new.source.path);
    let empty = Document { source: KeptSource::of(new.source), block: PVec::new() };
    slot.write_with(empty, |mut document| {
        let mut block = document.fields().block;
        block.reserve_exact(new.tables.block_len() + note.len())?;
        let mut written = Ok(());
        new.tables.write_block(&mut |bytes| {
            if written.is_ok() {
                written = block.extend_from_slice(bytes);
            }
        });
        written?;
        block.extend_from_slice(&note)
    })
}

/// Returns the bytes of a note; empty if the root has room for everything.
fn note_of(name: &str, path: &str) -> Vec<u8> {
    if name.is_empty() && path.len() <= PATH_BYTES_MAX {
        return Vec::new();
    }
    let (name, path) = (truncated(name, NOTE_BYTES_MAX), truncated(path, NOTE_BYTES_MAX));
    let mut note = NOTE_MAGIC.to_vec();
    for text in [name, path] {
        note.extend_from_slice(&(text.len() as u32).to_le_bytes());
    }
    note.extend_from_slice(name.as_bytes());
    note.extend_from_slice(path.as_bytes());
    note.resize(note.len().next_multiple_of(ALIGNMENT), 0);
    note
}

/// Truncates a text to at most `bytes_max` bytes.
fn truncated(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Additional data after a block.
struct Note<'a> {
    name: &'a str,
    path: &'a str,
}

impl<'a> Note<'a> {
    /// Returns the offset of the note after a block, if there is one. Its head is in `block`.
    fn start(block: &[u8]) -> Option<usize> {
        let length = block.get(BLOCK_BYTES_OFFSET..BLOCK_BYTES_OFFSET + 8)?;
        let start = usize::try_from(u64::from_le_bytes(length.try_into().ok()?)).ok()?;
        let head = block.get(start..start.checked_add(NOTE_HEAD_BYTES)?)?;
        (head[..8] == NOTE_MAGIC).then_some(start)
    }

    /// Returns the note after a block, if there is one. Checks all lengths.
    fn after(block: &'a [u8]) -> Option<Note<'a>> {
        let word = |at: usize| -> Option<usize> {
            let bytes = block.get(at..at.checked_add(4)?)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
        };
        let start = Note::start(block)?;
        let (name_bytes, path_bytes) = (word(start + 8)?, word(start + 12)?);
        let name_start = start + NOTE_HEAD_BYTES;
        let path_start = name_start.checked_add(name_bytes)?;
        let name = block.get(name_start..path_start)?;
        let path = block.get(path_start..path_start.checked_add(path_bytes)?)?;
        Some(Note { name: std::str::from_utf8(name).ok()?, path: std::str::from_utf8(path).ok()? })
    }
}

/// Parts of a new [`Document`] whose block exists already, for example from another process.
#[derive(Clone, Copy, Debug)]
pub struct NewBlock<'a> {
    /// The block's bytes. They are not checked: see [`Dom::validate`].
    pub block: &'a [u8],
    /// The document's source.
    pub source: &'a Source,
}

impl Build<NewBlock<'_>> for Document {
    fn expected_bytes(new: &NewBlock<'_>) -> Option<u64> {
        Some(new.block.len() as u64)
    }

    fn build<'a>(new: NewBlock<'_>, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        let empty = Document { source: KeptSource::of(new.source), block: PVec::new() };
        slot.write_with(empty, |mut document| {
            let mut block = document.fields().block;
            block.reserve_exact(new.block.len())?;
            block.extend_from_slice(new.block)
        })
    }
}

impl Document {
    /// Returns the document's tree for queries. Checks the block's header only.
    ///
    /// # Errors
    /// If the block is not a document in a format that this build knows.
    pub fn dom(&self) -> Result<Dom<'_>, InvalidDocument> {
        Dom::new(&self.block)
    }

    /// Returns the document's name, if it is named after its file. The object's name is the same,
    /// or derived from it if it is too long for an object.
    pub fn file_name(&self) -> Option<&str> {
        Note::after(&self.block).map(|note| note.name).filter(|name| !name.is_empty())
    }

    /// Sets the time of the source's last change. The document stays unchanged.
    ///
    /// ```
    /// use evermap_dom::{Document, NewDocument, Source, html};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// let store = evermap::Store::open_or_create(directory.path().join("store"))?;
    /// let tables = html::parse("<p>text", &Default::default())?;
    /// let source = Source { path: "a.html".into(), size_bytes: 7, modified_ns: 0, hash: [0; 32] };
    /// store.create::<Document, _>("a", NewDocument { tables: &tables, source: &source })?;
    /// let mut session = store.write::<Document>("a")?;
    /// Document::set_modified(session.root_mut(), 12);
    /// session.commit()?;
    /// session.close()?;
    /// assert_eq!(store.read::<Document>("a")?.source().modified_ns, 12);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_modified(mut document: Mut<'_, Document>, modified_ns: u64) {
        document.fields().source.modified_ns = modified_ns;
    }

    /// Sets the path of the document's source; the first 510 bytes are kept. The document stays
    /// unchanged, and keeps its name.
    ///
    /// ```
    /// use evermap_dom::{Document, NewDocument, NewNamed, Source, html};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// let store = evermap::Store::open_or_create(directory.path().join("store"))?;
    /// let tables = html::parse("<p>text", &Default::default())?;
    /// let source = Source { path: "/a.html".into(), size_bytes: 7, modified_ns: 0, hash: [0; 32] };
    /// let document = NewDocument { tables: &tables, source: &source };
    /// store.create::<Document, _>("a", NewNamed { document, name: "a.html" })?;
    /// let mut session = store.write::<Document>("a")?;
    /// Document::set_source_path(session.root_mut(), "/b.html");
    /// session.commit()?;
    /// session.close()?;
    /// let document = store.read::<Document>("a")?;
    /// assert_eq!(document.source().path, "/b.html");
    /// assert_eq!(document.file_name(), Some("a.html"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_source_path(mut document: Mut<'_, Document>, path: &str) {
        let mut fields = document.fields();
        let path = truncated(path, PATH_BYTES_MAX).as_bytes();
        fields.source.path[..path.len()].copy_from_slice(path);
        fields.source.path[path.len()..].fill(0);
        fields.source.path_length = path.len() as u16;
        // A note without a path leaves that to the root.
        if let Some(start) = Note::start(&fields.block) {
            fields.block.as_mut_slice()[start + 12..start + NOTE_HEAD_BYTES].fill(0);
        }
    }

    /// Returns the document's source.
    pub fn source(&self) -> Source {
        let kept = &self.source;
        let path = &kept.path[..(kept.path_length as usize).min(PATH_BYTES_MAX)];
        let noted = Note::after(&self.block).map(|note| note.path).filter(|path| !path.is_empty());
        Source {
            path: noted.map_or_else(|| String::from_utf8_lossy(path).into_owned(), str::to_string),
            size_bytes: kept.size_bytes,
            modified_ns: kept.modified_ns,
            hash: kept.hash,
        }
    }

    /// Returns the document's block, including the note after it. A program that must not use
    /// damaged pages compares it with its checksums first.
    ///
    /// ```
    /// use evermap_dom::{Document, NewDocument, Source, html};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// let store = evermap::Store::open_or_create(directory.path().join("store"))?;
    /// let tables = html::parse("<p>text", &Default::default())?;
    /// let source = Source { path: "a.html".into(), size_bytes: 7, modified_ns: 0, hash: [0; 32] };
    /// store.create::<Document, _>("a", NewDocument { tables: &tables, source: &source })?;
    /// let document = store.read::<Document>("a")?;
    /// assert!(document.verify_bytes(document.block())?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn block(&self) -> &[u8] {
        &self.block
    }

    /// Returns the bytes of the document's block, including the note after it.
    pub fn block_bytes(&self) -> u64 {
        self.block.len() as u64
    }
}

impl KeptSource {
    fn of(source: &Source) -> KeptSource {
        let text = truncated(&source.path, PATH_BYTES_MAX).as_bytes();
        let mut path = [0; PATH_BYTES_MAX];
        path[..text.len()].copy_from_slice(text);
        KeptSource {
            size_bytes: source.size_bytes,
            modified_ns: source.modified_ns,
            hash: source.hash,
            path_length: text.len() as u16,
            path,
        }
    }
}
