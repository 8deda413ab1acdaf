//! The objects of a page in a store.
//!
//! | object | what | shared by |
//! |---|---|---|
//! | `page-SLUG-WIDTHxHEIGHTxSCALE-HASH` | [`KeptPage`]: manifest, page block, strips | - |
//! | `page-SLUG-HASH.document` | `evermap_dom::Document`: the tables | the layouts of one address |
//! | `font-HASH` | [`KeptPart`]: a font file | all pages |
//! | `image-HASH` | [`KeptPart`]: decoded pixels | all pages |
//! | `page-….slow` | [`SlowPage`]: that this disk is too slow for this page | - |
//! | `page-….retry` | [`RetryNote`]: that missing resources were asked for again | - |
//!
//! SLUG is the end of the address, for people; HASH the beginning of a BLAKE3: of the address, or of the content. All
//! that a page needs appears in one batch, or nothing.
// The derive writes `unsafe impl`s after checking the layout at compile time; nothing else here is.
#![allow(unsafe_code)]

use std::collections::HashSet;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;

use evermap::{Build, Built, Error, PVec, Persist, Slot, Snapshot, Store};
use evermap_dom::{Document, NewBlock};
use url::Url;

use crate::kept_object::{self, Unusable};
use crate::layout::Layout;
use crate::manifest::Manifest;
use crate::page::{Block, PageBytes, Part, PartKind};
use crate::paint::{Page, Parts, SharedBytes};
use crate::target::Target;
use crate::{Result, ViewError};

/// The parts of a kept page, see [`KeptPage::part`].
const BLOCK: usize = 0;
const STRIPS: usize = 1;
const MANIFEST: usize = 2;
/// They begin at multiples of this.
const ALIGNMENT: usize = 8;
/// Letters of an address that a name shows.
const SLUG_MAX: usize = 40;

/// A laid-out page, as the root of an object. One block for everything: an object of one block is made to measure.
#[derive(Persist)]
#[persist(name = "EvermapPage")]
#[repr(C)]
pub struct KeptPage {
    /// Bytes of the page block, of the strips (0 without any), and of the manifest.
    lengths: [u64; 3],
    /// These three, each from a multiple of 8 on. The manifest is a [`Manifest`] as JSON.
    parts: PVec<u8>,
}

/// A font file or an image's pixels, as the root of an object.
#[derive(Persist)]
#[persist(name = "EvermapPart")]
#[repr(C)]
pub struct KeptPart {
    bytes: PVec<u8>,
}

/// That showing a page from what is kept of it took longer than laying it out, as the root of an object: it is large, and
/// lies on a slow disk.
#[derive(Clone, Copy, Debug, PartialEq, Persist)]
#[persist(name = "EvermapSlowPage")]
#[repr(C)]
pub struct SlowPage {
    /// What the visit took that was warm.
    pub warm_us: u64,
    /// What the visit took that laid it out.
    pub cold_us: u64,
    /// When that was noted, nanoseconds since 1970.
    pub noted_ns: u64,
}

/// After this long it is tried again: the file may be in memory by then, or on another disk.
const SLOW_IS_TRUSTED_NS: u64 = 24 * 3_600 * 1_000_000_000;

impl SlowPage {
    /// What is noted of a page, unless that is too long ago. Costs a look at the catalog.
    pub fn of(store: &Store, url: &Url, layout: Layout, now_ns: u64) -> Option<SlowPage> {
        let name = slow_name(url, layout);
        if !store.contains(&name).ok()? {
            return None;
        }
        let noted = *store.read::<SlowPage>(&name).ok()?;
        (now_ns.saturating_sub(noted.noted_ns) < SLOW_IS_TRUSTED_NS).then_some(noted)
    }

    /// Notes it.
    ///
    /// # Errors
    /// When the store can't be written.
    pub fn note(self, store: &Store, url: &Url, layout: Layout) -> Result<()> {
        Ok(store.replace::<SlowPage, _>(&slow_name(url, layout), self)?)
    }

    /// Takes a note back, if there is one, when laying the page out has taken `cold_us`, which is longer than what is kept.
    ///
    /// # Errors
    /// When the store can't be written.
    pub fn correct(store: &Store, url: &Url, layout: Layout, cold_us: f64) -> Result<()> {
        let name = slow_name(url, layout);
        if !store.contains(&name)? {
            return Ok(());
        }
        match store.read::<SlowPage>(&name) {
            Ok(noted) if noted.warm_us as f64 >= cold_us => Ok(()),
            _ => Ok(store.remove(&name)?),
        }
    }
}

fn slow_name(url: &Url, layout: Layout) -> String {
    format!("{}.slow", page_name(url, layout))
}

/// That what a page lacks was asked for again without success, as the root of an object.
#[derive(Clone, Copy, Debug, PartialEq, Persist)]
#[persist(name = "EvermapRetry")]
#[repr(C)]
pub struct RetryNote {
    /// When it was asked for last, nanoseconds since 1970.
    pub tried_ns: u64,
    /// How often it was asked for.
    pub attempts: u64,
}

/// The second attempt is made this long after the first; each wait is twice as long as the one before.
const RETRY_NS_MIN: u64 = 10 * 1_000_000_000;
/// No wait is longer.
const RETRY_NS_MAX: u64 = 600 * 1_000_000_000;

impl RetryNote {
    /// The note of a page. Costs a look at the catalog.
    pub fn of(store: &Store, url: &Url, layout: Layout) -> Option<RetryNote> {
        let name = retry_name(url, layout);
        if !store.contains(&name).ok()? {
            return None;
        }
        Some(*store.read::<RetryNote>(&name).ok()?)
    }

    /// Is it too early for another attempt?
    pub fn is_recent(&self, now_ns: u64) -> bool {
        let doublings = self.attempts.saturating_sub(1).min(16);
        let wait_ns = (RETRY_NS_MIN << doublings).min(RETRY_NS_MAX);
        now_ns.saturating_sub(self.tried_ns) < wait_ns
    }

    /// Writes it.
    ///
    /// # Errors
    /// When the store can't be written.
    pub fn note(self, store: &Store, url: &Url, layout: Layout) -> Result<()> {
        Ok(store.replace::<RetryNote, _>(&retry_name(url, layout), self)?)
    }

    /// Removes the note, if there is one: nothing is missing any more.
    ///
    /// # Errors
    /// When the store can't be written.
    pub fn forget(store: &Store, url: &Url, layout: Layout) -> Result<()> {
        match store.remove(&retry_name(url, layout)) {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn retry_name(url: &Url, layout: Layout) -> String {
    format!("{}.retry", page_name(url, layout))
}

/// What belongs to a page and is none, by the end of its name.
pub(crate) fn is_companion(name: &str) -> bool {
    COMPANIONS.iter().any(|ending| name.ends_with(ending))
}

/// The name without what tells a companion of a page from the page.
pub(crate) fn without_ending(name: &str) -> &str {
    COMPANIONS.iter().fold(name, |name, ending| name.trim_end_matches(ending))
}

const COMPANIONS: [&str; 3] = [".document", ".slow", ".retry"];

/// What a [`KeptPage`] is built from.
#[derive(Clone, Copy)]
pub struct NewPage<'a> {
    /// The manifest's JSON.
    pub manifest: &'a [u8],
    /// The page block.
    pub block: &'a [u8],
    /// The strips.
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

impl Build<NewPage<'_>> for KeptPage {
    fn expected_bytes(new: &NewPage<'_>) -> Option<u64> {
        Some(new.bytes() as u64)
    }

    fn build<'a>(
        new: NewPage<'_>,
        slot: Slot<'a, Self>,
    ) -> std::result::Result<Built<'a, Self>, Error> {
        let lengths = new.parts().map(|part| part.len() as u64);
        slot.write_with(KeptPage { lengths, parts: PVec::new() }, |mut page| {
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

impl KeptPage {
    /// The page block, the strips, or the manifest; empty if the lengths are not those of the whole.
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

impl Build<&[u8]> for KeptPart {
    fn expected_bytes(bytes: &&[u8]) -> Option<u64> {
        Some(bytes.len() as u64)
    }

    fn build<'a>(
        bytes: &[u8],
        slot: Slot<'a, Self>,
    ) -> std::result::Result<Built<'a, Self>, Error> {
        slot.write_with(KeptPart { bytes: PVec::new() }, |mut part| {
            let mut field = part.fields().bytes;
            field.reserve_exact(bytes.len())?;
            field.extend_from_slice(bytes)
        })
    }
}

/// A page that was found in a store.
pub struct Found {
    snapshot: Arc<Snapshot<KeptPage>>,
    store: Store,
}

impl Found {
    /// The page that is kept of an address for a layout, if there is one that this build can read.
    ///
    /// Costs an object's opening; touches the manifest only.
    pub fn open(store: &Store, url: &Url, layout: Layout) -> std::result::Result<Found, String> {
        let Layout { width, height, scale } = layout;
        Found::named(store, &page_name(url, layout)).map_err(|why| {
            why.unwrap_or_else(|| format!("it is not kept for {width} x {height} at scale {scale}"))
        })
    }

    /// The page of this name. Without a reason when there is none.
    pub(crate) fn named(store: &Store, name: &str) -> std::result::Result<Found, Option<String>> {
        match kept_object::open(store, name, offset_of!(KeptPage, parts)) {
            Ok(snapshot) => Ok(Found { snapshot: Arc::new(snapshot), store: store.clone() }),
            Err(Unusable::Missing) => Err(None),
            Err(Unusable::Damaged(why)) => Err(Some(format!("what is kept is damaged: {why}"))),
            Err(Unusable::Store(Error::SchemaMismatch { .. })) => {
                Err(Some("it was kept by another version of the program".to_string()))
            }
            Err(Unusable::Store(error)) => {
                Err(Some(format!("what is kept can't be read: {error}")))
            }
        }
    }

    /// What the page was made from.
    ///
    /// # Errors
    /// When the manifest is damaged, or one of another version.
    pub fn manifest(&self) -> std::result::Result<Manifest, String> {
        let manifest = Piece { snapshot: self.snapshot.clone(), part: MANIFEST };
        manifest
            .verify(0..manifest.bytes().len())
            .map_err(|why| format!("what is kept is damaged: {why}"))?;
        serde_json::from_slice(manifest.bytes())
            .map_err(|error| format!("its manifest can't be read ({error})"))
    }

    /// Bytes of the page block and of the strips.
    pub fn sizes(&self) -> (u64, u64) {
        (self.snapshot.lengths[BLOCK], self.snapshot.lengths[STRIPS])
    }

    /// The page, mapped. Costs a look at its header; the rest is verified when it is used.
    ///
    /// # Errors
    /// When the block's header is damaged, or the block is none that this build knows.
    pub fn page(&self, with_strips: bool) -> Result<Page> {
        let piece = |part| Arc::new(Piece { snapshot: self.snapshot.clone(), part });
        let has_strips = with_strips && self.snapshot.lengths[STRIPS] > 0;
        let strips = has_strips.then(|| piece(STRIPS) as Arc<dyn PageBytes>);
        Page::new(piece(BLOCK), strips, Box::new(StoreParts { store: self.store.clone() }))
    }
}

/// Part of a kept page, which stays mapped for as long as this is there.
struct Piece {
    snapshot: Arc<Snapshot<KeptPage>>,
    part: usize,
}

impl PageBytes for Piece {
    fn bytes(&self) -> &[u8] {
        self.snapshot.part(self.part)
    }

    fn verify(&self, range: Range<usize>) -> std::result::Result<(), String> {
        let bytes = self.bytes().get(range).ok_or("a part of it is missing")?;
        match self.snapshot.verify_bytes(bytes) {
            Ok(true) => Ok(()),
            Ok(false) => Err("its object has no checksums".to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Fonts and images from a store, mapped. Each is compared with its hash when it is loaded.
pub struct StoreParts {
    /// The store.
    pub store: Store,
}

struct MappedPart(Snapshot<KeptPart>);

impl AsRef<[u8]> for MappedPart {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl Parts for StoreParts {
    fn load(&self, kind: PartKind, hash: &[u8; 32]) -> Result<SharedBytes> {
        let name = part_name(kind, hash);
        let why = match kept_object::open(&self.store, &name, offset_of!(KeptPart, bytes)) {
            Ok(part) => {
                let part = MappedPart(part);
                if blake3::hash(part.as_ref()) == *hash {
                    return Ok(Arc::new(part));
                }
                "its content is not the one that its name stands for".to_string()
            }
            Err(Unusable::Missing) => "there is none".to_string(),
            Err(Unusable::Damaged(why)) => why,
            Err(Unusable::Store(error)) => error.to_string(),
        };
        Err(ViewError::MissingPart { object: name, why })
    }
}

/// All that is kept of a page.
pub struct Keep<'a> {
    /// Its address.
    pub url: &'a Url,
    /// The layout it was made for.
    pub layout: Layout,
    /// What it was made from.
    pub manifest: &'a Manifest,
    /// The page block.
    pub block: &'a [u8],
    /// The strips; may be empty.
    pub strips: &'a [u8],
    /// Fonts and images.
    pub parts: &'a [Part],
    /// The parsed page, unless it is kept already.
    pub document: Option<NewBlock<'a>>,
}

impl Keep<'_> {
    /// Puts it into the store: everything or nothing. Fonts and images that are there and good stay as they are.
    ///
    /// Costs one batch: some flushes, and the bytes that are new.
    ///
    /// # Errors
    /// When the store can't be written; then nothing has changed.
    pub fn commit(&self, store: &Store) -> Result<()> {
        let manifest = serde_json::to_vec(self.manifest)
            .map_err(|error| ViewError::InvalidPage(error.to_string()))?;
        let mut batch = store.batch()?;
        for part in self.parts {
            if !has_part(store, part.kind, &part.hash) {
                let name = part_name(part.kind, &part.hash);
                batch.replace::<KeptPart, _>(&name, part.data.data())?;
            }
        }
        if let Some(document) = self.document {
            batch.replace::<Document, _>(&document_name(self.url), document)?;
        }
        let new = NewPage { manifest: &manifest, block: self.block, strips: self.strips };
        batch.replace::<KeptPage, _>(&page_name(self.url, self.layout), new)?;
        Ok(batch.commit()?)
    }
}

/// Is a font or an image kept, and good? Costs a look at all its bytes.
pub(crate) fn has_part(store: &Store, kind: PartKind, hash: &[u8; 32]) -> bool {
    let name = part_name(kind, hash);
    if !store.contains(&name).unwrap_or(false) {
        return false;
    }
    StoreParts { store: store.clone() }.load(kind, hash).is_ok()
}

/// Are all fonts and images of a page kept? Costs a look at the catalog for each.
pub(crate) fn has_parts(store: &Store, block: Block<'_>) -> bool {
    let mut seen = HashSet::new();
    let mut parts = block.parts().filter(|part| seen.insert(part.hash));
    parts.all(|part| store.contains(&part_name(part.kind, part.hash)).unwrap_or(false))
}

/// Bytes of a font or an image that is kept.
pub fn part_bytes(store: &Store, kind: PartKind, hash: &[u8; 32]) -> Option<u64> {
    let part = store.read::<KeptPart>(&part_name(kind, hash)).ok()?;
    Some(part.bytes.len() as u64)
}

/// The document that is kept of an address, if there is one that can be read.
pub fn document(store: &Store, url: &Url) -> Option<Snapshot<Document>> {
    store.read(&document_name(url)).ok()
}

/// What an object of the store is called for: a page, or a document.
pub(crate) fn target_named(store: &Store, name: &str) -> Result<Option<Target>> {
    match kept_object::open::<KeptPage>(store, name, offset_of!(KeptPage, parts)) {
        Ok(page) => {
            let found = Found { snapshot: Arc::new(page), store: store.clone() };
            let manifest = found
                .manifest()
                .map_err(|why| ViewError::NotFound { name: name.to_string(), why })?;
            return Ok(manifest.target());
        }
        Err(Unusable::Missing | Unusable::Store(Error::InvalidName { .. })) => return Ok(None),
        Err(Unusable::Damaged(why)) => {
            let why = format!("what is kept under this name is damaged: {why}");
            return Err(ViewError::NotFound { name: name.to_string(), why });
        }
        Err(Unusable::Store(Error::SchemaMismatch { .. })) => (),
        Err(Unusable::Store(error)) => return Err(error.into()),
    }
    let document = match store.read::<Document>(name) {
        Ok(document) => document,
        Err(Error::SchemaMismatch { .. }) => {
            return Err(ViewError::NotFound {
                name: name.to_string(),
                why: "the object of this name is neither a page nor a document".to_string(),
            });
        }
        Err(error) => return Err(error.into()),
    };
    let path = document.source().path;
    let url =
        Url::parse(&path).ok().filter(|url| matches!(url.scheme(), "http" | "https" | "file"));
    let url = url.or_else(|| Url::from_file_path(&path).ok());
    // A document from standard input has no address: nothing is relative to it.
    let url = url.or_else(|| Url::parse(&format!("evermap:{name}")).ok());
    Ok(url.map(|url| Target { document: Some(name.to_string()), ..Target::of_url(url) }))
}

/// The name of the object that keeps the page of an address for a layout.
pub fn page_name(url: &Url, layout: Layout) -> String {
    let Layout { width, height, scale } = layout;
    format!("page-{}-{width}x{height}x{scale}-{}", slug(url), hash_of(url))
}

/// The name of the object that keeps the document of an address.
pub fn document_name(url: &Url) -> String {
    format!("page-{}-{}.document", slug(url), hash_of(url))
}

/// The name of the object that keeps a font or an image.
pub fn part_name(kind: PartKind, hash: &[u8; 32]) -> String {
    let kind = match kind {
        PartKind::Font => "font",
        PartKind::Image => "image",
    };
    format!("{kind}-{}", &blake3::Hash::from_bytes(*hash).to_hex()[..32])
}

pub(crate) fn hash_of(url: &Url) -> String {
    blake3::hash(url.as_str().as_bytes()).to_hex()[..16].to_string()
}

/// The last part of the address that says something, as letters, digits, dots and lines.
fn slug(url: &Url) -> String {
    let last = url.path_segments().and_then(|parts| parts.rev().find(|part| !part.is_empty()));
    let said = last.or(url.host_str()).unwrap_or(url.scheme());
    let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '_' | '-');
    let slug = said.chars().take(SLUG_MAX).map(|char| if is_plain(char) { char } else { '-' });
    slug.collect()
}
