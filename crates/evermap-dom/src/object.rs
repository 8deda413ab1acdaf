//! Documents as objects of a store: parsed once, open ever after.
//!
//! A [`Document`] is the root of an object: where the document came from, and its block. Reopening
//! is mapping the object and looking at the block's header. The block is checked no further than
//! [`Dom::new`] does; for an object from somebody else call [`Dom::validate`].
// The derive writes `unsafe impl`s after checking the layout at compile time; nothing else here is.
#![allow(unsafe_code)]

use evermap::{Build, Built, Error, PVec, Persist, Plain, Slot};

use crate::{Dom, InvalidDocument, Tables};

/// Bytes of a source's path that are kept.
const PATH_BYTES_MAX: usize = 510;

/// Where a document came from, to recognise an unchanged source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// File name or address; the first 510 bytes are kept.
    pub path: String,
    /// Bytes of the source.
    pub size_bytes: u64,
    /// When the source was changed last, nanoseconds since 1970; 0 if that is not known.
    pub modified_ns: u64,
    /// BLAKE3 of the source's bytes.
    pub hash: [u8; 32],
}

/// [`Source`] as it lies in the object.
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

/// What a [`Document`] is built from.
#[derive(Clone, Copy, Debug)]
pub struct NewDocument<'a> {
    /// The parsed document.
    pub tables: &'a Tables,
    /// Where it came from.
    pub source: &'a Source,
}

impl Build<NewDocument<'_>> for Document {
    fn expected_bytes(new: &NewDocument<'_>) -> Option<u64> {
        Some(new.tables.block_len() as u64)
    }

    fn build<'a>(new: NewDocument<'_>, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, Error> {
        let empty = Document { source: KeptSource::of(new.source), block: PVec::new() };
        slot.write_with(empty, |mut document| {
            let mut block = document.fields().block;
            block.reserve_exact(new.tables.block_len())?;
            let mut written = Ok(());
            new.tables.write_block(&mut |bytes| {
                if written.is_ok() {
                    written = block.extend_from_slice(bytes);
                }
            });
            written
        })
    }
}

/// What a [`Document`] is built from when its block is ready: parsed by another process, say.
#[derive(Clone, Copy, Debug)]
pub struct NewBlock<'a> {
    /// The block's bytes. They are not looked at: see [`Dom::validate`].
    pub block: &'a [u8],
    /// Where the document came from.
    pub source: &'a Source,
}

impl Build<NewBlock<'_>> for Document {
    fn expected_bytes(new: &NewBlock<'_>) -> Option<u64> {
        Some(new.block.len() as u64)
    }

    fn build<'a>(new: NewBlock<'_>, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, Error> {
        let empty = Document { source: KeptSource::of(new.source), block: PVec::new() };
        slot.write_with(empty, |mut document| {
            let mut block = document.fields().block;
            block.reserve_exact(new.block.len())?;
            block.extend_from_slice(new.block)
        })
    }
}

impl Document {
    /// The document's tree, ready for queries. Looks at the block's header only.
    ///
    /// # Errors
    /// When the block is not a document of a format that this build knows.
    pub fn dom(&self) -> Result<Dom<'_>, InvalidDocument> {
        Dom::new(&self.block)
    }

    /// Where the document came from.
    pub fn source(&self) -> Source {
        let kept = &self.source;
        let path = &kept.path[..(kept.path_length as usize).min(PATH_BYTES_MAX)];
        Source {
            path: String::from_utf8_lossy(path).into_owned(),
            size_bytes: kept.size_bytes,
            modified_ns: kept.modified_ns,
            hash: kept.hash,
        }
    }

    /// Bytes of the document's block.
    pub fn block_bytes(&self) -> u64 {
        self.block.len() as u64
    }
}

impl KeptSource {
    fn of(source: &Source) -> KeptSource {
        let mut end = source.path.len().min(PATH_BYTES_MAX);
        while !source.path.is_char_boundary(end) {
            end -= 1;
        }
        let mut path = [0; PATH_BYTES_MAX];
        path[..end].copy_from_slice(&source.path.as_bytes()[..end]);
        KeptSource {
            size_bytes: source.size_bytes,
            modified_ns: source.modified_ns,
            hash: source.hash,
            path_length: end as u16,
            path,
        }
    }
}
