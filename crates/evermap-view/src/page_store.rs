//! Stores the objects of a page.
//!
//! | object | content | shared by |
//! |---|---|---|
//! | `page-SLUG-WIDTHxHEIGHTxSCALE-HASH` | [`PageRoot`]: manifest, page block, strips | - |
//! | `page-SLUG-HASH.document` | `evermap_dom::Document`: the tables | the layouts of one address |
//! | `font-HASH` | [`PartRoot`]: a font file | all pages |
//! | `image-HASH` | [`PartRoot`]: decoded pixels | all pages |
//! | `page-….slow` | [`SlowPage`]: reading this page from this disk is too slow | - |
//! | `page-….retry` | [`RetryNote`]: when missing resources were last requested again | - |
//!
//! SLUG is the end of the address, for people. HASH is the beginning of the BLAKE3 hash of the
//! address or of the content. All objects that a page needs appear in one batch, or none does.
// The derive writes `unsafe impl`s after checking the layout at compile time. This file has no
// other unsafe code.
#![allow(unsafe_code)]

use std::collections::HashSet;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;

use evermap::{Build, Built, Error, HeapError, PVec, Persist, Slot, Snapshot, Store};
use evermap_dom::{Document, NewBlock};
use url::Url;

use crate::layout::Layout;
use crate::manifest::Manifest;
use crate::page::{Block, PageBytes, Part, PartKind};
use crate::paint::{Page, Parts, SharedBytes};
use crate::stored_object::{self, Unusable};
use crate::{Result, ViewError};

mod names;
mod notes;

pub use names::{document_name, page_name, part_name};
pub(crate) use names::{hash_of, is_companion, without_ending};
pub use notes::{RetryNote, SlowPage};

/// Indices of the parts of a stored page, see [`PageRoot::part`].
const BLOCK: usize = 0;
const STRIPS: usize = 1;
const MANIFEST: usize = 2;
/// Alignment of the parts, in bytes.
const ALIGNMENT: usize = 8;

/// Root of the object of a laid-out page. All parts share one vector, because an object with a
/// single block has no slack.
#[derive(Persist)]
#[persist(name = "EvermapPage")]
#[repr(C)]
pub struct PageRoot {
    /// Bytes of the page block, of the strips (0 without any), and of the manifest.
    lengths: [u64; 3],
    /// Page block, strips and manifest, each padded to a multiple of 8 bytes. The manifest is a
    /// [`Manifest`] as JSON.
    parts: PVec<u8>,
}

/// Root of the object of a font file or of an image's pixels.
#[derive(Persist)]
#[persist(name = "EvermapPart")]
#[repr(C)]
pub struct PartRoot {
    bytes: PVec<u8>,
}

/// Parts from which a [`PageRoot`] is built.
#[derive(Clone, Copy)]
pub struct NewPage<'a> {
    /// Manifest as JSON.
    pub manifest: &'a [u8],
    /// Page block.
    pub block: &'a [u8],
    /// Strips.
    pub strips: &'a [u8],
}

impl NewPage<'_> {
    fn parts(&self) -> [&[u8]; 3] {
        [self.block, self.strips, self.manifest]
    }

    fn bytes(&self) -> usize {
        self.parts().iter().map(|part| part.len().next_multiple_of(ALIGNMENT)).sum()
    }
}

impl Build<NewPage<'_>> for PageRoot {
    fn expected_bytes(new: &NewPage<'_>) -> Option<u64> {
        Some(new.bytes() as u64)
    }

    fn build<'a>(
        new: NewPage<'_>,
        slot: Slot<'a, Self>,
    ) -> std::result::Result<Built<'a, Self>, HeapError> {
        let lengths = new.parts().map(|part| part.len() as u64);
        slot.write_with(PageRoot { lengths, parts: PVec::new() }, |mut page| {
            let mut parts = page.fields().parts;
            parts.reserve_exact(new.bytes())?;
            for part in new.parts() {
                parts.extend_from_slice(part)?;
                let padding = part.len().next_multiple_of(ALIGNMENT) - part.len();
                parts.extend_from_slice(&[0; ALIGNMENT][..padding])?;
            }
            Ok(())
        })
    }
}

impl PageRoot {
    /// Returns the page block, the strips, or the manifest. Returns an empty slice if the lengths
    /// exceed the vector.
    fn part(&self, number: usize) -> &[u8] {
        let mut offset = 0_usize;
        for (at, length) in self.lengths.iter().enumerate() {
            let end = usize::try_from(*length).ok().and_then(|length| offset.checked_add(length));
            let Some(end) = end.filter(|end| *end <= self.parts.len()) else { return &[] };
            if at == number {
                return &self.parts[offset..end];
            }
            offset = end.next_multiple_of(ALIGNMENT);
        }
        &[]
    }
}

impl Build<&[u8]> for PartRoot {
    fn expected_bytes(bytes: &&[u8]) -> Option<u64> {
        Some(bytes.len() as u64)
    }

    fn build<'a>(
        bytes: &[u8],
        slot: Slot<'a, Self>,
    ) -> std::result::Result<Built<'a, Self>, HeapError> {
        slot.write_with(PartRoot { bytes: PVec::new() }, |mut part| {
            let mut field = part.fields().bytes;
            field.reserve_exact(bytes.len())?;
            field.extend_from_slice(bytes)
        })
    }
}

/// A stored page that was opened.
pub struct StoredPage {
    snapshot: Arc<Snapshot<PageRoot>>,
    store: Store,
}

impl StoredPage {
    /// Opens the page that is stored for this address and layout. The error says why there is none
    /// that this build can read.
    ///
    /// Costs opening an object, and reads only the manifest.
    pub fn open(
        store: &Store,
        url: &Url,
        layout: Layout,
    ) -> std::result::Result<StoredPage, String> {
        let Layout { width, height, scale } = layout;
        StoredPage::named(store, &page_name(url, layout)).map_err(|why| {
            why.unwrap_or_else(|| format!("not stored for {width} x {height} at scale {scale}"))
        })
    }

    /// Opens the page with this object name. Returns `Err(None)` if the object does not exist.
    pub(crate) fn named(
        store: &Store,
        name: &str,
    ) -> std::result::Result<StoredPage, Option<String>> {
        match StoredPage::of_object(store, name) {
            Ok(page) => Ok(page),
            Err(Unusable::Missing) => Err(None),
            Err(Unusable::Damaged(why)) => Err(Some(format!("the stored page is damaged: {why}"))),
            Err(Unusable::Store(Error::SchemaMismatch { .. })) => {
                Err(Some("stored by another version of the program".to_string()))
            }
            Err(Unusable::Store(error)) => {
                Err(Some(format!("the stored page can't be read: {error}")))
            }
        }
    }

    /// Opens the object with this name as a page.
    pub(crate) fn of_object(
        store: &Store,
        name: &str,
    ) -> std::result::Result<StoredPage, Unusable> {
        let snapshot = stored_object::open(store, name, offset_of!(PageRoot, parts))?;
        Ok(StoredPage { snapshot: Arc::new(snapshot), store: store.clone() })
    }

    /// Reads the manifest: the resources that the page was made from.
    ///
    /// # Errors
    /// Fails if the manifest is damaged or has another version's format.
    pub fn manifest(&self) -> std::result::Result<Manifest, String> {
        let manifest = Piece { snapshot: self.snapshot.clone(), part: MANIFEST };
        manifest
            .verify(0..manifest.bytes().len())
            .map_err(|why| format!("the stored page is damaged: {why}"))?;
        serde_json::from_slice(manifest.bytes())
            .map_err(|error| format!("its manifest can't be read ({error})"))
    }

    /// Returns the bytes of the page block and of the strips.
    pub fn sizes(&self) -> (u64, u64) {
        (self.snapshot.lengths[BLOCK], self.snapshot.lengths[STRIPS])
    }

    /// Maps the page and checks its header. Other parts are verified at their first use.
    ///
    /// # Errors
    /// Fails if the block's header is damaged or has an unknown format.
    pub fn page(&self, with_strips: bool) -> Result<Page> {
        let piece = |part| Arc::new(Piece { snapshot: self.snapshot.clone(), part });
        let has_strips = with_strips && self.snapshot.lengths[STRIPS] > 0;
        let strips = has_strips.then(|| piece(STRIPS) as Arc<dyn PageBytes>);
        Page::new(piece(BLOCK), strips, Box::new(StoreParts { store: self.store.clone() }))
    }
}

/// Part of a stored page. Keeps the object mapped while it exists.
struct Piece {
    snapshot: Arc<Snapshot<PageRoot>>,
    part: usize,
}

impl PageBytes for Piece {
    fn bytes(&self) -> &[u8] {
        self.snapshot.part(self.part)
    }

    fn verify(&self, range: Range<usize>) -> std::result::Result<(), String> {
        let bytes = self.bytes().get(range).ok_or("a part of the page is missing")?;
        match self.snapshot.verify_bytes(bytes) {
            Ok(true) => Ok(()),
            Ok(false) => Err("the object has no checksums".to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Maps fonts and images from a store. Each is compared with its hash when it is loaded.
pub struct StoreParts {
    /// The store.
    pub store: Store,
}

struct MappedPart(Snapshot<PartRoot>);

impl AsRef<[u8]> for MappedPart {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl Parts for StoreParts {
    fn load(&self, kind: PartKind, hash: &[u8; 32]) -> Result<SharedBytes> {
        let name = part_name(kind, hash);
        let why = match stored_object::open(&self.store, &name, offset_of!(PartRoot, bytes)) {
            Ok(part) => {
                let part = MappedPart(part);
                if blake3::hash(part.as_ref()) == *hash {
                    return Ok(Arc::new(part));
                }
                "its content does not match the hash in its name".to_string()
            }
            Err(Unusable::Missing) => "no such object".to_string(),
            Err(Unusable::Damaged(why)) => why,
            Err(Unusable::Store(error)) => error.to_string(),
        };
        Err(ViewError::MissingPart { object: name, why })
    }
}

/// All data to store for a page.
pub struct PageBatch<'a> {
    /// The page's address.
    pub url: &'a Url,
    /// The layout for which the page was made.
    pub layout: Layout,
    /// The resources from which the page was made.
    pub manifest: &'a Manifest,
    /// The page block.
    pub block: &'a [u8],
    /// The strips; may be empty.
    pub strips: &'a [u8],
    /// Fonts and images.
    pub parts: &'a [Part],
    /// The parsed page, unless it is stored already.
    pub document: Option<NewBlock<'a>>,
}

impl PageBatch<'_> {
    /// Writes everything to the store in one batch, or nothing. Fonts and images that are stored
    /// undamaged are not written again.
    ///
    /// Costs the flushes of one batch, and writing the new bytes.
    ///
    /// # Errors
    /// Fails if the store can't be written. Then nothing has changed.
    pub fn commit(&self, store: &Store) -> Result<()> {
        let manifest = serde_json::to_vec(self.manifest)
            .map_err(|error| ViewError::InvalidPage(error.to_string()))?;
        let mut batch = store.batch()?;
        for part in self.parts {
            if !has_part(store, part.kind, &part.hash) {
                let name = part_name(part.kind, &part.hash);
                batch.replace::<PartRoot, _>(&name, part.data.data())?;
            }
        }
        if let Some(document) = self.document {
            batch.replace::<Document, _>(&document_name(self.url), document)?;
        }
        let new = NewPage { manifest: &manifest, block: self.block, strips: self.strips };
        batch.replace::<PageRoot, _>(&page_name(self.url, self.layout), new)?;
        Ok(batch.commit()?)
    }
}

/// Returns true if a font or an image is stored undamaged. Costs hashing all its bytes.
pub(crate) fn has_part(store: &Store, kind: PartKind, hash: &[u8; 32]) -> bool {
    let name = part_name(kind, hash);
    if !store.contains(&name).unwrap_or(false) {
        return false;
    }
    StoreParts { store: store.clone() }.load(kind, hash).is_ok()
}

/// Returns true if all fonts and images of a page are stored. Costs one catalog lookup each, and
/// does not read their content.
pub(crate) fn has_parts(store: &Store, block: Block<'_>) -> bool {
    let mut seen = HashSet::new();
    let mut parts = block.parts().filter(|part| seen.insert(part.hash));
    parts.all(|part| store.contains(&part_name(part.kind, part.hash)).unwrap_or(false))
}

/// Returns the size of a stored font or image, in bytes.
pub fn part_bytes(store: &Store, kind: PartKind, hash: &[u8; 32]) -> Option<u64> {
    let part = store.read::<PartRoot>(&part_name(kind, hash)).ok()?;
    Some(part.bytes.len() as u64)
}

/// Opens the document that is stored for an address, if there is one that can be read.
pub fn document(store: &Store, url: &Url) -> Option<Snapshot<Document>> {
    store.read(&document_name(url)).ok()
}
